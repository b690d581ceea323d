"""Keptn's metrics of applications, workloads, tasks and evaluations (keptn-spec 5.5), and ours.

The counters and histograms are plain additions, once for each object that ends; the gauges are
computed from the caches when they are read. A series ends with the object that it belongs to.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct
from prometheus_client import Counter, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from harbourmaster.controller.objects import round_robin
from harbourmaster.lifecycle.stages import CHECKING, HELD, PAUSED, RELEASING
from harbourmaster.telemetry.cloud_events import CLOUD_EVENT_OUTCOMES
from harbourmaster.telemetry.metrics import Distribution

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

CLOUD_EVENTS: Final = "harbourmaster_cloud_events_total"
GATED_PODS: Final = "harbourmaster_gated_pods"
POD_WAITS: Final = "harbourmaster_pods_waiting_for_objects"
STAGES: Final = "harbourmaster_staged_versions"
EXCESS_PODS: Final = "harbourmaster_held_stage_excess_unavailable_pods"
LATE_CHECKS: Final = "harbourmaster_pre_check_deadlines_exceeded_total"

PENDING: Final = "pending"
BLOCKED: Final = "blocked"

APP: Final = "app"
WORKLOAD: Final = "deployment"
TASK: Final = "task"
EVALUATION: Final = "evaluation"
PROMOTION: Final = "promotion"

SCOPE: Final = "otel_scope_name"
_SCOPE_NAME: Final = "keptn/task"
_LIMIT: Final = 1_000
"""Maximum label sets of one kind, because each line costs 15 µs per scrape. Above it, the namespace
with the most loses its oldest."""
_SPARE: Final = 50
"""Further series of one kind that are kept until the next scrape or search for deleted objects."""
_HISTOGRAMS: Final = 100
"""Number of the latest label sets of one kind that have a histogram, which takes 18 lines."""
SHOWN: Final = 500
"""Maximum label sets of one kind for finished objects in the gauges."""
_BUCKETS: Final = (
    *(0.0, 5.0, 10.0, 25.0, 50.0, 75.0, 100.0, 250.0, 500.0),
    *(750.0, 1000.0, 2500.0, 5000.0, 7500.0, 10000.0),
)
"""Upper bounds in seconds: the defaults of OpenTelemetry, which Keptn uses."""


def _labels(*names: str) -> tuple[str, ...]:
    return tuple(f"keptn_deployment_{name}" for name in names)


_OWNER: Final = _labels("app_name", "app_version", "workload_name", "workload_version")
KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    APP: _labels("app_name", "app_version", "app_namespace"),
    WORKLOAD: _labels("app_name", "workload_name", "workload_version", "workload_namespace"),
    TASK: (*_OWNER, *_labels("task_name", "task_type")),
    EVALUATION: (*_OWNER, *_labels("evaluation_name", "evaluation_type")),
}
"""Labels of running objects, by kind."""
FINISHED: Final[Mapping[str, tuple[str, ...]]] = {
    APP: (*KEYS[APP], *_labels("app_status")),
    WORKLOAD: (*KEYS[WORKLOAD], *_labels("workload_status")),
    TASK: (*KEYS[TASK], *_labels("task_status")),
    EVALUATION: (*KEYS[EVALUATION], *_labels("evaluation_status")),
    PROMOTION: (*KEYS[TASK], *_labels("task_status")),
}
"""Labels of ended objects, by kind: those of running ones, and the state."""
DEPLOYMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    APP: (*KEYS[APP], *_labels("app_previousversion")),
    WORKLOAD: (*KEYS[WORKLOAD], *_labels("workload_previousversion")),
}
"""Labels of the durations and intervals of deployments, by kind."""
_NAMES: Final = {APP: "apps", WORKLOAD: "workloads", TASK: "tasks", EVALUATION: "evaluations"}


class GaugeValues(Struct, frozen=True):
    """The values of the gauges by label values, in the order of KEYS and DEPLOYMENTS."""

    active: Mapping[str, Mapping[tuple[str, ...], int]]
    """Numbers of unfinished objects, by kind; 0 if all have ended."""
    intervals: Mapping[str, Mapping[tuple[str, ...], float]]
    """Seconds from the end of the previous version to the start, for APP and WORKLOAD."""
    durations: Mapping[str, Mapping[tuple[str, ...], float]]
    """Seconds from the start to the end, for APP and WORKLOAD."""
    gated_pods: int
    waiting_pods: Mapping[str, int] = {}
    """Numbers of pods that wait for objects, by PENDING and BLOCKED."""
    stages: Mapping[str, int] = {}
    """Numbers of workload versions by the state of their stage."""
    excess_pods: Mapping[tuple[str, ...], int] = {}
    """Unavailable pods beyond those that a strategy allows, by the namespace and name of a held
    version."""


class GaugeSource(Protocol):
    """Provides the gauges and tells which objects exist."""

    def read_gauges(self) -> GaugeValues:
        """Return the current values."""

    def exists(self, anchor: tuple[str, str]) -> bool:
        """Whether the object of a series exists, given its kind and its key."""


class _Series:
    __slots__ = ("anchors", "duration", "namespace")

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.anchors: set[tuple[str, str]] = set()
        self.duration = Distribution(_BUCKETS)


class LifecycleMetrics(Collector):
    """Collects Keptn's metrics in ``registry``, and those of the caches only for the leader."""

    def __init__(self, registry: CollectorRegistry) -> None:
        # No *_created series, which double the output.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._finished: dict[str, OrderedDict[tuple[str, ...], _Series]] = {
            kind: OrderedDict() for kind in FINISHED
        }
        # How many series of a kind there may be until those of deleted objects are looked for.
        self._sweep_at = dict.fromkeys(FINISHED, _SPARE)
        self._source: GaugeSource | None = None
        self._cloud_events = Counter(
            CLOUD_EVENTS, "CloudEvents by outcome.", ("outcome",), registry=registry
        )
        for outcome in CLOUD_EVENT_OUTCOMES:
            self._cloud_events.labels(outcome)
        self._late = Counter(
            LATE_CHECKS,
            "Workload versions whose checks exceeded scheduler.preCheckDeadlineSeconds.",
            registry=registry,
        )
        registry.register(self)

    def lead(self, source: GaugeSource | None) -> None:
        """Show the state of ``source`` from now on; None if another replica leads."""
        self._source = source

    def count_cloud_event(self, outcome: str) -> None:
        """Count a CloudEvent."""
        self._cloud_events.labels(outcome).inc()

    def count_late_checks(self) -> None:
        """Count a workload version whose checks are late."""
        self._late.inc()

    def count_finished(
        self, kind: str, labels: tuple[str, ...], seconds: float, anchor: tuple[str, str]
    ) -> None:
        """Count an object that has ended after ``seconds``; its series goes with ``anchor``."""
        by_labels = self._finished[kind]
        series = by_labels.get(labels)
        if series is None:
            if len(by_labels) >= self._sweep_at[kind]:
                self._sweep(kind)
            series = by_labels[labels] = _Series(anchor[1].partition("/")[0])
        by_labels.move_to_end(labels)
        series.anchors.add(anchor)
        series.duration.observe(max(seconds, 0.0))

    def _sweep(self, kind: str) -> None:
        """Drop the series of deleted objects, and those beyond the limit."""
        by_labels = self._finished[kind]
        if self._source is not None:
            for labels, series in list(by_labels.items()):
                series.anchors = set(filter(self._source.exists, series.anchors))
                if not series.anchors:
                    del by_labels[labels]
        latest = reversed(by_labels.items())
        for labels, _ in round_robin(latest, lambda item: item[1].namespace)[_LIMIT:]:
            del by_labels[labels]
        self._sweep_at[kind] = min(2 * len(by_labels), _LIMIT) + _SPARE

    def collect(self) -> Iterable[Metric]:
        """The metric families with the current values."""
        for kind, labels in FINISHED.items():
            self._sweep(kind)
            yield self._counts(kind, labels)
            if kind != PROMOTION:
                yield self._seconds(kind, labels)
        running = CounterMetricFamily(
            "keptn_lifecycle_active", "Always 1: the controller runs.", labels=(SCOPE,)
        )
        running.add_metric((_SCOPE_NAME,), 1)
        yield running
        yield from _of_caches(self._source.read_gauges() if self._source is not None else _NOTHING)

    def _counts(self, kind: str, labels: tuple[str, ...]) -> Metric:
        family = CounterMetricFamily(
            f"keptn_{kind}_count", "Objects that have ended.", labels=(*labels, SCOPE)
        )
        for values, series in self._finished[kind].items():
            family.add_metric((*values, _SCOPE_NAME), series.duration.count)
        return family

    def _seconds(self, kind: str, labels: tuple[str, ...]) -> Metric:
        family = HistogramMetricFamily(
            f"keptn_{kind}_duration_seconds", "Duration of ended objects.", labels=(*labels, SCOPE)
        )
        latest = reversed(self._finished[kind].items())
        for values, series in round_robin(latest, lambda item: item[1].namespace)[:_HISTOGRAMS]:
            duration = series.duration
            family.add_metric((*values, _SCOPE_NAME), duration.buckets(), duration.total)
        return family


_NOTHING: Final = GaugeValues({}, {}, {}, 0)


def _of_caches(now: GaugeValues) -> Iterable[Metric]:
    for kind, labels in KEYS.items():
        yield _gauge(
            f"keptn_{kind}_active", f"How many {_NAMES[kind]} run.", labels, now.active.get(kind)
        )
    for kind, labels in DEPLOYMENTS.items():
        yield _gauge(
            f"keptn_{kind}_deploymentinterval",
            "Seconds from the end of the previous version to the start of this one.",
            labels,
            now.intervals.get(kind),
        )
        yield _gauge(
            f"keptn_{kind}_deploymentduration",
            "Seconds from the start of this version to its end.",
            labels,
            now.durations.get(kind),
        )
    yield GaugeMetricFamily(
        GATED_PODS,
        "Pods that wait behind our gate or in their scheduler.",
        value=now.gated_pods,
    )
    waiting_pods = GaugeMetricFamily(POD_WAITS, "Pods that wait for objects.", labels=("state",))
    for state in (PENDING, BLOCKED):
        waiting_pods.add_metric((state,), now.waiting_pods.get(state, 0))
    yield waiting_pods
    text = "Workload versions by the state of their stage."
    stages = GaugeMetricFamily(STAGES, text, labels=("state",))
    for state in (RELEASING, PAUSED, CHECKING, HELD):
        stages.add_metric((state,), now.stages.get(state, 0))
    yield stages
    text = "Unavailable pods beyond those that the strategy of a held version's owner allows."
    excess_pods = GaugeMetricFamily(EXCESS_PODS, text, labels=("version_namespace", "version"))
    for version, number in now.excess_pods.items():
        excess_pods.add_metric(version, number)
    yield excess_pods


def _gauge(
    name: str,
    text: str,
    labels: tuple[str, ...],
    samples: Mapping[tuple[str, ...], float] | None,
) -> Metric:
    family = GaugeMetricFamily(name, text, labels=(*labels, SCOPE))
    for values, value in (samples or {}).items():
        family.add_metric((*values, _SCOPE_NAME), value)
    return family
