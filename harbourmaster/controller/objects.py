"""Helpers of reconcilers: own writes, references for events, decoding, and fair order."""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from msgspec import Struct

from harbourmaster.api.metadata import Metadata
from harbourmaster.kube.event_series import ObjectReference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from harbourmaster.api.resources import Resource

T = TypeVar("T")


class _Object(Struct, frozen=True, gc=False):
    metadata: Metadata


_decode: Final = msgspec.json.Decoder(_Object).decode


class OwnWrites:
    """The resource versions that our writes have replaced, by key.

    A child may queue its parent before the watch reports our write to it. Reconciling the old
    version would repeat that write.
    """

    def __init__(self) -> None:
        self._replaced: dict[str, set[str]] = {}

    def note(self, metadata: Metadata) -> None:
        """Note that the object with this metadata was replaced by our write."""
        self._replaced.setdefault(metadata.key, set()).add(metadata.resource_version)

    def hide(self, metadata: Metadata) -> bool:
        """Whether this metadata is older than our write, whose watch event is pending."""
        if metadata.resource_version in self._replaced.get(metadata.key, ()):
            return True
        self._replaced.pop(metadata.key, None)
        return False

    def forget(self, key: str) -> None:
        """Drop the versions of a deleted object."""
        self._replaced.pop(key, None)


def reference(resource: Resource, metadata: Metadata | Mapping[str, Any]) -> ObjectReference:
    """Return a reference to the object of this kind with this metadata, for events."""
    if isinstance(metadata, Metadata):
        identity = (metadata.name, metadata.namespace, metadata.uid)
    else:
        identity = (metadata["name"], metadata.get("namespace", ""), metadata.get("uid", ""))
    return ObjectReference(resource.api_version, resource.kind, *identity)


def decode_object(resource: Resource, raw: msgspec.Raw | bytes) -> dict[str, Any]:
    """Decode an object without managedFields; lists leave out its kind, so it is added."""
    obj: dict[str, Any] = msgspec.json.decode(raw)
    obj["metadata"].pop("managedFields", None)
    return {**obj, **resource.type_fields}


def decode_metadata(raw: msgspec.Raw | bytes) -> Metadata:
    """Return the metadata of an object, of which nothing else is read. Raises MsgspecError."""
    return _decode(raw).metadata


def data_of(secret: Mapping[str, Any] | None) -> dict[str, bytes]:
    """Return the data of a Secret; values that are not base64 are left out."""
    data = {}
    for key, value in ((secret or {}).get("data") or {}).items():
        try:
            data[key] = base64.b64decode(value)
        except (binascii.Error, ValueError, TypeError):
            continue
    return data


def round_robin(items: Iterable[T], namespace_of: Callable[[T], str]) -> list[T]:
    """Return the first item of each namespace, then the second of each, and so on."""
    counts: Counter[str] = Counter()

    def rank(item: T) -> int:
        counts[namespace_of(item)] += 1
        return counts[namespace_of(item)]

    return sorted(items, key=rank)
