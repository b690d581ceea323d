"""Which namespaces and objects the webhooks of a configuration select, as the API server does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from harbourmaster.api.selectors import EVERYTHING, LabelSelector, compile_selector

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harbourmaster.api.selectors import Matcher
    from harbourmaster.cli.metadata import Metadata

NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"


def matcher(selector: Any) -> Matcher:  # noqa: ANN401
    """A selector of a webhook; one that is absent selects everything, unlike a policy's."""
    if not selector:
        return EVERYTHING
    return compile_selector(msgspec.convert(selector, LabelSelector)) or EVERYTHING


def selects(entry: dict[str, Any], namespace: Metadata) -> bool:
    """Whether a webhook is asked about objects of a namespace."""
    labels = {NAMESPACE_NAME: namespace.name, **(namespace.labels or {})}
    return matcher(entry.get("namespaceSelector")).matches(labels)


def covers(entry: dict[str, Any], group: str, resource: str, operation: str) -> bool:
    """Whether one of a webhook's rules is about it."""
    for rule in entry.get("rules") or ():
        if (
            {group, "*"}.intersection(rule.get("apiGroups") or ())
            and {resource, "*", "*/*"}.intersection(rule.get("resources") or ())
            and {operation, "*"}.intersection(rule.get("operations") or ())
        ):
            return True
    return False


def covers_pods(entry: dict[str, Any]) -> bool:
    """Whether a webhook is asked about pods that are created."""
    return covers(entry, "", "pods", "CREATE")


def labels_for(selector: Any) -> dict[str, str] | None:  # noqa: ANN401
    """Labels that a selector selects; None where none were found."""
    found: dict[str, str] = {}
    made = matcher(selector)
    for key, values in made.one_of:
        if values:
            found[key] = min(values)
    for key in made.present:
        found.setdefault(key, "true")
    return found if made.matches(found) else None


def named(namespaces: Iterable[Metadata]) -> str:
    """The names, the first few of many."""
    names = sorted(one.name for one in namespaces)
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"  # noqa: PLR2004
