"""The owned fields of a pod spec, one by one, by their paths as people write them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from harbourmaster.api.field_errors import quote
from harbourmaster.policies.affinity import required_terms
from harbourmaster.policies.compiled import NODE_TERMS, SLOTS
from harbourmaster.policies.merge import DEFAULT_SCHEDULER
from harbourmaster.policies.model import (
    AFFINITY,
    NODE_NAME,
    NODE_SELECTOR,
    REQUIRED,
    SCHEDULER_NAME,
    TOLERATIONS,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harbourmaster.policies.compiled import CompiledPolicy


Json: TypeAlias = "dict[str, Any]"

REQUIRED_TERMS: Final = f"{AFFINITY}.nodeAffinity.{REQUIRED}.{NODE_TERMS}"


class OwnedFields(Struct, frozen=True):
    """The owned fields of a pod spec: values by path below the spec, and whole lists."""

    values: dict[str, Any]
    lists: dict[str, list[Json]]

    @staticmethod
    def of(spec: Json) -> OwnedFields:
        """The fields of a spec, of which only those that policies own are looked at."""
        values: dict[str, Any] = {
            label_path(key): value for key, value in (spec.get(NODE_SELECTOR) or {}).items()
        }
        lists = {TOLERATIONS: spec.get(TOLERATIONS) or []}
        affinity = spec.get(AFFINITY)
        for name, slot in SLOTS:
            terms = ((affinity or {}).get(name) or {}).get(slot)
            lists[list_path(name, slot)] = terms or []
        for path, items in lists.items():
            values.update((f"{path}[{index}]", item) for index, item in enumerate(items))
        if terms := required_terms(affinity):
            values[REQUIRED_TERMS] = list(terms)
        for name in (NODE_NAME, SCHEDULER_NAME):
            if value := spec.get(name):
                values[name] = value
        return OwnedFields(values, lists)


def label_path(key: str) -> str:
    """Return the path of a label of the node selector."""
    return f"{NODE_SELECTOR}[{quote(key)}]"


def list_path(name: str, slot: str) -> str:
    """Return the path of a list of affinity terms."""
    return f"{AFFINITY}.{name}.{slot}"


Path: TypeAlias = "tuple[str, ...]"
"""Names of fields below a pod spec, outermost first."""

REQUIRED_NODES: Path = (AFFINITY, "nodeAffinity", REQUIRED)
"""The one field that is multiplied: nothing in it can be told from the pod's own."""

_encode = msgspec.json.Encoder(order="deterministic").encode


class InjectableFields(Struct, frozen=True):
    """The fields that policies may set, with the values that they may put there.

    ``fields`` are set or changed as a whole; ``items`` are appended to the list at their path,
    ``entries`` added to the map at theirs, ``scalars`` set where they stand.
    """

    fields: tuple[Path, ...] = ()
    items: tuple[tuple[Path, Any], ...] = ()
    entries: tuple[tuple[Path, str, str], ...] = ()
    scalars: tuple[tuple[Path, str], ...] = ()

    @property
    def paths(self) -> tuple[Path, ...]:
        """Every path once, an entry's with its key."""
        every = (
            *self.fields,
            *(path for path, _ in self.items),
            *((*path, key) for path, key, _ in self.entries),
            *(path for path, _ in self.scalars),
        )
        return tuple(dict.fromkeys(every))


def injectable_fields(policies: Iterable[CompiledPolicy]) -> InjectableFields:
    """Return what the policies can set, sorted and without repetition; broken ones set nothing."""
    fields: set[Path] = set()
    items: dict[tuple[Path, bytes], Any] = {}
    entries: set[tuple[Path, str, str]] = set()
    scalars: set[tuple[Path, str]] = set()
    for policy in policies:
        if policy.fault is not None:
            continue
        if policy.required:
            fields.add(REQUIRED_NODES)
        lists = [((AFFINITY, *slot), listed) for slot, listed in policy.lists]
        for path, listed in (*lists, ((TOLERATIONS,), policy.tolerations)):
            items.update(((path, _encode(item)), item) for item, _ in listed)
        entries.update(((NODE_SELECTOR,), key, value) for key, value in policy.node_selector)
        if policy.node_name:
            scalars.add(((NODE_NAME,), policy.node_name))
            # So it ends where there are scheduling gates, beside which no nodeName may stand.
            fields.add(REQUIRED_NODES)
        if policy.scheduler_name:
            # What is replaced may be written out where the object comes from.
            names = (policy.scheduler_name, DEFAULT_SCHEDULER)
            scalars.update(((SCHEDULER_NAME,), name) for name in names)
    return InjectableFields(
        tuple(sorted(fields)),
        tuple((path, items[path, text]) for path, text in sorted(items)),
        tuple(sorted(entries)),
        tuple(sorted(scalars)),
    )
