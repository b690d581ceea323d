"""Objects as dictionaries: decoded, read, and referred to by events."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any

import msgspec

from harbourmaster.kube.event_series import ObjectReference

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harbourmaster.api.resources import Resource


def reference(resource: Resource, metadata: Mapping[str, Any]) -> ObjectReference:
    """Return a reference to the object of this kind with this metadata, for events."""
    return ObjectReference(
        api_version=resource.api_version,
        kind=resource.kind,
        name=metadata["name"],
        namespace=metadata.get("namespace", ""),
        uid=metadata.get("uid", ""),
    )


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
