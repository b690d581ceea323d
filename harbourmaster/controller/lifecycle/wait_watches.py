"""Watches the objects for which pods wait: one watch for each kind and namespace that is needed.

A change costs time for the items that name the changed object, whatever else is waited for.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from msgspec import Struct

from harbourmaster.api import resources
from harbourmaster.kube.reflector import Reflector
from harbourmaster.lifecycle.gated_pods import items_of_pod
from harbourmaster.lifecycle.wait_cycles import wait_cycles, workload_of_pod
from harbourmaster.lifecycle.wait_items import (
    LOOKED_UP,
    MISSING,
    NAMED,
    ItemReport,
    Obstacle,
    report_on,
    report_on_label,
    resources_of,
    unmet_text,
)
from harbourmaster.lifecycle.wait_targets import SERVICE_LABEL, Target, target_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping

    from harbourmaster.api.resources import Resource
    from harbourmaster.gates.waits import WaitItem
    from harbourmaster.kube.client import Client
    from harbourmaster.kube.faults import WatchMetrics
    from harbourmaster.lifecycle.gated_pods import Pod

    _Place = tuple[Resource, str | None]
    """A kind, and a namespace unless it has none."""
    _Held = tuple[str, WaitItem]
    """A namespace, and an item for which pods wait in it."""

K = TypeVar("K")
V = TypeVar("V")

BY_ITEM: Final = "item"
"""Index of waiting pods by (namespace, item) for which they wait."""
MOST_ITEMS: Final = 1000
"""Maximum different items of a namespace; pods that name further ones are blocked."""
MOST_COSTLY: Final = 100
"""Maximum items for Services, by label or by field, which take more time."""
LINGER: Final = 60.0
"""Seconds for which an unused watch is kept."""
_COMPARED: Final = 500
"""Maximum workloads of a namespace among which cycles are searched."""
_TOO_MANY: Final = "is one item too many in this namespace: wait for fewer different objects"
BY_LABEL: Final = "label"
"""Index of watched pods and EndpointSlices by their labels, as pairs."""


class _Watch(Struct, eq=False):
    cache: Reflector[Target]
    task: asyncio.Task[None]
    whole: frozenset[str]
    """The names of objects that the watch keeps whole, because an item tests a field."""
    known: dict[str, Target] = {}
    """The last reported objects, by key."""


class _WaitingPod(NamedTuple):
    workload: tuple[str, str]
    items: list[_Held]


class WaitWatches:
    """Reports on the items of all waiting pods, while ``run`` runs."""

    def __init__(
        self,
        client: Client,
        pods: Reflector[Pod],
        kinds: Mapping[str, Resource],
        metrics: WatchMetrics | None = None,
    ) -> None:
        """Create the watches; ``kinds`` are those that pods may wait for, by name."""
        self._client = client
        self._pods = pods
        self._kinds = kinds
        self._metrics = metrics
        self._listeners: list[Callable[[frozenset[str]], None]] = []
        # Waiting pods by key, and the keys of those of one workload.
        self._waiting: dict[str, _WaitingPod] = {}
        self._workloads: defaultdict[str, defaultdict[tuple[str, str], set[str]]]
        self._workloads = defaultdict(lambda: defaultdict(set))
        # Items: how many pods have each, which are about a place, or about an object there.
        self._counts: Counter[_Held] = Counter()
        self._items: defaultdict[_Place, set[_Held]] = defaultdict(set)
        self._costly: Counter[str] = Counter()
        # By namespace, those that are too many.
        self._excess: defaultdict[str, dict[_Held, None]] = defaultdict(dict)
        self._marked: defaultdict[tuple[_Place, Hashable], set[_Held]] = defaultdict(set)
        # Of items by label: the pods that have it, and whether they are as they should.
        self._labelled: defaultdict[_Held, dict[str, bool]] = defaultdict(dict)
        self._reports: defaultdict[str, dict[WaitItem, ItemReport]] = defaultdict(dict)
        # Those that were found since something changed.
        self._cycles: dict[str, Mapping[tuple[str, str], str]] = {}
        self._watches: dict[_Place, _Watch] = {}
        self._idle: dict[_Place, float] = {}
        self._due = asyncio.Event()
        pods.subscribe(self._pods_changed)

    def subscribe(self, listener: Callable[[frozenset[str]], None]) -> None:
        """Call ``listener`` with the keys of pods whose items have changed their state."""
        self._listeners.append(listener)

    def reports(self, namespace: str) -> Mapping[WaitItem, ItemReport]:
        """Return the reports on the items of the pods of a namespace."""
        return self._reports.get(namespace, {})

    def explained_reports(self, pod: Pod) -> Mapping[WaitItem, ItemReport]:
        """Return the reports of a pod, with suggestions for the first missing objects."""
        known = self.reports(pod.namespace)
        items = pod.wait_conditions.items if pod.wait_conditions is not None else ()
        explained_reports = {item: known[item] for item in items if item in known}
        missing = (item for item, report in explained_reports.items() if report.text == MISSING)
        targets = WatchedTargets(self, pod.namespace)
        for item in list(islice(missing, NAMED)):
            explained_reports[item] = report_on(item, self._kinds, targets, suggests=True)
        return explained_reports

    def cycles(self, namespace: str) -> Mapping[tuple[str, str], str]:
        """Return the cycles of waits in a namespace by workload, as ``wait_cycles`` does."""
        if namespace not in self._cycles:
            workloads = islice(self._workloads.get(namespace, {}).values(), _COMPARED)
            first_pods = (self._pods.store.get(next(iter(workload))) for workload in workloads)
            pods = [pod for pod in first_pods if pod is not None]
            targets = WatchedTargets(self, namespace)
            self._cycles[namespace] = wait_cycles(pods, self.reports(namespace), targets)
        return self._cycles[namespace]

    def find_cache(self, resource: Resource, namespace: str) -> Reflector[Target] | None:
        """Return the cache of a kind for a namespace, or None if it is not watched."""
        watch = self._watches.get((resource, namespace if resource.namespaced else None))
        return watch.cache if watch is not None else None

    async def run(self) -> None:
        """Watch the needed objects until cancelled."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                await self._due.wait()
                self._due.clear()
                for place in self._watches.keys() - self._items.keys():
                    left = self._idle.setdefault(place, loop.time()) + LINGER - loop.time()
                    if left > 0:
                        loop.call_later(left, self._due.set)
                    else:
                        self._watches.pop(place).task.cancel()
                        del self._idle[place]
                for place, items in self._items.items():
                    self._idle.pop(place, None)
                    whole = frozenset(item.name for _, item in items if item.test == "field")
                    before = self._watches.get(place)
                    if before is None or not whole <= before.whole:
                        if before is not None:
                            before.task.cancel()
                        self._watches[place] = self._watch(place, whole)
        finally:
            for watch in self._watches.values():
                watch.task.cancel()
            self._watches.clear()

    def _watch(self, place: _Place, whole: frozenset[str]) -> _Watch:
        resource, namespace = place
        options: dict[str, Any] = {
            "namespace": namespace,
            "name": f"waited-{resource.plural}",
            "metrics": self._metrics,
            # All that is asked of them is whether they exist.
            "metadata_only": resource in {resources.CONFIG_MAPS, resources.SECRETS} and not whole,
            "on_state": lambda: self._report_items(self._items.get(place, ())),
        }
        decode = partial(target_of, resource, whole=whole)
        indexes = {BY_LABEL: _labels} if resource in {resources.PODS, resources.SLICES} else None
        cache: Reflector[Target] = Reflector(self._client, resource, decode, indexes, **options)
        watch = _Watch(cache, asyncio.create_task(cache.run()), whole)
        cache.subscribe(partial(self._targets_changed, place, watch))
        return watch

    def _pods_changed(self, keys: Iterable[str]) -> None:
        for key in keys:
            pod = self._pods.store.get(key)
            items = items_of_pod(pod) if pod is not None else []
            namespace = key.partition("/")[0]
            self._cycles.pop(namespace, None)
            before = self._waiting.pop(key, None)
            if before is not None:
                _discard(self._workloads[namespace], before.workload, key)
                if not self._workloads[namespace]:
                    del self._workloads[namespace]
            if pod is not None and items:
                self._waiting[key] = after = _WaitingPod(workload_of_pod(pod), items)
                self._workloads[namespace][after.workload].add(key)
            known = before.items if before is not None else []
            if items != known:
                for held in items:
                    self._take(held)
                for held in known:
                    self._drop(held)

    def _take(self, held: _Held) -> None:
        self._counts[held] += 1
        namespace, item = held
        if self._counts[held] > 1:
            return
        is_costly = _is_costly(item)
        many = len(self._reports[namespace]) - len(self._excess.get(namespace, ()))
        if many >= MOST_ITEMS or (is_costly and self._costly[namespace] >= MOST_COSTLY):
            self._reports[namespace][item] = ItemReport(item.text, "Blocked", _TOO_MANY)
            self._excess[namespace][held] = None
            return
        self._admit(held)
        self._report_item(held)

    def _admit(self, held: _Held) -> None:
        """Watch the objects that an item names."""
        namespace, item = held
        self._costly[namespace] += _is_costly(item)
        for place in self._places(held):
            self._items[place].add(held)
            self._marked[place, item.label or item.name].add(held)
            self._due.set()

    def _drop(self, held: _Held) -> None:
        self._counts[held] -= 1
        if self._counts[held]:
            return
        namespace, item = held
        del self._counts[held], self._reports[namespace][item]
        self._labelled.pop(held, None)
        if not self._reports[namespace]:
            del self._reports[namespace]
        excess = self._excess.get(namespace, {})
        if held in excess:
            del excess[held]
            return
        is_costly = _is_costly(item)
        self._costly[namespace] -= is_costly
        for place in self._places(held):
            _discard(self._items, place, held)
            _discard(self._marked, (place, item.label or item.name), held)
            self._due.set()
        if not self._costly[namespace]:
            del self._costly[namespace]
        following = next(
            (waiting for waiting in excess if not is_costly or _is_costly(waiting[1])), None
        )
        if following is not None:
            del excess[following]
            self._admit(following)
            # Nothing else wakes its pods, if it is met already.
            self._report_items((following,))
        if not excess:
            self._excess.pop(namespace, None)

    def _places(self, held: _Held) -> Iterator[_Place]:
        namespace, item = held
        for resource in resources_of(item, self._kinds):
            yield resource, namespace if resource.namespaced else None

    def _targets_changed(self, place: _Place, watch: _Watch, keys: frozenset[str]) -> None:
        marks: set[Hashable] = set()
        for key in keys:
            now = watch.cache.store.get(key)
            for target in (watch.known.pop(key, None), now):
                marks.update(_marks(place[0], target) if target is not None else ())
            if now is not None:
                watch.known[key] = now
        held = {held for mark in marks for held in self._marked.get((place, mark), ())}
        for namespace, _ in held:
            self._cycles.pop(namespace, None)
        self._report_items(held, keys)

    def _report_items(self, items: Iterable[_Held], keys: Collection[str] | None = None) -> None:
        """Report on the items, and call the listeners for those with another state."""
        changed = [held for held in items if self._report_item(held, keys)]
        pods = self._pods.store
        keys_of_pods = frozenset(
            pod.key for held in changed for pod in pods.by_index(BY_ITEM, held)
        )
        for listener in self._listeners if keys_of_pods else ():
            listener(keys_of_pods)

    def _report_item(self, held: _Held, keys: Collection[str] | None = None) -> bool:
        """Report on an item; return whether its state has changed.

        ``keys`` are those of the objects that changed; None for all.
        """
        namespace, item = held
        targets = WatchedTargets(self, namespace)
        report = None
        cache = self.find_cache(resources.PODS, namespace) if item.label is not None else None
        if item.label is not None and cache is not None:
            is_met_by_pod = self._labelled[held]
            if keys is None:
                is_met_by_pod.clear()
                alike = cache.store.by_index(BY_LABEL, item.label)
                keys = [f"{namespace}/{target.name}" for target in alike]
            for key in keys:
                pod = cache.store.get(key)
                is_met_by_pod.pop(key, None)
                if pod is not None and pod.labels.get(item.label[0]) == item.label[1]:
                    is_met_by_pod[key] = not unmet_text(item, resources.PODS, pod, targets)
            if targets.obstacle(resources.PODS) is None:
                report = report_on_label(item, is_met_by_pod.values())
        report = report or report_on(item, self._kinds, targets)
        before = self._reports[namespace].get(item)
        self._reports[namespace][item] = report
        return before is None or before.state != report.state


def _discard(index: dict[K, set[V]], key: K, value: V) -> None:
    index[key].discard(value)
    if not index[key]:
        del index[key]


def _is_costly(item: WaitItem) -> bool:
    return item.label is not None or item.test == "field" or item.kind == "service"


def _labels(target: Target) -> Iterable[tuple[str, str]]:
    return target.labels.items()


def _marks(resource: Resource, target: Target) -> Iterable[Hashable]:
    """Return the names and labels by which items may name an object."""
    if resource == resources.SLICES:
        return (target.labels.get(SERVICE_LABEL),)
    return (target.name, *target.labels.items()) if resource == resources.PODS else (target.name,)


class WatchedTargets:
    """Gives ``report_on`` access to the watched objects of a namespace."""

    def __init__(self, watches: WaitWatches, namespace: str) -> None:
        self._watches = watches
        self._namespace = namespace

    def find(self, resource: Resource, name: str) -> Target | None:
        """Return the object of that name, or None."""
        cache = self._watches.find_cache(resource, self._namespace)
        key = f"{self._namespace}/{name}" if resource.namespaced else name
        return cache.store.get(key) if cache is not None else None

    def all(self, resource: Resource) -> Collection[Target]:
        """Return all objects of a kind."""
        cache = self._watches.find_cache(resource, self._namespace)
        return cache.store.values() if cache is not None else ()

    def find_by_label(self, resource: Resource, key: str, value: str) -> Collection[Target]:
        """Return the objects of a kind with that label."""
        cache = self._watches.find_cache(resource, self._namespace)
        return cache.store.by_index(BY_LABEL, (key, value)) if cache is not None else ()

    def obstacle(self, resource: Resource) -> Obstacle | None:
        """Return why the objects of a kind are not known, or None if they are."""
        cache = self._watches.find_cache(resource, self._namespace)
        kind = resource.name
        if cache is None:
            return LOOKED_UP
        if cache.error is not None and cache.is_forbidden:
            text = f"the controller is not allowed to watch {kind}: allow it list and watch"
            return Obstacle("forbidden", text)
        if cache.absent:
            return Obstacle("missing", f"the API server has no {kind}")
        if cache.error is not None or not cache.synced.is_set():
            return Obstacle("unread", cache.error or LOOKED_UP.text)
        return None
