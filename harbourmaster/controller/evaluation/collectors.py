"""Prometheus metrics of analyses (keptn-spec 4.5), of queries to providers, and of lateness."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from prometheus_client import Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from harbourmaster.controller.objects import round_robin
from harbourmaster.evaluation.analysis import decode_raw
from harbourmaster.evaluation.model import COMPLETED
from harbourmaster.telemetry.api_metrics import AnswerCounters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

    from harbourmaster.evaluation.analysis import StoredAnalysis
    from harbourmaster.evaluation.model import Analysis
    from harbourmaster.kube.store import Store


ANALYSIS_RESULT: Final = "keptn_analysis_result"
OBJECTIVE_RESULT: Final = "keptn_objective_result"
SHOWN_ANALYSES: Final = 500
SHOWN_OBJECTIVES: Final = 2_000
"""The latest ones; each line costs 15 µs when the page is read."""

PROVIDER_QUERIES: Final = "harbourmaster_provider_queries_total"
PROVIDER_QUERY_DURATION: Final = "harbourmaster_provider_query_duration_seconds"

_DURATIONS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 60.0)
"""Seconds, from a server in the same network up to the usual time-outs."""
METRIC_LATENESS: Final = "harbourmaster_metric_lateness_seconds"

_LATENESS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds, from an immediate answer up to a slow provider."""
_TIME: Final = ("from", "to")
ANALYSIS: Final = ("name", "namespace", *_TIME)
"""Labels of an analysis."""
OBJECTIVE: Final = (
    *("name", "namespace", "analysis_name", "analysis_namespace"),
    *("key_objective", "weight", *_TIME),
)
"""Labels of an objective, whose name is that of its template."""


class AnalysisResults(Struct, frozen=True):
    """The values of both metrics of analyses, by label values in the order of the labels."""

    percentages: Mapping[tuple[str, ...], float]
    """Scores of analyses as percentages of the maximum, by the values of ANALYSIS."""
    values: Mapping[tuple[str, ...], float]
    """Measured values of objectives, by the values of OBJECTIVE."""


class AnalysisCollector(Collector):
    """Both metrics of analyses, in ``registry`` if one is given; without values by default."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self._read: Callable[[], AnalysisResults] | None = None
        if registry is not None:
            registry.register(self)

    def set_source(self, read: Callable[[], AnalysisResults] | None) -> None:
        """Show the values that ``read`` returns; None shows none, as another process leads."""
        self._read = read

    def collect(self) -> Iterable[Metric]:
        """Yield the metric families with the current values."""
        results = self._read() if self._read is not None else AnalysisResults({}, {})
        yield _gauge(
            ANALYSIS_RESULT,
            "Score of an analysis as a percentage of the maximum.",
            ANALYSIS,
            results.percentages,
        )
        yield _gauge(
            OBJECTIVE_RESULT, "Value of an objective of an analysis.", OBJECTIVE, results.values
        )


def _gauge(
    name: str, text: str, labels: tuple[str, ...], samples: Mapping[tuple[str, ...], float]
) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for label_values, value in samples.items():
        family.add_metric(label_values, value)
    return family


class QueryMetrics(AnswerCounters):
    """Counts the queries of a process, as the observer of a QueryClient.

    No label names an object or a server.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        text = (
            "Queries to metric providers; outcome is Answered or the reason why there is no answer."
        )
        waited = "Time until the answer or the failure, including the wait in the queue."
        queries, durations = (PROVIDER_QUERIES, text), (PROVIDER_QUERY_DURATION, waited)
        super().__init__(registry, ("provider", "outcome"), _DURATIONS, queries, durations)


def create_lateness(registry: CollectorRegistry | None = None) -> Histogram:
    """Return the histogram of the lateness of metrics, in seconds."""
    return Histogram(
        METRIC_LATENESS,
        "Time from the due time of a metric until its new value was stored.",
        buckets=_LATENESS,
        registry=registry,
    )


class AnalysisMetricValues:
    """The metric values of the latest analyses in a store; each analysis is decoded once."""

    def __init__(self, store: Store[Analysis]) -> None:
        self._store = store
        self._decoded: dict[str, StoredAnalysis | None] = {}

    def read(self) -> AnalysisResults:
        """Return the values of the latest analyses, in which namespaces take turns."""
        completed = (item for item in self._store.values() if item.status.state == COMPLETED)
        latest = sorted(completed, key=_age, reverse=True)
        latest = round_robin(latest, lambda analysis: analysis.metadata.namespace)[:SHOWN_ANALYSES]
        # Not by name: a new analysis of the same name has another result.
        self._decoded = {analysis.metadata.uid: self._decode(analysis) for analysis in latest}
        shown = [
            (analysis, result)
            for analysis in latest
            if (result := self._decoded[analysis.metadata.uid])
        ]
        objectives = (line for analysis, result in shown for line in _objectives(analysis, result))
        return AnalysisResults(
            percentages={_labels(analysis): result.percentage for analysis, result in shown},
            values=dict(islice(objectives, SHOWN_OBJECTIVES)),
        )

    def _decode(self, analysis: Analysis) -> StoredAnalysis | None:
        if analysis.metadata.uid in self._decoded:
            return self._decoded[analysis.metadata.uid]
        return decode_raw(analysis.status.raw)


def _age(analysis: Analysis) -> tuple[str, str]:
    return analysis.status.timeframe.to, analysis.metadata.key


def _labels(analysis: Analysis) -> tuple[str, ...]:
    timeframe = analysis.status.timeframe
    return (analysis.metadata.name, analysis.metadata.namespace, timeframe.from_, timeframe.to)


def _objectives(
    analysis: Analysis, stored: StoredAnalysis
) -> Iterator[tuple[tuple[str, ...], float]]:
    definition = analysis.spec.analysis_definition
    namespace = definition.namespace or analysis.metadata.namespace
    name, analysis_namespace, *timeframe = _labels(analysis)
    for result in stored.objective_results:
        objective = result.objective
        reference = objective.analysis_value_template_ref
        labels = (
            reference.name,
            reference.namespace or namespace,
            name,
            analysis_namespace,
            str(objective.key_objective).lower(),
            str(objective.weight),
            *timeframe,
        )
        yield labels, result.value
