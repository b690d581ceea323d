"""The delay of KeptnMetrics values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import Histogram

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

METRIC_LATENESS: Final = "harbourmaster_metric_lateness_seconds"

_BUCKETS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds: from an answer at once up to a provider that lets wait."""


class MetricSchedule:
    """What the controller of metrics tells; without a registry, nobody."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        lateness = Histogram(
            METRIC_LATENESS,
            "From the time at which a metric was due until its new value was stored.",
            buckets=_BUCKETS,
            registry=registry,
        )
        self.late = lateness.observe
        """Count a value that was stored so many seconds after it was due."""
