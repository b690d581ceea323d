"""Metrics of the watches: cached objects, their age, and errors."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from prometheus_client import Counter
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence, Sized

    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric


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
        counter = partial(Counter, registry=registry)
        self._lists = counter(
            "harbourmaster_watch_lists_total",
            "Complete lists: the first, and one after each gap.",
            label,
        )
        self._events = counter(
            "harbourmaster_watch_events_total", "Watch events, including bookmarks.", label
        )
        self._failures = counter(
            "harbourmaster_watch_failures_total",
            "Failed lists and watches.",
            ("resource", "error"),
        )
        self._undecodable = counter(
            "harbourmaster_undecodable_objects_total", "Objects that could not be decoded.", label
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
            "harbourmaster_cache_age_seconds",
            "Time since the last message of a watch.",
            labels=["resource"],
        )
        objects = GaugeMetricFamily(
            "harbourmaster_cached_objects", "Objects in the cache.", labels=["resource"]
        )
        absent = GaugeMetricFamily(
            "harbourmaster_resource_absent",
            "1 if the API server does not serve the kind.",
            labels=["resource"],
        )
        now = self._clock()
        for mirror in self._mirrors:
            age.add_metric([mirror.name], now - mirror.last_contact)
            objects.add_metric([mirror.name], len(mirror.store))
            absent.add_metric([mirror.name], float(mirror.absent))
        return (age, objects, absent)
