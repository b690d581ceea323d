"""The caches of the controllers of metrics and analyses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec

from harbourmaster.api.references import DEFAULT_MODE
from harbourmaster.api.resources import (
    ANALYSES,
    ANALYSIS_DEFINITIONS,
    ANALYSIS_VALUE_TEMPLATES,
    KEPTN_METRICS,
    METRICS_PROVIDERS,
)
from harbourmaster.controller.evaluation.collectors import AnalysisCollector, create_lateness
from harbourmaster.evaluation.metric_status import without_raw
from harbourmaster.evaluation.model import (
    COMPLETED,
    Analysis,
    AnalysisDefinition,
    AnalysisValueTemplate,
    Metric,
    Provider,
)
from harbourmaster.kube.caches import Caches, decoder

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from prometheus_client import Histogram

    from harbourmaster.api.references import ReferenceMode
    from harbourmaster.controller.evaluation.query_service import QueryService
    from harbourmaster.controller.evaluation.settings import MetricsSettings
    from harbourmaster.kube.client import Client
    from harbourmaster.kube.events import EventRecorder
    from harbourmaster.kube.faults import WatchMetrics


BY_PROVIDER: Final = "provider"
"""The index of metrics by namespace and provider name."""
UNFINISHED: Final = "unfinished"
"""The index of analyses, with True for those that are not completed."""

_decode_metric: Final = decoder(Metric)


class MetricCaches(Caches):
    """The caches of the controllers of metrics and analyses."""

    def __init__(self, client: Client, metrics: WatchMetrics | None = None) -> None:
        super().__init__(client, metrics)
        self.metrics = self.cache(KEPTN_METRICS, _decode_without_raw, {BY_PROVIDER: _by_provider})
        self.providers = self.cache(METRICS_PROVIDERS, decoder(Provider))
        self.analyses = self.cache(ANALYSES, decoder(Analysis), {UNFINISHED: _by_unfinished})
        self.definitions = self.cache(ANALYSIS_DEFINITIONS, decoder(AnalysisDefinition))
        self.templates = self.cache(ANALYSIS_VALUE_TEMPLATES, decoder(AnalysisValueTemplate))


def _decode_without_raw(raw: msgspec.Raw) -> Metric:
    metric = _decode_metric(raw)
    status = without_raw(metric.status)
    return metric if status is metric.status else msgspec.structs.replace(metric, status=status)


def _by_provider(metric: Metric) -> list[tuple[str, str]]:
    return [(metric.metadata.namespace, metric.spec.provider.name)]


def _by_unfinished(analysis: Analysis) -> list[bool]:
    return [] if analysis.status.state == COMPLETED else [True]


@dataclass(frozen=True, kw_only=True, eq=False)
class MetricContext:
    """The dependencies of the reconcilers; ``now`` returns the time in UTC."""

    client: Client
    caches: MetricCaches
    settings: MetricsSettings
    queries: QueryService
    events: EventRecorder
    now: Callable[[], datetime]
    references: ReferenceMode = DEFAULT_MODE
    lateness: Histogram = field(default_factory=create_lateness)
    results: AnalysisCollector = field(default_factory=AnalysisCollector)
