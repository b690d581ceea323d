"""An Analysis: its timeframe, the points of its objectives, and their JSON (keptn-spec 4.5).

Its progress is in the status of the object, so that a restarted controller continues.
"""

from __future__ import annotations

import json
import math
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct, field

from harbourmaster.api.durations import parse_duration
from harbourmaster.api.times import format_rfc3339, parse_rfc3339
from harbourmaster.evaluation.criteria import ObjectiveCriteria, decode_target, is_fulfilled
from harbourmaster.evaluation.model import AnalysisObjective, Timeframe
from harbourmaster.evaluation.targets import parse_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from harbourmaster.evaluation.model import ObjectReference, StoredValue, TotalScore


_ESCAPED: Final = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}
_SMALL: Final = 1e-6
_LARGE: Final = 1e21
"""Numbers below the former and from this value on are written with an exponent."""


class MeasuredObjective(Struct, frozen=True, gc=False):
    """The query of an objective, and its value, a number as text."""

    query: str
    value: str


class ObjectiveResult(Struct, frozen=True, gc=False):
    """The points of one objective; ``error`` is the reason why its value does not count."""

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
    def is_passed(self) -> bool:
        """Whether neither criterion is fulfilled."""
        return not (self.error or self.is_failed or self.is_warned)

    @property
    def is_warning(self) -> bool:
        """Whether the objective gets half of its points."""
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
        """The score as a percentage of the maximum; 0 if the maximum is 0."""
        return percentage(self.total, self.maximum)

    @property
    def summary(self) -> str:
        """The result in one line, for the event."""
        ended = "passed" if self.passed else "ended with a warning" if self.warning else "failed"
        score = f"{self.total:g} of {self.maximum:g} points, {self.percentage:.4g} %"
        return f"the analysis {ended}: {score}"

    @property
    def raw(self) -> str:
        """The JSON of ``status.raw``, as Keptn writes it."""
        return dump_as_go(
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


class StoredVerdict(Struct, frozen=True, gc=False):
    """Whether an objective in ``raw`` passed, or gets half of its points."""

    passed: bool = field(default=False, name="pass")
    warning: bool = False

    @property
    def state(self) -> str:
        """The verdict as a state of a check."""
        return "Succeeded" if self.passed else "Warning" if self.warning else "Failed"


class StoredResult(Struct, frozen=True, gc=False):
    """The fields of an objective's result in ``raw`` that metrics and the dashboard show."""

    objective: StoredObjective
    value: float = 0.0
    query: str = ""
    error: str = ""
    result: StoredVerdict = StoredVerdict()


class StoredAnalysis(Struct, frozen=True, rename="camel"):
    """The fields of ``raw`` that metrics show."""

    objective_results: tuple[StoredResult, ...] = ()
    total_score: float = 0.0
    maximum_score: float = 0.0

    @property
    def percentage(self) -> float:
        """The score as a percentage of the maximum; 0 if the maximum is 0."""
        return percentage(self.total_score, self.maximum_score)


_decode: Final = msgspec.json.Decoder(StoredAnalysis).decode


def decode_raw(raw: str) -> StoredAnalysis | None:
    """Return the result that ``status.raw`` contains; None if it is not valid."""
    try:
        return _decode(raw)
    except msgspec.DecodeError:
        return None


def judge(
    measured: Iterable[tuple[AnalysisObjective, MeasuredObjective]], limits: TotalScore
) -> AnalysisResult:
    """Return the result of all measured objectives."""
    results = tuple(judge_objective(objective, value) for objective, value in measured)
    total = math.fsum(result.score for result in results)
    maximum = float(sum(max(result.objective.weight, 0) for result in results))
    is_lost = any(result.objective.key_objective and result.score <= 0 for result in results)
    achieved = percentage(total, maximum)
    passed = not is_lost and achieved >= limits.pass_percentage
    warning = not is_lost and not passed and achieved >= limits.warning_percentage
    return AnalysisResult(results, total, maximum, passed, warning)


def judge_objective(objective: AnalysisObjective, measured: MeasuredObjective) -> ObjectiveResult:
    """Return the result of an objective: all points if no criterion is fulfilled.

    It gets half of the points with a warning, none with a failure, and none and an error if the
    value or the target is invalid.
    """
    target = ObjectiveCriteria()
    try:
        target = decode_target(objective.target)
        value = parse_value(measured.value)
    except ValueError as error:
        return ObjectiveResult(objective, measured.query, target=target, error=str(error))
    is_failed = is_fulfilled(target.failure, value)
    is_warned = is_fulfilled(target.warning, value)
    points = float(max(objective.weight, 0))
    score = 0.0 if is_failed else points / 2 if is_warned else points
    return ObjectiveResult(
        objective, measured.query, value, score, target, is_failed=is_failed, is_warned=is_warned
    )


def parse_value(text: str) -> float:
    """Return a finite number. Raises ValueError with one line."""
    try:
        value = parse_number(text)
    except ValueError as error:
        raise ValueError(f"value {error}") from None
    if not math.isfinite(value):
        raise ValueError(f"value '{text}' is not a finite number")
    return value


def percentage(total: float, maximum: float) -> float:
    """Return ``total`` as a percentage of ``maximum``; 0 if that is 0."""
    return total / maximum * 100 if maximum else 0.0


def _result(result: ObjectiveResult) -> dict[str, Any]:
    operators = {} if result.error else result.target.encode()
    document = {
        "result": {
            "failResult": {"operator": operators.get("failure", {}), "fulfilled": result.is_failed},
            "warnResult": {"operator": operators.get("warning", {}), "fulfilled": result.is_warned},
            "warning": result.is_warning,
            "pass": result.is_passed,
        },
        "objective": _objective(result.objective, result.target),
        "value": result.value,
        "query": result.query,
        "score": result.score,
    }
    return {**document, "error": result.error} if result.error else document


def _objective(objective: AnalysisObjective, target: ObjectiveCriteria) -> dict[str, Any]:
    document: dict[str, Any] = {
        "analysisValueTemplateRef": _reference(objective.analysis_value_template_ref),
        "target": target.encode(),
    }
    if objective.weight:
        document["weight"] = objective.weight
    if objective.key_objective:
        document["keyObjective"] = True
    return document


def _reference(reference: ObjectReference) -> dict[str, str]:
    document = {"name": reference.name}
    return {**document, "namespace": reference.namespace} if reference.namespace else document


def dump_as_go(value: Any) -> str:  # noqa: ANN401 - what JSON has
    """Return compact JSON as Go's ``encoding/json`` writes it, with the keys in their order.

    ``<``, ``>`` and ``&`` are escaped. Raises ValueError for NaN and infinities.
    """
    match value:
        case None | bool():
            return json.dumps(value)
        case int():
            return str(value)
        case float():
            return format_go_number(value)
        case str():
            return _format_string(value)
        case dict():
            parts = (f"{_format_string(name)}:{dump_as_go(item)}" for name, item in value.items())
            return f"{{{','.join(parts)}}}"
        case list() | tuple():
            return f"[{','.join(dump_as_go(item) for item in value)}]"
    raise TypeError(f"JSON has no {type(value).__name__}")


def format_go_number(value: float) -> str:
    """Return the shortest text of a finite number: ``4``, ``0.25``, ``1e-7``, ``1e+21``."""
    if not math.isfinite(value):
        raise ValueError(f"JSON has no {value}")
    if value == 0:
        return "-0" if math.copysign(1, value) < 0 else "0"
    digits, exponent = _split_digits(abs(value))
    sign = "-" if value < 0 else ""
    if _SMALL <= abs(value) < _LARGE:
        return sign + _format_plain(digits, exponent)
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{fraction}e{exponent:+d}"


def _split_digits(value: float) -> tuple[str, int]:
    """Return the digits without zeros at the ends, and the exponent of the first digit."""
    mantissa, _, exponent = f"{value!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    first = len(whole) - 1 - (len(whole + fraction) - len(digits))
    return digits.rstrip("0"), first + int(exponent or 0)


def _format_plain(digits: str, exponent: int) -> str:
    if exponent < 0:
        return f"0.{'0' * (-exponent - 1)}{digits}"
    whole = digits[: exponent + 1].ljust(exponent + 1, "0")
    fraction = digits[exponent + 1 :]
    return f"{whole}.{fraction}" if fraction else whole


def _format_string(value: str) -> str:
    # A lone surrogate is not valid text, in Go neither.
    text = value.encode(errors="replace").decode()
    return json.dumps(text, ensure_ascii=False).translate(_ESCAPED)


FIRST: Final = 10.0
"""Seconds before the second try; each further wait is twice as long, up to LIMIT."""
LIMIT: Final = 300.0
_SECOND: Final = timedelta(seconds=1)
_STEP: Final = 60.0
"""Seconds between the values of a range, of which the first one counts."""
_VALUES: Final = 5_000
"""The limit of values in a range; providers refuse more than 10,000."""


def resolve_timeframe(timeframe: Timeframe, now: datetime) -> Timeframe:
    """Return the timeframe with fixed ends, in whole seconds of UTC.

    Raises ValueError with one line if it is invalid.
    """
    recent = _parse_recent(timeframe.recent)
    if recent:
        if timeframe.from_ or timeframe.to:
            raise ValueError("timeframe: give recent, or both from and to")
        begin, end = now - timedelta(seconds=recent), now
    elif timeframe.from_ and timeframe.to:
        begin, end = _parse_end("from", timeframe.from_), _parse_end("to", timeframe.to)
        if end <= begin:
            raise ValueError(f"timeframe.to must be after from, which is {timeframe.from_}")
    else:
        raise ValueError("timeframe: give recent, or both from and to")
    # Both ends can be equal after truncation to seconds.
    end = end.replace(microsecond=0)
    return Timeframe(from_=format_rfc3339(min(begin, end - _SECOND)), to=format_rfc3339(end))


def timeframe_bounds(timeframe: Timeframe) -> tuple[float, float]:
    """Return both ends in seconds since 1970. Raises ValueError with one line."""
    begin, end = _parse_end("from", timeframe.from_), _parse_end("to", timeframe.to)
    return begin.timestamp(), end.timestamp()


def range_step(begin: float, end: float) -> float:
    """Return the seconds between two values of a range query: a minute, or more in a long range."""
    return max(_STEP, _STEP * ((end - begin) // (_STEP * _VALUES) + 1))


def retry_delay(attempt: int) -> float:
    """Return the seconds until the next try, after ``attempt`` (from 0) failed temporarily."""
    return min(FIRST * 2.0 ** min(attempt, 10), LIMIT)


def template_references(objectives: Iterable[AnalysisObjective]) -> tuple[ObjectReference, ...]:
    """Return the distinct templates of the objectives, in order."""
    return tuple(dict.fromkeys(objective.analysis_value_template_ref for objective in objectives))


def by_status_key(values: Mapping[ObjectReference, StoredValue]) -> dict[str, StoredValue]:
    """Return the values by their keys in the status: ``<template>`` or ``<template>-<namespace>``.

    A key that is taken gets a number: ``<template>#2``.
    """
    by_key: dict[str, StoredValue] = {}
    for reference, value in values.items():
        name = f"{reference.name}-{reference.namespace}" if reference.namespace else reference.name
        key, count = name, 1
        while key in by_key:
            count += 1
            key = f"{name}#{count}"
        by_key[key] = value
    return by_key


def from_status(stored: Mapping[str, StoredValue]) -> dict[ObjectReference, StoredValue]:
    """Return the values of a status by template, without those that have an error."""
    return {
        value.objective_reference: value
        for value in stored.values()
        if value.objective_reference is not None and not value.err_msg
    }


def _parse_recent(recent: str) -> float:
    """Return the seconds; 0 if unset, which Go programs write as ``0s``."""
    if not recent:
        return 0.0
    try:
        seconds = parse_duration(recent)
    except ValueError as error:
        raise ValueError(f"timeframe.recent {error}") from None
    if seconds < 0:
        raise ValueError("timeframe.recent must not be negative")
    return seconds


def _parse_end(name: str, text: str) -> datetime:
    try:
        return parse_rfc3339(text)
    except ValueError:
        raise ValueError(
            f"timeframe.{name} is not a time: write for example 2026-01-31T12:00:00Z"
        ) from None
