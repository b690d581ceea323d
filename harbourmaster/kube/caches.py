"""The caches of a controller: one for each kind, with indexes, and listeners for its changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec.structs import replace

from harbourmaster.api.metadata import HasMetadata, choose_definition, compact
from harbourmaster.kube.reflector import Reflector
from harbourmaster.kube.store import Store
from harbourmaster.telemetry.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from harbourmaster.api.resources import Resource
    from harbourmaster.kube.client import Client
    from harbourmaster.kube.faults import WatchMetrics


T = TypeVar("T")
D = TypeVar("D", bound=HasMetadata)
Listener = Callable[[frozenset[str]], None]
"""Takes the keys that changed."""

_log = get_logger("caches")


class Cache(Reflector[T]):
    """A reflector with several listeners. ``options`` are those of a Reflector."""

    def __init__(
        self,
        client: Client,
        resource: Resource,
        decode: Callable[[msgspec.Raw], T],
        indexes: Mapping[str, Callable[[T], Iterable[Any]]] | None = None,
        *,
        store: Store[T] | None = None,
        **options: Any,  # noqa: ANN401 - of a Reflector
    ) -> None:
        """``store`` replaces the one that is made with ``indexes``."""
        self.resource = resource
        self._listeners: list[Listener] = []
        store = Store(indexes) if store is None else store
        super().__init__(client, resource, decode, store=store, on_change=self.changed, **options)

    def subscribe(self, listener: Listener) -> None:
        """Call ``listener`` with the keys of each change. Subscribe before the cache runs."""
        self._listeners.append(listener)

    def changed(self, keys: frozenset[str]) -> None:
        """Call all listeners, even if one fails."""
        for listener in self._listeners:
            try:
                listener(keys)
            except Exception:  # noqa: BLE001 - logged with its traceback
                _log.exception("a listener failed", resource=self.name, keys=len(keys))


class Caches:
    """The caches of a controller, made before any of them runs."""

    def __init__(self, client: Client, metrics: WatchMetrics | None = None) -> None:
        self._client = client
        self._metrics = metrics
        self.by_resource: dict[Resource, Cache[Any]] = {}
        """The first cache of each resource."""
        self._all: list[Cache[Any]] = []

    @property
    def reflectors(self) -> tuple[Cache[Any], ...]:
        """All caches."""
        return tuple(self._all)

    def shared(self, sources: Mapping[str, str]) -> dict[str, Cache[Any]]:
        """Caches for the dashboard by its names for them, given the names of attributes here."""
        return {source: getattr(self, name) for source, name in sources.items()}

    def definition(self, cache: Reflector[D], name: str, namespaces: Iterable[str]) -> D | None:
        """Return the object of that name that counts, by ``choose_definition``."""
        return choose_definition(cache.store.get(f"{place}/{name}") for place in namespaces)

    def cache(
        self,
        resource: Resource,
        decode: Callable[[msgspec.Raw], T],
        indexes: Mapping[str, Callable[[T], Iterable[Any]]] | None = None,
        **options: Any,  # noqa: ANN401 - of a Reflector
    ) -> Cache[T]:
        """Add a cache. The second of a resource needs a ``name``."""
        return self.include(
            Cache(self._client, resource, decode, indexes, metrics=self._metrics, **options)
        )

    def include(self, cache: Cache[T]) -> Cache[T]:
        """Add a cache that others read too."""
        self._all.append(cache)
        self.by_resource.setdefault(cache.resource, cache)
        return cache


def decoder(kind: type[T]) -> Callable[[msgspec.Raw], T]:
    """A function that decodes JSON into that class, with the metadata that caches keep."""
    decode = msgspec.json.Decoder(kind).decode

    def read(raw: msgspec.Raw) -> T:
        found: Any = decode(raw)
        metadata = compact(found.metadata)
        kept: T = found if metadata is found.metadata else replace(found, metadata=metadata)
        return kept

    return read
