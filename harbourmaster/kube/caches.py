"""The caches of a controller: one for each kind, with indexes, and listeners for its changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec.structs import replace

from harbourmaster.api.metadata import HasMetadata, choose_definition, compact
from harbourmaster.kube.reflector import Reflector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from harbourmaster.api.resources import Resource
    from harbourmaster.kube.client import Client
    from harbourmaster.kube.faults import WatchMetrics

T = TypeVar("T")
D = TypeVar("D", bound=HasMetadata)


class Caches:
    """The caches of a controller, made before any of them runs."""

    def __init__(self, client: Client, metrics: WatchMetrics | None = None) -> None:
        self._client = client
        self._metrics = metrics
        self.by_resource: dict[Resource, Reflector[Any]] = {}
        """The first cache of each resource."""
        self._all: list[Reflector[Any]] = []

    @property
    def reflectors(self) -> tuple[Reflector[Any], ...]:
        """All reflectors."""
        return tuple(self._all)

    def definition(self, cache: Reflector[D], name: str, namespaces: Iterable[str]) -> D | None:
        """Return the object of that name that counts, by ``choose_definition``."""
        return choose_definition(cache.store.get(f"{place}/{name}") for place in namespaces)

    def cache(
        self,
        resource: Resource,
        decode: Callable[[msgspec.Raw], T],
        indexes: Mapping[str, Callable[[T], Iterable[Any]]] | None = None,
        **options: Any,  # noqa: ANN401 - of a Reflector
    ) -> Reflector[T]:
        """Add a cache. The second of a resource needs a ``name``."""
        return self.include(
            Reflector(self._client, resource, decode, indexes, metrics=self._metrics, **options)
        )

    def include(self, cache: Reflector[T]) -> Reflector[T]:
        """Add a cache that other controllers read too."""
        self._all.append(cache)
        self.by_resource.setdefault(cache.resource, cache)
        return cache


def decoder(kind: type[T]) -> Callable[[msgspec.Raw], T]:
    """Return a function that decodes JSON into a class, with the metadata that caches keep."""
    decode = msgspec.json.Decoder(kind).decode

    def read(raw: msgspec.Raw) -> T:
        obj: Any = decode(raw)
        metadata = compact(obj.metadata)
        compacted: T = obj if metadata is obj.metadata else replace(obj, metadata=metadata)
        return compacted

    return read
