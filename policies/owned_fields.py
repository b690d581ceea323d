"""The owned fields of a pod spec, one by one, by their paths as people write them."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from msgspec import Struct

from harbourmaster.api.field_errors import quote
from harbourmaster.policies.affinity import required_terms
from harbourmaster.policies.compiled import NODE_TERMS, SLOTS
from harbourmaster.policies.model import (
    AFFINITY,
    NODE_NAME,
    NODE_SELECTOR,
    REQUIRED,
    SCHEDULER_NAME,
    TOLERATIONS,
)

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
