"""Metrics of responses to a scheduler: outcomes and latency."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harbourmaster.controller.extender.answers import OUTCOMES, VERBS
from harbourmaster.telemetry.api_metrics import AnswerCounters

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

EXTENDER_ANSWERS: Final = "harbourmaster_extender_answers_total"
EXTENDER_DURATION: Final = "harbourmaster_extender_duration_seconds"

_BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5)
"""Seconds: from a pod that is nobody's business up to where a scheduler gives up."""


class ExtenderMetrics(AnswerCounters):
    """Counts for a process. Labels: ``verb`` and, of answers, ``outcome``; no object is named."""

    def __init__(self, registry: CollectorRegistry) -> None:
        answers = (EXTENDER_ANSWERS, "Answers to a scheduler, by outcome.")
        durations = (EXTENDER_DURATION, "Time from the complete request to its answer.")
        super().__init__(registry, ("verb", "outcome"), _BUCKETS, answers, durations)
        for verb in VERBS:
            self._durations.labels(verb)
            for outcome in OUTCOMES:
                self._answers.labels(verb, outcome)
