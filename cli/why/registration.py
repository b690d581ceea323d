"""Whether the API server sends objects of a kind and a namespace to our webhook at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.resources import MUTATING_WEBHOOKS
from harbourmaster.api.selectors import LabelSelector, compile_selector
from harbourmaster.cli.cluster import collect
from harbourmaster.cli.installed import OUR_DOMAIN
from harbourmaster.cli.why.subjects import BY_KIND
from harbourmaster.kube.errors import ApiError, UnauthorizedError, UnreachableError
from harbourmaster.policies.unmatched import first_mismatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harbourmaster.cli.why.model import WhyContext

_ANY: Final = "*"
_OURS: Final = f".{OUR_DOMAIN}"
_EVERYTHING: Final = LabelSelector()


class _Rule(Struct, frozen=True, rename="camel"):
    api_groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()


class _Entry(Struct, frozen=True, rename="camel"):
    name: str = ""
    rules: tuple[_Rule, ...] = ()
    namespace_selector: LabelSelector | None = None
    object_selector: LabelSelector | None = None


class _Configuration(Struct, frozen=True):
    webhooks: tuple[_Entry, ...] = ()


_decode: Final = msgspec.json.Decoder(_Configuration).decode


async def why_unsent(
    context: WhyContext, kind: str, namespace_labels: Mapping[str, str], labels: Mapping[str, str]
) -> str:
    """Why no object of that kind with these labels is sent; empty where one is, or nobody knows.

    What stands in ``matchConditions`` is not looked at.
    """
    resource = BY_KIND.get(kind)
    if resource is None or context.client is None:
        return ""
    try:
        found = await collect(context.client, MUTATING_WEBHOOKS, _decode)
    except (UnreachableError, UnauthorizedError):
        raise
    except ApiError:
        return ""
    entries = [each for one in found for each in one.webhooks if each.name.endswith(_OURS)]
    if not entries:
        return "no webhook of ours is registered: harbourmaster doctor says more"
    asked = [each for each in entries if _asks_for(each, resource.group, resource.plural)]
    if not asked:
        return f"no webhook of ours is registered for {resource.plural}"
    reasons = [_unselected(each, namespace_labels, labels) for each in asked]
    if "" in reasons:
        return ""
    return f"it is never sent to the webhook: {'; '.join(dict.fromkeys(reasons))}"


def _asks_for(entry: _Entry, group: str, plural: str) -> bool:
    return any(
        not {group, _ANY}.isdisjoint(rule.api_groups)
        and not {plural, _ANY}.isdisjoint(rule.resources)
        for rule in entry.rules
    )


def _unselected(
    entry: _Entry, namespace_labels: Mapping[str, str], labels: Mapping[str, str]
) -> str:
    """Why its selectors leave the object out; unlike a policy's, absent ones select everything."""
    for selector, name, found, whose in (
        (entry.namespace_selector, "namespaceSelector", namespace_labels, "the namespace"),
        (entry.object_selector, "objectSelector", labels, "the object"),
    ):
        given = selector or _EVERYTHING
        mismatch = first_mismatch(compile_selector(given), given, name, found, whose)
        if mismatch is not None:
            return str(mismatch)
    return ""
