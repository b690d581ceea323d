"""The current value of a KeptnMetric, and whether it is fresh enough.

Keptn accepts a value of any age. Here it expires if no query confirms it for some intervals.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from harbourmaster.api.durations import format_duration
from harbourmaster.api.times import parse_rfc3339
from harbourmaster.evaluation.metric_status import has_current_question
from harbourmaster.evaluation.objectives import Reading
from harbourmaster.evaluation.targets import shorten

if TYPE_CHECKING:
    from datetime import datetime

    from harbourmaster.evaluation.model import Metric

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
