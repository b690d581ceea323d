"""Which fields of which kinds policies may set, and where, for tools that compare with Git."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from harbourmaster.policies.injected import Injected, injected
from harbourmaster.policies.pods import KINDS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from harbourmaster.policies.compiled import CompiledPolicy
    from harbourmaster.policies.pods import Kind

HANDLED: Final[tuple[Kind, ...]] = tuple(
    {(kind.group, kind.name): kind for kind in reversed(KINDS.values())}.values()
)[::-1]
"""Every kind once, regardless of its versions."""


class Scope(Struct, frozen=True):
    """What may be set in the objects of one namespace, or of all."""

    namespace: str | None
    """None for every namespace."""
    injected: Injected


def scopes(
    policies: Iterable[CompiledPolicy], namespace: str | None = None, *, apart: bool = True
) -> list[Scope]:
    """What cluster policies may set, and what the policies of each namespace set besides.

    With a namespace: what concerns that one. Where nothing is set, there is no scope. One scope has
    all of it for tools that cannot tell namespaces ``apart``.
    """
    groups: dict[str | None, list[CompiledPolicy]] = {}
    for policy in policies:
        if namespace is None or policy.namespace in {None, namespace}:
            groups.setdefault(policy.namespace if apart else None, []).append(policy)
    # Cluster policies come first.
    found = [
        Scope(each, injected(groups[each]))
        for each in sorted(groups, key=lambda group: group or "")
    ]
    return [scope for scope in found if scope.injected.paths]


def kinds_of(resources: Collection[tuple[str, str]]) -> tuple[Kind, ...]:
    """The kinds among API resources, given by group and plural."""
    return tuple(kind for kind in HANDLED if (kind.group, plural(kind)) in resources)


def plural(kind: Kind) -> str:
    """The name of a handled kind in URLs: all have the regular one."""
    return f"{kind.name.lower()}s"
