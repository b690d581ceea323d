"""Metrics of answers and of their latency, such as those of the API server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import Counter, Histogram

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prometheus_client import CollectorRegistry


NO_ANSWER: Final = "none"
"""The code of a request without a response."""
_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Seconds: up to the time after which a client gives up."""


class AnswerTallies:
    """Counts answers by outcome, and how long they took. Labels name no object and no server.

    ``answers`` and ``durations`` are names and texts; ``labels`` are what is asked and the outcome.
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

    def answered(self, what: str, outcome: str, seconds: float) -> None:
        """Count an answer, or that there was none."""
        self._answers.labels(what, outcome).inc()
        self._durations.labels(what).observe(seconds)


class ApiCalls(AnswerTallies):
    """Counts for all clients of a process; ``note`` is the observer of a client."""

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
        self.answered(verb, str(status) if status else NO_ANSWER, seconds)
