"""Creates and reads single objects of the model, and knows them before the watch brings them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import msgspec

from harbourmaster.kube.errors import NotFoundError

if TYPE_CHECKING:
    from harbourmaster.api.resources import Resource
    from harbourmaster.kube.client import Client
    from harbourmaster.kube.store import Store

T = TypeVar("T")

_PATIENCE: Final = 5.0
"""Seconds in which a watch brings what was written; afterwards the cache counts."""


async def create(client: Client, resource: Resource, obj: T, namespace: str) -> T:
    """Create an object of the model; returns what is stored. Raises ApiError."""
    body = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        **msgspec.to_builtins(obj),
    }
    answer = await client.create(resource, body, namespace)
    return msgspec.json.decode(answer, type=type(obj))


async def fetch(
    client: Client, resource: Resource, kind: type[T], name: str, namespace: str
) -> T | None:
    """The object as the API server has it now; None if it does not exist. Raises ApiError."""
    try:
        answer = await client.get(resource, name, namespace)
    except NotFoundError:
        return None
    return msgspec.json.decode(answer, type=kind)


class Written(Generic[T]):
    """A store together with our own writes that its watch has not brought yet.

    Otherwise each of a thousand pods would create what the first one has just created.
    """

    def __init__(self, store: Store[T]) -> None:
        self._store = store
        # By key: the stored object at the time, what was written, and until when that counts.
        self._ahead: dict[str, tuple[T | None, T, float]] = {}

    def get(self, key: str) -> T | None:
        """The object as far as we know."""
        held = self._store.get(key)
        ahead = self._ahead.get(key)
        if ahead is None:
            return held
        before, after, until = ahead
        if held is before and asyncio.get_running_loop().time() < until:
            return after
        del self._ahead[key]
        return held

    def put(self, key: str, obj: T) -> None:
        """Note the object in an answer of the API server."""
        now = asyncio.get_running_loop().time()
        # Nobody may ask again for what was deleted soon.
        self._ahead = {name: held for name, held in self._ahead.items() if held[2] > now}
        self._ahead[key] = (self._store.get(key), obj, now + _PATIENCE)
