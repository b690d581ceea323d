"""Reads and writes of single objects by the lifecycle controllers.

A write of an existing object is rejected unless it is in the version that was read.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import msgspec

from harbourmaster.api.metadata import D
from harbourmaster.api.patches import JsonPatch
from harbourmaster.kube.errors import ForbiddenError, InvalidError, NotFoundError, ServerError

if TYPE_CHECKING:
    from harbourmaster.api.metadata import HasMetadata, Metadata
    from harbourmaster.api.resources import Resource
    from harbourmaster.kube.client import Client
    from harbourmaster.kube.errors import ApiError
    from harbourmaster.kube.store import Store


_LASTING: Final = (ForbiddenError, InvalidError, ServerError)
_ENDING: Final = "because it is being terminated"
"""The text of the API server about a namespace that is being deleted; it has no code."""


def is_end_of_namespace(error: ApiError) -> bool:
    """Whether the namespace is being deleted, which is not reported."""
    return isinstance(error, ForbiddenError) and _ENDING in error.message


def is_lasting(error: ApiError) -> bool:
    """Whether the error lasts, so that people should know."""
    return isinstance(error, _LASTING) or error.status == HTTPStatus.BAD_REQUEST


def is_final(error: ApiError) -> bool:
    """Whether no later attempt can succeed, because the object itself is wrong.

    Admission may refuse with the same code, and may accept the object later.
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
    """Patch the object with this metadata; return its stored JSON.

    Raises ConflictError if the object has changed since it was read, and any other ApiError.
    """
    uid, version = metadata.uid, metadata.resource_version
    # Any other version or object of that name is a conflict.
    precondition = [
        {"op": "test", "path": "/metadata/uid", "value": uid},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
    ]
    return await client.patch(
        resource,
        metadata.name,
        JsonPatch([*precondition, *operations]),
        metadata.namespace,
        subresource=subresource,
    )


async def write_status(
    client: Client, resource: Resource, metadata: Metadata, status: object
) -> bytes:
    """Replace the whole status, like ``patch_object``."""
    operation = {"op": "add", "path": "/status", "value": status}
    return await patch_object(client, resource, metadata, [operation], "status")


T = TypeVar("T")

_PATIENCE: Final = 5.0
"""Seconds in which a watch brings a write; afterwards the cache counts."""


async def create(client: Client, resource: Resource, obj: T, namespace: str) -> T:
    """Create an object of the model; return it as it is stored. Raises ApiError."""
    body = {**resource.type_fields, **msgspec.to_builtins(obj)}
    answer = await client.create(resource, body, namespace)
    return msgspec.json.decode(answer, type=type(obj))


async def fetch(
    client: Client, resource: Resource, kind: type[T], name: str, namespace: str
) -> T | None:
    """Read an object from the API server; return None if it does not exist. Raises ApiError."""
    try:
        answer = await client.get(resource, name, namespace)
    except NotFoundError:
        return None
    return msgspec.json.decode(answer, type=kind)


class WrittenObjects(Generic[D]):
    """A store together with our own writes that its watch has not brought yet.

    Otherwise each of a thousand pods would create what the first one has just created.
    """

    def __init__(self, store: Store[D]) -> None:
        self._store = store
        # By key: the resource versions that were replaced ("" for none), what was written, and
        # until when that counts.
        self._ahead: dict[str, tuple[frozenset[str], D | None, float]] = {}
        self.keys = store.keys

    def get(self, key: str) -> D | None:
        """Return the newest known object, or None."""
        held = self._store.get(key)
        ahead = self._ahead.get(key)
        if ahead is None:
            return held
        replaced, after, until = ahead
        if _revision(held) in replaced and asyncio.get_running_loop().time() < until:
            return after
        del self._ahead[key]
        return held

    def put(self, key: str, obj: D | None) -> None:
        """Record the object in an answer of the API server; None for a deleted one."""
        replaced = frozenset((_revision(self._store.get(key)),))
        if key in self._ahead:
            former, after, _ = self._ahead[key]
            replaced |= former | {_revision(after)}
        now = asyncio.get_running_loop().time()
        # Nobody may ask again for what was deleted soon.
        self._ahead = {name: held for name, held in self._ahead.items() if held[2] > now}
        self._ahead[key] = (replaced, obj, now + _PATIENCE)


def _revision(obj: HasMetadata | None) -> str:
    return obj.metadata.resource_version if obj is not None else ""
