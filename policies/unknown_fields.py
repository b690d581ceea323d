"""Fields that no policy has: an API server that validates fields strictly rejects them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import inspect

from harbourmaster.policies.model import (
    CLUSTER_POLICY,
    ManagedFieldsEntry,
    PodAffinityTerm,
    Policy,
    PolicyMetadata,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAMESPACE_SELECTOR: Final = "namespaceSelector"
_NOT_READ: Final[dict[type, frozenset[str]]] = {
    PolicyMetadata: frozenset(
        (
            "creationTimestamp",
            "deletionGracePeriodSeconds",
            "deletionTimestamp",
            "resourceVersion",
            "selfLink",
            "uid",
        )
    ),
    ManagedFieldsEntry: frozenset(("fieldsV1", "time")),
}
"""Fields that the API has and our projections lack."""
_ONLY_OF_PODS: Final[dict[type, frozenset[str]]] = {
    PodAffinityTerm: frozenset(("matchLabelKeys", "mismatchLabelKeys")),
}
"""Fields that the definitions of the policies lack and those of pods have."""


def unknown_fields(value: dict[str, Any]) -> list[str]:
    """The paths of the fields that the definition of a policy's kind lacks."""
    found = list(_unknown(value, _POLICY, ""))
    spec = value.get("spec")
    if value.get("kind") != CLUSTER_POLICY and isinstance(spec, dict):
        found += [f"spec.{name}" for name in spec if name == _NAMESPACE_SELECTOR]
    return found


def _unknown(value: object, kind: inspect.Type, at: str) -> Iterator[str]:
    if isinstance(kind, inspect.ListType) and isinstance(value, list):
        for index, item in enumerate(value):
            yield from _unknown(item, kind.item_type, f"{at}[{index}]")
    elif isinstance(kind, inspect.StructType) and isinstance(value, dict):
        fields = _fields(kind.cls)
        for name, item in value.items():
            path = f"{at}.{name}" if at else f"{name}"
            if name not in fields:
                yield path
            elif (below := fields[name]) is not None:
                yield from _unknown(item, below, path)


@cache
def _fields(cls: type) -> dict[str, inspect.Type | None]:
    """The fields of a type by their names in JSON; None for one that has none below it."""
    found = cast("inspect.StructType", inspect.type_info(cls))
    known = {each.encode_name: _nested(each.type) for each in found.fields}
    for name in _ONLY_OF_PODS.get(cls, ()):
        del known[name]
    return {**known, **dict.fromkeys(_NOT_READ.get(cls, ()))}


def _nested(kind: inspect.Type) -> inspect.Type | None:
    members = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    nested = (inspect.ListType, inspect.StructType)
    return next((each for each in members if isinstance(each, nested)), None)


_POLICY: Final = inspect.type_info(Policy)
