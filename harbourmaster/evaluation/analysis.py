"""The result of an Analysis: points for each objective, and Keptn's JSON of them (4.5)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.evaluation.criteria import (
    ObjectiveCriteria,
    decode_target,
    encode_criterion,
    is_fulfilled,
)
from harbourmaster.evaluation.go_json import dumps
from harbourmaster.evaluation.model import AnalysisObjective
from harbourmaster.evaluation.targets import parse_number

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harbourmaster.evaluation.model import ObjectReference, TotalScore

_ALL: Final = 100.0


class MeasuredObjective(Struct, frozen=True, gc=False):
    """The result of an objective's query: a number as text."""

    query: str
    value: str


class ObjectiveResult(Struct, frozen=True, gc=False):
    """The result of one objective; ``error`` says why its value does not count."""

    objective: AnalysisObjective
    query: str
    value: float = 0.0
    score: float = 0.0
    target: ObjectiveCriteria = ObjectiveCriteria()
    is_failed: bool = False
    is_warned: bool = False
    """Whether the warning criterion is fulfilled, whatever the failure criterion says."""
    error: str = ""

    @property
    def passed(self) -> bool:
        """Whether neither criterion is fulfilled."""
        return not (self.error or self.is_failed or self.is_warned)

    @property
    def warning(self) -> bool:
        """Whether it is good enough for half of its points."""
        return not (self.error or self.is_failed) and self.is_warned


class AnalysisResult(Struct, frozen=True, gc=False):
    """The result of the whole analysis."""

    results: tuple[ObjectiveResult, ...]
    total: float
    maximum: float
    passed: bool
    warning: bool

    @property
    def percentage(self) -> float:
        """Of the highest score; 0 where no score can be reached."""
        return percentage(self.total, self.maximum)

    @property
    def summary(self) -> str:
        """One line for people."""
        ended = "passed" if self.passed else "ended with a warning" if self.warning else "failed"
        score = f"{self.total:g} of {self.maximum:g} points, {self.percentage:.4g} %"
        return f"the analysis {ended}: {score}"

    @property
    def raw(self) -> str:
        """The JSON of ``status.raw``, as Keptn writes it."""
        return dumps(
            {
                "objectiveResults": [_result(result) for result in self.results],
                "totalScore": self.total,
                "maximumScore": self.maximum,
                "pass": self.passed,
                "warning": self.warning,
            }
        )


class StoredObjective(AnalysisObjective, frozen=True, kw_only=True):
    """An objective in ``raw``, where a missing weight is 0."""

    weight: int = 0


class StoredResult(Struct, frozen=True, gc=False):
    """The part of one objective in ``raw`` that metrics show."""

    objective: StoredObjective
    value: float = 0.0


class StoredAnalysis(Struct, frozen=True, rename="camel"):
    """The part of ``raw`` that metrics show."""

    objective_results: tuple[StoredResult, ...] = ()
    total_score: float = 0.0
    maximum_score: float = 0.0

    @property
    def percentage(self) -> float:
        """Of the highest score; 0 where no score can be reached."""
        return percentage(self.total_score, self.maximum_score)


_decode: Final = msgspec.json.Decoder(StoredAnalysis).decode


def decode_raw(raw: str) -> StoredAnalysis | None:
    """The stored result of an analysis; None where the text is not one."""
    try:
        return _decode(raw)
    except msgspec.DecodeError:
        return None


def judge(
    measured: Iterable[tuple[AnalysisObjective, MeasuredObjective]], limits: TotalScore
) -> AnalysisResult:
    """The verdict on all objectives."""
    results = tuple(judge_objective(objective, found) for objective, found in measured)
    total = math.fsum(each.score for each in results)
    maximum = float(sum(max(result.objective.weight, 0) for result in results))
    is_lost = any(each.objective.key_objective and each.score <= 0 for each in results)
    achieved = percentage(total, maximum)
    passed = not is_lost and achieved >= limits.pass_percentage
    warning = not is_lost and not passed and achieved >= limits.warning_percentage
    return AnalysisResult(results, total, maximum, passed, warning)


def judge_objective(objective: AnalysisObjective, found: MeasuredObjective) -> ObjectiveResult:
    """All points where no criterion is fulfilled, half of them with a warning, else none.

    An invalid value or target gives no points and an error.
    """
    target = ObjectiveCriteria()
    try:
        target = decode_target(objective.target)
        value = parse_value(found.value)
    except ValueError as error:
        return ObjectiveResult(objective, found.query, target=target, error=str(error))
    is_failed = is_fulfilled(target.failure, value)
    is_warned = is_fulfilled(target.warning, value)
    points = float(max(objective.weight, 0))
    score = 0.0 if is_failed else points / 2 if is_warned else points
    return ObjectiveResult(
        objective, found.query, value, score, target, is_failed=is_failed, is_warned=is_warned
    )


def parse_value(text: str) -> float:
    """A finite number. Raises ValueError with one line."""
    try:
        value = parse_number(text)
    except ValueError as error:
        raise ValueError(f"value {error}") from None
    if not math.isfinite(value):
        raise ValueError(f"value '{text}' is not a finite number")
    return value


def percentage(total: float, maximum: float) -> float:
    """``total`` as a share of ``maximum``; 0 where there is no maximum."""
    return total / maximum * _ALL if maximum else 0.0


def _result(found: ObjectiveResult) -> dict[str, Any]:
    target = ObjectiveCriteria() if found.error else found.target
    told = {
        "result": {
            "failResult": {
                "operator": encode_criterion(target.failure),
                "fulfilled": found.is_failed,
            },
            "warnResult": {
                "operator": encode_criterion(target.warning),
                "fulfilled": found.is_warned,
            },
            "warning": found.warning,
            "pass": found.passed,
        },
        "objective": _objective(found.objective, found.target),
        "value": found.value,
        "query": found.query,
        "score": found.score,
    }
    return {**told, "error": found.error} if found.error else told


def _objective(found: AnalysisObjective, target: ObjectiveCriteria) -> dict[str, Any]:
    told: dict[str, Any] = {
        "analysisValueTemplateRef": _reference(found.analysis_value_template_ref),
        "target": target.wire,
    }
    if found.weight:
        told["weight"] = found.weight
    if found.key_objective:
        told["keyObjective"] = True
    return told


def _reference(found: ObjectReference) -> dict[str, str]:
    told = {"name": found.name}
    return {**told, "namespace": found.namespace} if found.namespace else told
