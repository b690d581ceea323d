"""Writes of the lifecycle controllers, each against the very version that was read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harbourmaster.api.patches import JsonPatch

if TYPE_CHECKING:
    from harbourmaster.api.metadata import Metadata
    from harbourmaster.api.resources import Resource
    from harbourmaster.kube.client import Client


async def write_status(
    client: Client, resource: Resource, metadata: Metadata, status: object
) -> None:
    """Replace the whole status. A ConflictError where the object is of a later version by now."""
    await client.patch(
        resource,
        metadata.name,
        JsonPatch([*precondition(metadata), {"op": "add", "path": "/status", "value": status}]),
        metadata.namespace,
        subresource="status",
    )


def precondition(metadata: Metadata) -> list[dict[str, Any]]:
    """The operation that makes any other version, or another object of that name, a conflict."""
    return [
        {"op": "test", "path": "/metadata/uid", "value": metadata.uid},
        {
            "op": "replace",
            "path": "/metadata/resourceVersion",
            "value": metadata.resource_version,
        },
    ]
