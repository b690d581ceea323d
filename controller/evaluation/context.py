"""What every reconciler of metrics and analyses is given."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harbourmaster.controller.evaluation.telemetry import AnalysisMetrics, MetricSchedule

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from harbourmaster.controller.evaluation.caches import MetricCaches
    from harbourmaster.controller.evaluation.questions import Questions
    from harbourmaster.controller.evaluation.settings import MetricsSettings
    from harbourmaster.kube.client import Client
    from harbourmaster.kube.events import EventRecorder


@dataclass(frozen=True, kw_only=True, eq=False)
class MetricContext:
    """The world of a reconciler: ``now`` tells the time in UTC."""

    client: Client
    caches: MetricCaches
    settings: MetricsSettings
    questions: Questions
    events: EventRecorder
    now: Callable[[], datetime]
    schedule: MetricSchedule = field(default_factory=MetricSchedule)
    verdicts: AnalysisMetrics = field(default_factory=AnalysisMetrics)
