"""What an event is about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harbourmaster.kube.event_series import ObjectReference

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harbourmaster.api.resources import Resource


def reference(resource: Resource, metadata: Mapping[str, Any]) -> ObjectReference:
    """The object of this kind with this metadata."""
    return ObjectReference(
        api_version=resource.api_version,
        kind=resource.kind,
        name=metadata["name"],
        namespace=metadata.get("namespace", ""),
        uid=metadata.get("uid", ""),
    )
