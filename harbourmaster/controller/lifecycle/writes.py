"""Writes of the lifecycle controllers, each against the very version that was read."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from harbourmaster.api.patches import JsonPatch
from harbourmaster.kube.errors import ForbiddenError, InvalidError, ServerError

if TYPE_CHECKING:
    from harbourmaster.api.metadata import Metadata
    from harbourmaster.api.resources import Resource
    from harbourmaster.kube.client import Client
    from harbourmaster.kube.errors import ApiError


_LASTING: Final = (ForbiddenError, InvalidError, ServerError)
_ENDING: Final = "because it is being terminated"
"""The API server's words about a namespace; it has no code of its own."""


def is_end_of_namespace(error: ApiError) -> bool:
    """Whether the namespace is being deleted, which is not reported: its objects go with it."""
    return isinstance(error, ForbiddenError) and _ENDING in error.message


def is_lasting(error: ApiError) -> bool:
    """Whether the error lasts, so that people should know."""
    return isinstance(error, _LASTING) or error.status == HTTPStatus.BAD_REQUEST


def is_final(error: ApiError) -> bool:
    """Whether no later attempt can do better: the object itself is wrong.

    Admission may refuse with the same code, and may change its mind.
    """
    if error.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return True
    is_wrong = isinstance(error, InvalidError) or error.status == HTTPStatus.BAD_REQUEST
    return is_wrong and "denied" not in error.message


async def patch_object(
    client: Client,
    resource: Resource,
    metadata: Metadata,
    operations: list[dict[str, Any]],
    subresource: str | None = None,
) -> bytes:
    """Patch the object with this metadata; returns what is stored.

    Raises ConflictError if the object has changed since it was read, and any other ApiError.
    """
    return await client.patch(
        resource,
        metadata.name,
        JsonPatch([*precondition(metadata), *operations]),
        metadata.namespace,
        subresource=subresource,
    )


async def write_status(
    client: Client, resource: Resource, metadata: Metadata, status: object
) -> bytes:
    """Replace the whole status, as ``patch_object`` does."""
    operation = {"op": "add", "path": "/status", "value": status}
    return await patch_object(client, resource, metadata, [operation], "status")


def precondition(metadata: Metadata) -> list[dict[str, Any]]:
    """The operations that make any other version, or another object of that name, a conflict."""
    return [
        {"op": "test", "path": "/metadata/uid", "value": metadata.uid},
        {
            "op": "replace",
            "path": "/metadata/resourceVersion",
            "value": metadata.resource_version,
        },
    ]
