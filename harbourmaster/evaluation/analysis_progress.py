"""The progress of an Analysis: its timeframe, its values, and when to retry.

All of it is in the status of the object, so that a restarted controller continues.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from harbourmaster.api.durations import parse_duration
from harbourmaster.api.times import format_rfc3339, parse_rfc3339
from harbourmaster.evaluation.model import Timeframe

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from harbourmaster.evaluation.model import AnalysisObjective, ObjectReference, StoredValue

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
