"""Metrics of requests to the API server and of their latency."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import Counter, Histogram

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


NO_ANSWER: Final = "none"
"""The code of a request without a response."""
_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Seconds: up to the time after which a client gives up."""


class ApiCalls:
    """Counts for all clients of a process; ``note`` is the observer of a client."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "harbourmaster_api_requests_total",
            "Requests to the API server.",
            ("verb", "code"),
            registry=registry,
        )
        self._durations = Histogram(
            "harbourmaster_api_request_duration_seconds",
            "Time until the response headers or the failure.",
            ("verb",),
            buckets=_BUCKETS,
            registry=registry,
        )

    def note(self, verb: str, status: int, seconds: float) -> None:
        """Count a request; ``status`` 0 means no response."""
        self._requests.labels(verb, str(status) if status else NO_ANSWER).inc()
        self._durations.labels(verb).observe(seconds)
