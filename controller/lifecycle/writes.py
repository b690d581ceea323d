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
"""So the API server says it of a namespace; there is no code for it."""


def is_end_of_namespace(error: ApiError) -> bool:
    """Whether the namespace is being deleted: all that is in it goes, and nobody need know."""
    return isinstance(error, ForbiddenError) and _ENDING in error.message


def is_lasting(error: ApiError) -> bool:
    """Whether it is more than a moment's trouble, so that people should know."""
    return isinstance(error, _LASTING) or error.status == HTTPStatus.BAD_REQUEST


def is_final(error: ApiError) -> bool:
    """Whether no later attempt can do better: the object itself is wrong.

    Admission may refuse with the same code, and may change its mind.
    """
    if error.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return True
    is_wrong = isinstance(error, InvalidError) or error.status == HTTPStatus.BAD_REQUEST
    return is_wrong and "denied" not in error.message


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
