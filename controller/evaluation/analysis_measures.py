"""The results that the metrics of analyses show, from the cache (keptn-spec 4.5)."""

from __future__ import annotations

from heapq import nlargest
from itertools import islice
from typing import TYPE_CHECKING

from harbourmaster.evaluation.analysis import decode_raw
from harbourmaster.evaluation.model import COMPLETED
from harbourmaster.telemetry.analysis_metrics import SHOWN_ANALYSES, SHOWN_OBJECTIVES, Results

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harbourmaster.evaluation.analysis import StoredAnalysis
    from harbourmaster.evaluation.model import Analysis
    from harbourmaster.kube.store import Store


class AnalysisMeasures:
    """The latest analyses of a store; each of them is decoded once."""

    def __init__(self, store: Store[Analysis]) -> None:
        self._store = store
        self._decoded: dict[str, StoredAnalysis | None] = {}

    def results(self) -> Results:
        """What there is at this moment."""
        ended = (each for each in self._store.values() if each.status.state == COMPLETED)
        latest = nlargest(SHOWN_ANALYSES, ended, key=_age)
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
    for each in told.objective_results:
        objective = each.objective
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
        yield labels, each.value
