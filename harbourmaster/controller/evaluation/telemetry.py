"""Prometheus metrics of analyses (keptn-spec 4.5), of provider questions and of lateness."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct
from prometheus_client import Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from harbourmaster.controller.objects import in_turn
from harbourmaster.evaluation.analysis import decode_raw
from harbourmaster.evaluation.model import COMPLETED
from harbourmaster.telemetry.api_calls import AnswerTallies

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

    from harbourmaster.evaluation.analysis import StoredAnalysis
    from harbourmaster.evaluation.model import Analysis
    from harbourmaster.kube.store import Store


ANALYSIS_RESULT: Final = "keptn_analysis_result"
OBJECTIVE_RESULT: Final = "keptn_objective_result"
SHOWN_ANALYSES: Final = 500
SHOWN_OBJECTIVES: Final = 2_000
"""The latest; a line costs 15 µs when somebody reads it."""

PROVIDER_QUERIES: Final = "harbourmaster_provider_queries_total"
PROVIDER_QUERY_DURATION: Final = "harbourmaster_provider_query_duration_seconds"

_DURATIONS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 60.0)
"""Seconds: from a server next door up to the time-outs that are in use."""
METRIC_LATENESS: Final = "harbourmaster_metric_lateness_seconds"

_LATENESS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds: from an answer at once up to a provider that lets wait."""
_TIME: Final = ("from", "to")
ANALYSIS: Final = ("name", "namespace", *_TIME)
"""Labels of an analysis."""
OBJECTIVE: Final = (
    *("name", "namespace", "analysis_name", "analysis_namespace"),
    *("key_objective", "weight", *_TIME),
)
"""Labels of an objective, which goes by its template."""


class Results(Struct, frozen=True):
    """The values, by label values in the order of ANALYSIS and OBJECTIVE."""

    percentages: Mapping[tuple[str, ...], float]
    """Of the highest score that an analysis could have."""
    values: Mapping[tuple[str, ...], float]
    """The measured value of an objective."""


class ResultsSource(Protocol):
    """The source of the metrics."""

    def results(self) -> Results:
        """The current values."""


class AnalysisMetrics(Collector):
    """Both metrics, in ``registry`` if there is one. Only the leader shows values: see ``lead``."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self._source: ResultsSource | None = None
        if registry is not None:
            registry.register(self)

    def lead(self, source: ResultsSource | None) -> None:
        """Show the results of ``source`` from now on, or none where another leads."""
        self._source = source

    def collect(self) -> Iterable[Metric]:
        """The metric families with the current values."""
        found = self._source.results() if self._source is not None else Results({}, {})
        yield _gauge(
            ANALYSIS_RESULT,
            "Score of an analysis as a percentage of the maximum.",
            ANALYSIS,
            found.percentages,
        )
        yield _gauge(
            OBJECTIVE_RESULT, "Value of an objective of an analysis.", OBJECTIVE, found.values
        )


def _gauge(
    name: str, text: str, labels: tuple[str, ...], found: Mapping[tuple[str, ...], float]
) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for values, value in found.items():
        family.add_metric(values, value)
    return family


class QueryMetrics(AnswerTallies):
    """Counts for a process; the observer of an asker. Labels name no object and no server."""

    def __init__(self, registry: CollectorRegistry) -> None:
        text = (
            "Queries to metric providers; outcome is Answered or the reason why there is no answer."
        )
        waited = "Time until the answer or the failure, including the wait in the queue."
        queries, durations = (PROVIDER_QUERIES, text), (PROVIDER_QUERY_DURATION, waited)
        super().__init__(registry, ("provider", "outcome"), _DURATIONS, queries, durations)


class MetricSchedule:
    """The lateness of the controller of metrics."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        lateness = Histogram(
            METRIC_LATENESS,
            "Time from the due time of a metric until its new value was stored.",
            buckets=_LATENESS,
            registry=registry,
        )
        self.late = lateness.observe
        """Count a value that was stored so many seconds after it was due."""


class AnalysisMeasures:
    """The latest analyses of a store; each of them is decoded once."""

    def __init__(self, store: Store[Analysis]) -> None:
        self._store = store
        self._decoded: dict[str, StoredAnalysis | None] = {}

    def results(self) -> Results:
        """The current values."""
        ended = (each for each in self._store.values() if each.status.state == COMPLETED)
        latest = sorted(ended, key=_age, reverse=True)
        latest = in_turn(latest, lambda each: each.metadata.namespace)[:SHOWN_ANALYSES]
        # Another analysis of that name has another verdict.
        self._decoded = {each.metadata.uid: self._told(each) for each in latest}
        found = [(each, told) for each in latest if (told := self._decoded[each.metadata.uid])]
        objectives = (line for each, told in found for line in _objectives(each, told))
        return Results(
            percentages={_labels(each): told.percentage for each, told in found},
            values=dict(islice(objectives, SHOWN_OBJECTIVES)),
        )

    def _told(self, found: Analysis) -> StoredAnalysis | None:
        if found.metadata.uid in self._decoded:
            return self._decoded[found.metadata.uid]
        return decode_raw(found.status.raw)


def _age(found: Analysis) -> tuple[str, str]:
    return found.status.timeframe.to, found.metadata.key


def _labels(found: Analysis) -> tuple[str, ...]:
    timeframe = found.status.timeframe
    return (found.metadata.name, found.metadata.namespace, timeframe.from_, timeframe.to)


def _objectives(found: Analysis, told: StoredAnalysis) -> Iterator[tuple[tuple[str, ...], float]]:
    definition = found.spec.analysis_definition
    namespace = definition.namespace or found.metadata.namespace
    name, analysis_namespace, *timeframe = _labels(found)
    for result in told.objective_results:
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
