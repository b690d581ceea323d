"""Watches the objects for which pods wait: one watch for each kind and namespace that is needed."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from harbourmaster.api import resources
from harbourmaster.kube.caches import Cache
from harbourmaster.lifecycle.gated_pods import items_of_pod
from harbourmaster.lifecycle.wait_cycles import wait_cycles
from harbourmaster.lifecycle.wait_items import report_on, resources_of
from harbourmaster.lifecycle.wait_targets import Target, target_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from harbourmaster.api.resources import Resource
    from harbourmaster.gates.waits import WaitItem
    from harbourmaster.kube.client import Client
    from harbourmaster.kube.faults import WatchMetrics
    from harbourmaster.lifecycle.gated_pods import Pod
    from harbourmaster.lifecycle.wait_items import ItemReport

    _Place = tuple[Resource, str | None]
    """A kind, and a namespace unless it has none."""

BY_ITEM = "item"
"""Of waiting pods: (namespace, item) for which they wait."""
BY_NAMESPACE = "waits-in"
"""Of pods that wait for objects: their namespace."""


class _Watch(Struct, eq=False):
    cache: Cache[Target]
    task: asyncio.Task[None]
    is_whole: bool
    """Whether it keeps documents, because an item asks for a field."""


class WaitWatches:
    """Answers for the items of all waiting pods, while ``run`` runs."""

    def __init__(
        self,
        client: Client,
        pods: Cache[Pod],
        kinds: Mapping[str, Resource],
        metrics: WatchMetrics | None = None,
    ) -> None:
        """``kinds``: those that may be waited for, as items name them."""
        self._client = client
        self._pods = pods
        self._kinds = kinds
        self._metrics = metrics
        self._listeners: list[Callable[[frozenset[str]], None]] = []
        # Items by the key of their pod, how many pods have each, and which are about a place.
        self._held: dict[str, list[tuple[str, WaitItem]]] = {}
        self._counts: Counter[tuple[str, WaitItem]] = Counter()
        self._items: defaultdict[_Place, set[tuple[str, WaitItem]]] = defaultdict(set)
        self._reports: defaultdict[str, dict[WaitItem, ItemReport]] = defaultdict(dict)
        # Those that were found since something changed.
        self._cycles: dict[str, Mapping[tuple[str, str], str]] = {}
        self._watches: dict[_Place, _Watch] = {}
        self._due = asyncio.Event()
        pods.subscribe(self._pods_changed)

    @property
    def needed(self) -> Collection[_Place]:
        """What is to be watched now."""
        return self._items.keys()

    def subscribe(self, listener: Callable[[frozenset[str]], None]) -> None:
        """Call ``listener`` with the keys of pods whose items stand differently now."""
        self._listeners.append(listener)

    def reports(self, namespace: str) -> Mapping[WaitItem, ItemReport]:
        """How the items of the pods of a namespace stand."""
        return self._reports.get(namespace, {})

    def cycles(self, namespace: str) -> Mapping[tuple[str, str], str]:
        """The cycles of waits in a namespace by workload, as ``wait_cycles`` gives them."""
        if namespace not in self._cycles:
            pods = self._pods.store.by_index(BY_NAMESPACE, namespace)
            targets = _Targets(self, namespace)
            self._cycles[namespace] = wait_cycles(pods, self.reports(namespace), targets)
        return self._cycles[namespace]

    async def run(self) -> None:
        """Watch what is needed, until cancelled."""
        try:
            while True:
                await self._due.wait()
                self._due.clear()
                for place in self._watches.keys() - self._items.keys():
                    self._watches.pop(place).task.cancel()
                for place, items in self._items.items():
                    is_whole = any(item.test == "field" for _, item in items)
                    held = self._watches.get(place)
                    if held is not None and held.is_whole < is_whole:
                        held.task.cancel()
                        held = None
                    if held is None:
                        self._watches[place] = self._watch(place, is_whole=is_whole)
        finally:
            for each in self._watches.values():
                each.task.cancel()
            self._watches.clear()

    def _watch(self, place: _Place, *, is_whole: bool) -> _Watch:
        resource, namespace = place
        options: dict[str, Any] = {
            "namespace": namespace,
            "name": f"waited-{resource.plural}",
            "metrics": self._metrics,
            # All that is asked of them is whether they exist.
            "metadata_only": resource in {resources.CONFIG_MAPS, resources.SECRETS}
            and not is_whole,
            "on_state": partial(self._look_again, place),
        }
        decode = partial(target_of, resource, whole=is_whole)
        cache: Cache[Target] = Cache(self._client, resource, decode, **options)
        cache.subscribe(lambda _keys: self._look_again(place))
        return _Watch(cache, asyncio.create_task(cache.run()), is_whole)

    def _pods_changed(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._cycles.pop(key.partition("/")[0], None)
            pod = self._pods.store.get(key)
            items = items_of_pod(pod) if pod is not None else []
            before = self._held.pop(key, [])
            if items:
                self._held[key] = items
            if items != before:
                for held in items:
                    self._take(held)
                for held in before:
                    self._drop(held)

    def _take(self, held: tuple[str, WaitItem]) -> None:
        self._counts[held] += 1
        if self._counts[held] > 1:
            return
        for place in self._places(held):
            self._items[place].add(held)
            self._due.set()
        self._look(held)

    def _drop(self, held: tuple[str, WaitItem]) -> None:
        self._counts[held] -= 1
        if self._counts[held]:
            return
        namespace, item = held
        del self._counts[held], self._reports[namespace][item]
        if not self._reports[namespace]:
            del self._reports[namespace]
        for place in self._places(held):
            self._items[place].discard(held)
            if not self._items[place]:
                del self._items[place]
                self._due.set()

    def _places(self, held: tuple[str, WaitItem]) -> Iterable[_Place]:
        namespace, item = held
        for each in resources_of(item, self._kinds):
            yield each, namespace if each.namespaced else None

    def _look_again(self, place: _Place) -> None:
        """Report on all items about a place, and tell of those that stand differently."""
        changed = [held for held in self._items.get(place, ()) if self._look(held)]
        for namespace in {namespace for namespace, _ in self._items.get(place, ())}:
            self._cycles.pop(namespace, None)
        pods = self._pods.store
        keys = frozenset(pod.key for held in changed for pod in pods.by_index(BY_ITEM, held))
        for listener in self._listeners if keys else ():
            listener(keys)

    def _look(self, held: tuple[str, WaitItem]) -> bool:
        """Report on an item; returns whether it stands differently."""
        namespace, item = held
        report = report_on(item, self._kinds, _Targets(self, namespace))
        before, self._reports[namespace][item] = self._reports[namespace].get(item), report
        return before != report

    def watched(self, resource: Resource, namespace: str) -> Cache[Target] | None:
        """The cache of a kind for a namespace; None where it is not watched."""
        found = self._watches.get((resource, namespace if resource.namespaced else None))
        return found.cache if found is not None else None


class _Targets:
    """The watched objects, as ``report_on`` reads them."""

    def __init__(self, watches: WaitWatches, namespace: str) -> None:
        self._watches = watches
        self._namespace = namespace

    def named(self, resource: Resource, name: str) -> Target | None:
        cache = self._watches.watched(resource, self._namespace)
        key = f"{self._namespace}/{name}" if resource.namespaced else name
        return cache.store.get(key) if cache is not None else None

    def all(self, resource: Resource) -> Collection[Target]:
        cache = self._watches.watched(resource, self._namespace)
        return cache.store.values() if cache is not None else ()

    def obstacle(self, resource: Resource) -> str:
        cache = self._watches.watched(resource, self._namespace)
        kind = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
        if cache is None:
            return "is being looked up"
        if cache.error is not None and cache.is_forbidden:
            return f"the controller is not allowed to watch {kind}: allow it get, list and watch"
        if cache.absent:
            return f"the API server has no {kind}"
        if not cache.synced.is_set():
            return cache.error or "is being looked up"
        return ""
