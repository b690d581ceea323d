"""Decodes the objects for which pods wait. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.api import resources

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from harbourmaster.api.resources import Resource

MAX_DOCUMENT: Final = 128 * 1024
"""Maximum bytes of an object whose fields are tested, because each test decodes it."""
SERVICE_LABEL: Final = "kubernetes.io/service-name"
"""Label of an EndpointSlice with the name of its Service."""


class Target(Struct, frozen=True, gc=False, kw_only=True):
    """An object for which pods wait, or one that shows its state."""

    name: str
    uid: str = ""
    labels: dict[str, str] = {}
    is_ready: bool = True
    """Whether the object is ready; always True for a kind without such a state."""
    text: str = ""
    """The reason why it is not ready."""
    is_failed: bool = False
    """Whether it will never be ready."""
    conditions: dict[str, tuple[str, str]] = {}
    """Status and reason by type."""
    selector: dict[str, str] = {}
    """The labels of a Service's pods."""
    is_ending: bool = False
    document: bytes = b""
    """The whole object, if a pod waits for a field of it; empty if it is too large."""


def target_of(
    resource: Resource, raw: msgspec.Raw | bytes, *, whole: Collection[str] = ()
) -> Target:
    """Decode the target from its JSON; ``whole`` are the names of those with a document.

    Raises msgspec.DecodeError.
    """
    obj = _JsonObject(msgspec.json.decode(raw))
    metadata = obj.part("metadata")
    is_kept = metadata.text("name") in whole and memoryview(raw).nbytes <= MAX_DOCUMENT
    conditions = {str(row.get("type")): row for row in obj.part("status").rows("conditions")}
    is_ready, text = _READY.get(resource, _exists)(obj, conditions)
    failed = conditions.get("Failed", {})
    is_failed = resource == resources.JOBS and failed.get("status") == "True"
    if is_failed:
        parts = ("failed", failed.get("reason"), failed.get("message"))
        text = ": ".join(str(part) for part in parts if part)
    return Target(
        name=metadata.text("name"),
        uid=metadata.text("uid"),
        labels={key: str(value) for key, value in metadata.part("labels").fields.items()},
        is_ready=is_ready and not is_failed,
        text="" if is_ready and not is_failed else text,
        is_failed=is_failed,
        conditions={
            name: (str(condition.get("status", "")), str(condition.get("reason", "")))
            for name, condition in conditions.items()
        },
        selector=_selector(obj) if resource == resources.SERVICES else {},
        is_ending=bool(metadata.text("deletionTimestamp")),
        document=bytes(raw) if is_kept else b"",
    )


class _JsonObject:
    """A map of unknown content. A part of an unexpected type is empty."""

    def __init__(self, obj: object) -> None:
        self.fields: dict[str, Any] = obj if isinstance(obj, dict) else {}

    def part(self, name: str) -> _JsonObject:
        return _JsonObject(self.fields.get(name))

    def rows(self, name: str) -> list[dict[str, Any]]:
        field = self.fields.get(name)
        return [row for row in field if isinstance(row, dict)] if isinstance(field, list) else []

    def text(self, name: str) -> str:
        field = self.fields.get(name)
        return field if isinstance(field, str) else ""

    def number(self, name: str, default: int = 0) -> int:
        field = self.fields.get(name)
        return field if isinstance(field, int) else default


_Conditions = dict[str, dict[str, Any]]


def _exists(_found: _JsonObject, _conditions: _Conditions) -> tuple[bool, str]:
    return True, ""


def _has(name: str, text: str) -> Callable[[_JsonObject, _Conditions], tuple[bool, str]]:
    def check(_found: _JsonObject, conditions: _Conditions) -> tuple[bool, str]:
        return conditions.get(name, {}).get("status") == "True", text

    return check


def _deployment(obj: _JsonObject, conditions: _Conditions) -> tuple[bool, str]:
    is_available = conditions.get("Available", {}).get("status") == "True"
    return _replicas(obj, "availableReplicas", is_available=is_available)


def _stateful_set(obj: _JsonObject, _conditions: _Conditions) -> tuple[bool, str]:
    return _replicas(obj, "availableReplicas")


def _replicas(
    obj: _JsonObject, field: str, *, is_available: bool | None = None
) -> tuple[bool, str]:
    wanted, there = obj.part("spec").number("replicas", 1), obj.part("status").number(field)
    if is_available is None:
        is_available = there >= wanted
    return _if_observed(obj, is_available, f"has {there} of {wanted} replicas available")


def _daemon_set(obj: _JsonObject, _conditions: _Conditions) -> tuple[bool, str]:
    status = obj.part("status")
    wanted, there = status.number("desiredNumberScheduled"), status.number("numberAvailable")
    return _if_observed(obj, there >= wanted, f"has {there} of {wanted} pods available")


def _if_observed(obj: _JsonObject, is_available: bool, text: str) -> tuple[bool, str]:
    generation = obj.part("metadata").number("generation")
    if obj.part("status").number("observedGeneration") < generation:
        return False, "is not observed yet since its last change"
    return is_available, text


def _slice(obj: _JsonObject, _conditions: _Conditions) -> tuple[bool, str]:
    # An endpoint that says nothing is ready.
    ready = (
        _JsonObject(row.get("conditions")).fields.get("ready") for row in obj.rows("endpoints")
    )
    return any(is_ready is not False for is_ready in ready), ""


def _selector(obj: _JsonObject) -> dict[str, str]:
    selector = obj.part("spec").part("selector").fields
    return {key: str(value) for key, value in selector.items()}


_READY: Final[Mapping[Resource, Callable[[_JsonObject, _Conditions], tuple[bool, str]]]] = {
    resources.JOBS: _has("Complete", "is not complete"),
    resources.DEPLOYMENTS: _deployment,
    resources.STATEFUL_SETS: _stateful_set,
    resources.DAEMON_SETS: _daemon_set,
    resources.PODS: _has("Ready", "is not ready"),
    resources.SLICES: _slice,
    resources.DEFINITIONS: _has("Established", "is not established"),
}
