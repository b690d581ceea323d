"""Metrics of placement: decisions, moves, queries without a value, and the state of objects."""

from __future__ import annotations

from collections import Counter as Tally
from typing import TYPE_CHECKING, Final

from prometheus_client import Counter, Gauge
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from harbourmaster.placement.cluster_state import PENDING as UNSEEN
from harbourmaster.placement.cluster_state import UNKNOWN
from harbourmaster.placement.deployed import READY
from harbourmaster.placement.model import NOT_CONFIRMED, PENDING, SCHEDULED, condition
from harbourmaster.telemetry.api_metrics import AnswerCounters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

    from harbourmaster.placement.deployed import DeployedApplication, MemberCluster

DECISIONS: Final = "harbourmaster_placement_decisions_total"
DECISION_DURATION: Final = "harbourmaster_placement_decision_duration_seconds"
METRICS_WITHOUT_VALUE: Final = "harbourmaster_placement_metrics_without_value"
MOVES: Final = "harbourmaster_placement_moves_total"
APPLICATIONS: Final = "harbourmaster_placement_applications"
CLUSTERS: Final = "harbourmaster_placement_clusters"
PENDING_CLEANUPS: Final = "harbourmaster_placement_pending_cleanups"

_BUCKETS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0)
"""Seconds: from a decision whose pass knows all targets up to one that has to measure many."""


class PlacementMetrics(AnswerCounters):
    """Counts for a process. Labels name kinds and outcomes, and no object."""

    def __init__(self, registry: CollectorRegistry) -> None:
        decisions = (DECISIONS, "Decisions about where an object goes; outcome is the result.")
        durations = (DECISION_DURATION, "Time to decide about one object.")
        super().__init__(registry, ("kind", "outcome"), _BUCKETS, decisions, durations)
        text = "Metrics of clusters, clouds and projects that have no value."
        self._without_value = Gauge(METRICS_WITHOUT_VALUE, text, registry=registry)
        text = "Moves of applications to another cluster."
        self._moves = Counter(MOVES, text, ("reason",), registry=registry)

    def follow(self, count: Callable[[], int]) -> None:
        """Set the function that counts the metrics without a value at each scrape."""
        self._without_value.set_function(count)

    def count_move(self, reason: str) -> None:
        """Count a move."""
        self._moves.labels(reason).inc()


class PlacementStates(Collector):
    """Collects the numbers of Applications and Clusters by state at each scrape."""

    def __init__(
        self,
        registry: CollectorRegistry,
        applications: Callable[[], Iterable[DeployedApplication]],
        clusters: Callable[[], Iterable[MemberCluster]],
    ) -> None:
        self._applications = applications
        self._clusters = clusters
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """The current numbers."""
        phases: Tally[tuple[str, ...]] = Tally()
        left = 0
        for application in self._applications():
            conditions = application.status.conditions
            ready, scheduled = condition(conditions, READY), condition(conditions, SCHEDULED)
            waits = scheduled is not None and scheduled.reason == NOT_CONFIRMED
            phase = NOT_CONFIRMED if waits else application.status.phase or PENDING
            phases[phase, ready.status if ready else UNKNOWN] += 1
            left += sum(bool(cleanup.objects) for cleanup in application.status.pending_cleanup)
        states: Tally[tuple[str, ...]] = Tally(
            (cluster.status.state or UNSEEN,) for cluster in self._clusters()
        )
        text = "Applications by phase, and by the status of their condition Ready."
        yield _count(APPLICATIONS, text, ("phase", "ready"), phases)
        yield _count(CLUSTERS, "Clusters by state.", ("state",), states)
        text = "Copies of applications that wait to be deleted from a cluster without an answer."
        yield GaugeMetricFamily(PENDING_CLEANUPS, text, value=left)


def _count(name: str, text: str, labels: tuple[str, ...], counts: Tally[tuple[str, ...]]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for values, count in sorted(counts.items()):
        family.add_metric(values, count)
    return family
