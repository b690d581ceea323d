"""What a controller knows of the cluster: one mirror for each kind, and who is told of changes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct

from harbourmaster.kube.reflector import Reflector
from harbourmaster.kube.store import Store
from harbourmaster.telemetry.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from harbourmaster.api.resources import Resource
    from harbourmaster.kube.client import Client
    from harbourmaster.kube.faults import WatchMetrics

T = TypeVar("T")


class SharedCache(Struct, frozen=True):
    """A cache of a controller that pages read too."""

    source: str
    """Its name among the sources of pages."""
    cache: Reflector[Any]
    subscribe: Callable[[Callable[[frozenset[str]], None]], None]
    """Takes a listener for the keys that change."""


class Mirrors:
    """The mirrors of a controller. ``subscribe`` before they run."""

    def __init__(self, client: Client, metrics: WatchMetrics | None = None) -> None:
        self._client = client
        self._metrics = metrics
        self._log = get_logger("caches")
        self._listeners: dict[str, list[Callable[[frozenset[str]], None]]] = defaultdict(list)
        self.mirrors: dict[Resource, Reflector[Any]] = {}
        self._all: list[Reflector[Any]] = []

    @property
    def reflectors(self) -> tuple[Reflector[Any], ...]:
        """All mirrors."""
        return tuple(self._all)

    def subscribe(self, mirror: Reflector[Any], listener: Callable[[frozenset[str]], None]) -> None:
        """Have ``listener`` told the keys that changed in ``mirror``."""
        self._listeners[mirror.name].append(listener)

    def shared(self, sources: Mapping[str, str]) -> list[SharedCache]:
        """Caches that pages read too: what pages call them, and the attributes here."""
        return [
            SharedCache(source, getattr(self, name), partial(self.subscribe, getattr(self, name)))
            for source, name in sources.items()
        ]

    def definition(self, mirror: Reflector[T], name: str, namespaces: Iterable[str]) -> T | None:
        """The object of that name in the first of the namespaces that has it."""
        for namespace in namespaces:
            found = mirror.store.get(f"{namespace}/{name}")
            if found is not None:
                return found
        return None

    def mirror(
        self,
        resource: Resource,
        decode: Callable[[msgspec.Raw], T],
        indexes: Mapping[str, Callable[[T], Iterable[Any]]] | None = None,
        *,
        field_selector: str = "",
        metadata_only: bool = False,
        name: str = "",
    ) -> Reflector[T]:
        """One more mirror; to be made before any runs. The second of a resource needs a name."""
        mirror: Reflector[T] = Reflector(
            self._client,
            resource,
            decode,
            store=Store(indexes),
            field_selector=field_selector,
            on_change=partial(self._changed, name or resource.plural),
            metrics=self._metrics,
            metadata_only=metadata_only,
            name=name,
        )
        self._all.append(mirror)
        self.mirrors.setdefault(resource, mirror)
        return mirror

    def _changed(self, name: str, keys: frozenset[str]) -> None:
        for listener in self._listeners[name]:
            try:
                listener(keys)
            except Exception:  # noqa: BLE001 - the others are to be told nevertheless
                self._log.exception("a listener failed", resource=name, keys=len(keys))


def decoder(kind: type[T]) -> Callable[[msgspec.Raw], T]:
    """Makes objects of that class of their JSON."""
    return msgspec.json.Decoder(kind).decode
