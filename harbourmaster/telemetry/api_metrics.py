"""Metrics of requests to servers, and of the watches at the API server."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from prometheus_client import Counter, Histogram
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence, Sized

    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

NO_ANSWER: Final = "none"
"""The code of a request without a response."""
_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Seconds: up to the time after which a client gives up."""


class AnswerCounters:
    """Counts answers by outcome, and observes their durations. Labels name no object and no server.

    ``answers`` and ``durations`` are names and texts of metrics; ``labels`` are the names of the
    labels for the kind of request and for the outcome.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        labels: tuple[str, str],
        buckets: Sequence[float],
        answers: tuple[str, str],
        durations: tuple[str, str],
    ) -> None:
        self._answers = Counter(*answers, labels, registry=registry)
        self._durations = Histogram(*durations, labels[:1], buckets=buckets, registry=registry)

    def count_answer(self, what: str, outcome: str, seconds: float) -> None:
        """Count the answer to a request of the kind ``what``, or that there was none."""
        self._answers.labels(what, outcome).inc()
        self._durations.labels(what).observe(seconds)


class RequestCounters(AnswerCounters):
    """Counts requests of all clients of a process; ``note`` is the observer of a client."""

    def __init__(self, registry: CollectorRegistry) -> None:
        text = "Time until the response headers or the failure."
        super().__init__(
            registry,
            ("verb", "code"),
            _BUCKETS,
            ("harbourmaster_api_requests_total", "Requests to the API server."),
            ("harbourmaster_api_request_duration_seconds", text),
        )

    def note(self, verb: str, status: int, seconds: float) -> None:
        """Count a request; ``status`` 0 means no response."""
        self.count_answer(verb, str(status) if status else NO_ANSWER, seconds)


class WatchState(Protocol):
    """The state of a reflector that the gauges show."""

    name: str
    absent: bool
    last_contact: float
    """Time of the last message, by the event loop's clock; minus infinity before the first."""

    @property
    def store(self) -> Sized:
        """The cached objects."""


class WatchCollector(Collector):
    """Counts for all watches of a process, and gauges that are computed when they are collected."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._watches: Sequence[WatchState] = ()
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

    def follow(self, watches: Sequence[WatchState], clock: Callable[[], float]) -> None:
        """Show these watches, with their ages by ``clock``."""
        self._watches = watches
        self._clock = clock

    def count_list(self, resource: str, objects: int, seconds: float) -> None:  # noqa: ARG002
        """Count a complete list."""
        self._lists.labels(resource).inc()

    def count_events(self, resource: str, count: int) -> None:
        """Count events."""
        self._events.labels(resource).inc(count)

    def count_failure(self, resource: str, kind: str) -> None:
        """Count a failed list or watch; ``kind`` is the class of its error."""
        self._failures.labels(resource, kind).inc()

    def count_undecodable(self, resource: str) -> None:
        """Count an object that could not be decoded."""
        self._undecodable.labels(resource).inc()

    def collect(self) -> Iterable[Metric]:
        """Return the current gauges."""
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
        for watch in self._watches:
            age.add_metric([watch.name], now - watch.last_contact)
            objects.add_metric([watch.name], len(watch.store))
            absent.add_metric([watch.name], float(watch.absent))
        return (age, objects, absent)
