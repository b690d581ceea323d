"""Objects as dictionaries: decoded, read, and referred to by events."""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from harbourmaster.api.metadata import Metadata
from harbourmaster.kube.event_series import ObjectReference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from harbourmaster.api.resources import Resource

T = TypeVar("T")


class OwnWrites:
    """The versions that our writes have replaced, by key.

    Children wake a parent before the watch brings what was written on it. Who decides by the old
    version then does twice what was done.
    """

    def __init__(self) -> None:
        self._replaced: dict[str, set[str]] = {}

    def note(self, metadata: Metadata) -> None:
        """The object with these metadata has been replaced."""
        self._replaced.setdefault(metadata.key, set()).add(metadata.resource_version)

    def hide(self, metadata: Metadata) -> bool:
        """Whether these are of before our write, whose event is still to come."""
        if metadata.resource_version in self._replaced.get(metadata.key, ()):
            return True
        self._replaced.pop(metadata.key, None)
        return False

    def forget(self, key: str) -> None:
        """The object is gone."""
        self._replaced.pop(key, None)


def reference(resource: Resource, metadata: Metadata | Mapping[str, Any]) -> ObjectReference:
    """Return a reference to the object of this kind with this metadata, for events."""
    if isinstance(metadata, Metadata):
        place = (metadata.name, metadata.namespace, metadata.uid)
    else:
        place = (metadata["name"], metadata.get("namespace", ""), metadata.get("uid", ""))
    return ObjectReference(resource.api_version, resource.kind, *place)


def decode_object(resource: Resource, raw: msgspec.Raw | bytes) -> dict[str, Any]:
    """Decode an object without managedFields; lists leave out its kind, so it is added."""
    found: dict[str, Any] = msgspec.json.decode(raw)
    found["metadata"].pop("managedFields", None)
    return {**found, "apiVersion": resource.api_version, "kind": resource.kind}


def data_of(secret: Mapping[str, Any] | None) -> dict[str, bytes]:
    """Return the data of a Secret; values that are not base64 are left out."""
    found = {}
    for key, value in ((secret or {}).get("data") or {}).items():
        try:
            found[key] = base64.b64decode(value)
        except (binascii.Error, ValueError, TypeError):
            continue
    return found


def in_turn(found: Iterable[T], namespace_of: Callable[[T], str]) -> list[T]:
    """The first of each namespace, then the second of each, and so on."""
    seen: Counter[str] = Counter()

    def turn(each: T) -> int:
        seen[namespace_of(each)] += 1
        return seen[namespace_of(each)]

    return sorted(found, key=turn)
