"""Metrics of the watches: cached objects, their age, and errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from prometheus_client import Counter
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence, Sized

    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

CACHE_AGE: Final = "harbourmaster_cache_age_seconds"
CACHED_OBJECTS: Final = "harbourmaster_cached_objects"
RESOURCE_ABSENT: Final = "harbourmaster_resource_absent"
WATCH_LISTS: Final = "harbourmaster_watch_lists_total"
WATCH_EVENTS: Final = "harbourmaster_watch_events_total"
WATCH_FAILURES: Final = "harbourmaster_watch_failures_total"
UNDECODABLE_OBJECTS: Final = "harbourmaster_undecodable_objects_total"


class Mirror(Protocol):
    """What is shown of a reflector."""

    name: str
    absent: bool
    last_contact: float
    """By the event loop's clock; minus infinity before the first."""

    @property
    def store(self) -> Sized:
        """What it holds."""


class WatchTallies(Collector):
    """Counts for all watches of a process, and gauges that are read from the mirrors when asked."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._mirrors: Sequence[Mirror] = ()
        self._clock: Callable[[], float] = float
        label = ("resource",)
        self._lists = Counter(
            WATCH_LISTS,
            "Complete lists: the first, and one after each gap.",
            label,
            registry=registry,
        )
        self._events = Counter(
            WATCH_EVENTS, "Watch events, including bookmarks.", label, registry=registry
        )
        self._failures = Counter(
            WATCH_FAILURES,
            "Failed lists and watches.",
            ("resource", "error"),
            registry=registry,
        )
        self._undecodable = Counter(
            UNDECODABLE_OBJECTS, "Objects that could not be decoded.", label, registry=registry
        )
        registry.register(self)

    def follow(self, mirrors: Sequence[Mirror], clock: Callable[[], float]) -> None:
        """Show these, their ages by this clock."""
        self._mirrors = mirrors
        self._clock = clock

    def listed(self, resource: str, objects: int, seconds: float) -> None:  # noqa: ARG002
        """Count a list that was taken whole."""
        self._lists.labels(resource).inc()

    def events(self, resource: str, count: int) -> None:
        """Count events."""
        self._events.labels(resource).inc(count)

    def failed(self, resource: str, kind: str) -> None:
        """Count a fault by its class."""
        self._failures.labels(resource, kind).inc()

    def undecodable(self, resource: str) -> None:
        """Count an object that could not be read."""
        self._undecodable.labels(resource).inc()

    def collect(self) -> Iterable[Metric]:
        """The current gauges."""
        age = GaugeMetricFamily(
            CACHE_AGE, "Time since the last message of a watch.", labels=["resource"]
        )
        objects = GaugeMetricFamily(CACHED_OBJECTS, "Objects in the cache.", labels=["resource"])
        absent = GaugeMetricFamily(
            RESOURCE_ABSENT, "1 if the API server does not serve the kind.", labels=["resource"]
        )
        now = self._clock()
        for mirror in self._mirrors:
            age.add_metric([mirror.name], now - mirror.last_contact)
            objects.add_metric([mirror.name], len(mirror.store))
            absent.add_metric([mirror.name], float(mirror.absent))
        return (age, objects, absent)
