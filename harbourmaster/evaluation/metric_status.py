"""The status of a KeptnMetric after an answer or a fault (keptn-spec 4.2), and its current value.

``lastUpdated`` is the time of the value, so a fault changes neither. With ``storedResults``, all
values are in ``intervalResults``, the newest last. Faults in a row are one result there, so that
they displace no values. Keptn accepts a value of any age. Here it expires if no query confirms it
for some intervals.
"""

from __future__ import annotations

import math
from base64 import b64encode
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from harbourmaster.api.durations import format_duration
from harbourmaster.api.times import parse_rfc3339
from harbourmaster.evaluation.model import IntervalResult, MetricRange, MetricStatus
from harbourmaster.evaluation.objectives import Reading
from harbourmaster.evaluation.schedule import stable_hash
from harbourmaster.evaluation.targets import shorten

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from harbourmaster.evaluation.model import Metric, MetricSpec


MAX_RAW: Final = 1024 * 1024
"""Bytes of a raw answer that are stored, before base64."""
LATE: Final = 300.0
"""Seconds that a sample may be older than the queried range, as many providers lag behind."""
KEPT_RAW: Final = 64
"""Characters of a raw value in memory, as a thousand metrics may have a megabyte each."""


def status_after_answer(
    status: MetricStatus, spec: MetricSpec, value: str, raw: bytes, time: str
) -> MetricStatus:
    """Return the status after an answer; ``time`` is in RFC 3339."""
    if _max_results(spec):
        return MetricStatus(
            interval_results=_add_result(status, spec, value, time), question=question_hash(spec)
        )
    encoded = b64encode((raw or value.encode())[:MAX_RAW]).decode()
    return MetricStatus(
        value=value, raw_value=encoded, last_updated=time, question=question_hash(spec)
    )


def status_after_fault(
    status: MetricStatus, spec: MetricSpec, fault: str, time: str
) -> MetricStatus:
    """Return the status after a fault; equal to ``status`` if that has the same fault."""
    if not _max_results(spec):
        asked = status.question if status.value else ""
        return msgspec.structs.replace(status, err_msg=fault, interval_results=(), question=asked)
    newest = status.interval_results[-1:]
    if newest and newest[0].err_msg == fault:
        results = status.interval_results[-_max_results(spec) :]
    else:
        results = _add_result(status, spec, "", time, fault)
    return MetricStatus(err_msg=fault, interval_results=results, question=status.question)


def question_hash(spec: MetricSpec) -> str:
    """Return a hash of all fields that determine the value of a metric."""
    span = spec.range or MetricRange(interval="")
    parts = (spec.provider.name, spec.query, span.interval, span.step, span.aggregation)
    return f"{stable_hash(*parts):016x}"


def has_current_question(status: MetricStatus, spec: MetricSpec) -> bool:
    """Return whether the values answer the current question, or their question is unknown."""
    return status.question in {"", question_hash(spec)}


def measurement_time(newest: float, asked: float, span: float) -> float:
    """Return the time of a value: that of its query, if its newest sample is not much older.

    A sample from long before the queried ``span`` seconds keeps its own time. All times are
    seconds since 1970.
    """
    return newest if newest < asked - span - LATE else asked


def without_raw(status: MetricStatus) -> MetricStatus:
    """Return the status for the cache, with only the beginning of a raw value."""
    if len(status.raw_value) <= KEPT_RAW:
        return status
    return msgspec.structs.replace(status, raw_value=status.raw_value[:KEPT_RAW])


def value_time(status: MetricStatus) -> str:
    """Return the time of the newest value in RFC 3339; empty without a value."""
    if status.last_updated:
        return status.last_updated
    values = (result for result in reversed(status.interval_results) if not result.err_msg)
    return next((value.last_updated for value in values), "")


def _max_results(spec: MetricSpec) -> int:
    return 0 if spec.range is None else max(spec.range.stored_results, 0)


def _add_result(
    status: MetricStatus, spec: MetricSpec, value: str, time: str, fault: str = ""
) -> tuple[IntervalResult, ...]:
    before = status.interval_results
    if fault and before and before[-1].err_msg:
        before = before[:-1]
    result = IntervalResult(
        value=value, range=spec.range or MetricRange(), last_updated=time, err_msg=fault
    )
    return (*before, result)[-_max_results(spec) :]


GRACE: Final = 10.0
"""Seconds that a value may be older, for the query, its write, and clock differences."""


class Value(NamedTuple):
    """The newest value of a metric; ``time`` is in RFC 3339, empty if unknown."""

    text: str = ""
    time: str = ""


def newest_value(metric: Metric) -> Value:
    """Return the value of a metric, or its newest stored one; without text if it has none."""
    status = metric.status
    if status.value:
        return Value(status.value, status.last_updated)
    for result in reversed(status.interval_results):
        if result.value and not result.err_msg:
            return Value(result.value, result.last_updated)
    return Value()


def age_limit(metric: Metric, intervals: float) -> float:
    """Return the age in seconds at which a value expires, for a number of intervals."""
    return metric.spec.interval * intervals + GRACE


def is_fresh(metric: Metric, intervals: float, now: datetime) -> bool:
    """Return whether the metric has a value that still counts."""
    value = newest_value(metric)
    return bool(value.text) and not _staleness(metric, value, intervals, now)


def read_metric(metric: Metric, intervals: float, now: datetime) -> Reading:
    """Return the value of a metric for an evaluation, or the reason why it has none."""
    name, status = metric.metadata.name, metric.status
    value = newest_value(metric)
    if not value.text:
        return Reading(fault=_with_last_error(f"empty value for: {name}", metric))
    if status.value and not status.raw_value:
        return Reading(fault=f"empty rawValue for: {name}")
    stale = _staleness(metric, value, intervals, now)
    return Reading(fault=_with_last_error(stale, metric)) if stale else Reading(value=value.text)


def _staleness(metric: Metric, value: Value, intervals: float, now: datetime) -> str:
    """Return why the value no longer counts; empty if it does."""
    name = metric.metadata.name
    if not has_current_question(metric.status, metric.spec):
        return f"the value of {name} is from before its query was changed"
    try:
        age = (now - parse_rfc3339(value.time)).total_seconds()
    except ValueError:
        return f"the age of the value of {name} is unknown"
    limit = age_limit(metric, intervals)
    if age < -limit:
        return f"the value of {name} has a time in the future, {shorten(value.time)}"
    if age <= limit:
        return ""
    shown = format_duration(timedelta(seconds=age) // timedelta(seconds=1))
    return f"the value of {name} is {shown} old, longer than {format_duration(limit)}"


def _with_last_error(text: str, metric: Metric) -> str:
    fault = shorten(metric.status.err_msg)
    return f"{text}: {fault}" if fault else text


def aggregate(name: str, values: Sequence[float]) -> float:
    """Aggregate one or more finite ``values``; ``name`` is a key of AGGREGATIONS."""
    return AGGREGATIONS[name](sorted(values))


def _percentile(percent: int) -> Callable[[Sequence[float]], float]:
    return lambda ordered: ordered[-(-len(ordered) * percent // 100) - 1]


def _average(ordered: Sequence[float]) -> float:
    count = len(ordered)
    try:
        mean = math.fsum(ordered) / count
    except OverflowError:
        mean = math.fsum(value / count for value in ordered)
    # Rounding can leave the range of the values.
    return min(max(mean, ordered[0]), ordered[-1])


def _median(ordered: Sequence[float]) -> float:
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return _average(ordered[middle - 1 : middle + 1])


AGGREGATIONS: Final[dict[str, Callable[[Sequence[float]], float]]] = {
    "max": lambda ordered: ordered[-1],
    "min": lambda ordered: ordered[0],
    "avg": _average,
    "median": _median,
    "p90": _percentile(90),
    "p95": _percentile(95),
    "p99": _percentile(99),
}
