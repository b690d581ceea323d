"""Metrics of placement: decisions, their latency, and queries without a value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import Gauge

from harbourmaster.telemetry.api_calls import AnswerTallies

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client import CollectorRegistry

DECISIONS: Final = "harbourmaster_placement_decisions_total"
DECISION_DURATION: Final = "harbourmaster_placement_decision_duration_seconds"
METRICS_WITHOUT_VALUE: Final = "harbourmaster_placement_metrics_without_value"

_BUCKETS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0)
"""Seconds: from a decision whose pass knows all targets up to one that has to measure many."""


class PlacementMetrics(AnswerTallies):
    """Counts for a process. Labels name kinds and outcomes, and no object."""

    def __init__(self, registry: CollectorRegistry) -> None:
        decisions = (DECISIONS, "Decisions about where an object goes; outcome is the result.")
        durations = (DECISION_DURATION, "Time to decide about one object.")
        super().__init__(registry, ("kind", "outcome"), _BUCKETS, decisions, durations)
        text = "Metrics of clusters, clouds and projects that have no value."
        self._without_value = Gauge(METRICS_WITHOUT_VALUE, text, registry=registry)

    def follow(self, count: Callable[[], int]) -> None:
        """Show how many queries have no value, whenever somebody looks."""
        self._without_value.set_function(count)
