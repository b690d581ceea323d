"""Metrics of queries to metric providers: outcomes and latency."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import Counter, Histogram

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

PROVIDER_QUERIES: Final = "harbourmaster_provider_queries_total"
PROVIDER_QUERY_DURATION: Final = "harbourmaster_provider_query_duration_seconds"

_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 60.0)
"""Seconds: from a server next door up to the time-outs that are in use."""


class QueryMetrics:
    """Counts for a process; the observer of an asker. Labels name no object and no server."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._queries = Counter(
            PROVIDER_QUERIES,
            "Questions to metric providers; outcome is Answered or why there is no answer.",
            ("provider", "outcome"),
            registry=registry,
        )
        self._durations = Histogram(
            PROVIDER_QUERY_DURATION,
            "Time until the answer or its absence, the wait for a turn included.",
            ("provider",),
            buckets=_BUCKETS,
            registry=registry,
        )

    def answered(self, provider: str, outcome: str, seconds: float) -> None:
        """Count a question that was asked, or could not be."""
        self._queries.labels(provider, outcome).inc()
        self._durations.labels(provider).observe(seconds)
