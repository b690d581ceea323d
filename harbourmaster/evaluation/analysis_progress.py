"""Progress of an Analysis: its timeframe, the values so far, and when to retry.

Everything that must survive a restart is in the object's status.
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
"""Seconds before the second try, then twice as long each time."""
LIMIT: Final = 300.0
_SECOND: Final = timedelta(seconds=1)
_STEP: Final = 60.0
"""Seconds between the queried values, of which the first one counts."""
_VALUES: Final = 5_000
"""At most this many: providers refuse more than 10,000."""


def resolve_timeframe(wanted: Timeframe, now: datetime) -> Timeframe:
    """The analysed timeframe, whole seconds in UTC. Raises ValueError with one line."""
    recent = _seconds(wanted.recent)
    if recent:
        if wanted.from_ or wanted.to:
            raise ValueError("timeframe: give recent, or both from and to")
        begin, end = now - timedelta(seconds=recent), now
    elif wanted.from_ and wanted.to:
        begin, end = _moment("from", wanted.from_), _moment("to", wanted.to)
        if end <= begin:
            raise ValueError(f"timeframe.to must be after from, which is {wanted.from_}")
    else:
        raise ValueError("timeframe: give recent, or both from and to")
    # Truncated to seconds, both can be equal.
    end = end.replace(microsecond=0)
    return Timeframe(from_=format_rfc3339(min(begin, end - _SECOND)), to=format_rfc3339(end))


def timeframe_bounds(timeframe: Timeframe) -> tuple[float, float]:
    """From when to when, in seconds since 1970. Raises ValueError with one line."""
    begin, end = _moment("from", timeframe.from_), _moment("to", timeframe.to)
    return begin.timestamp(), end.timestamp()


def range_step(begin: float, end: float) -> float:
    """Seconds between two values of a range query: a minute, or more where there are too many."""
    return max(_STEP, _STEP * ((end - begin) // (_STEP * _VALUES) + 1))


def retry_delay(attempt: int) -> float:
    """Seconds to wait after try number ``attempt``, from 0, that failed temporarily."""
    return min(FIRST * 2.0 ** min(attempt, 10), LIMIT)


def template_references(objectives: Iterable[AnalysisObjective]) -> tuple[ObjectReference, ...]:
    """The templates that are needed, each once."""
    return tuple(dict.fromkeys(objective.analysis_value_template_ref for objective in objectives))


def by_status_key(values: Mapping[ObjectReference, StoredValue]) -> dict[str, StoredValue]:
    """As in the status: ``<template>``, or ``<template>-<namespace>`` where one is given.

    Two that would have the same key stay apart.
    """
    found: dict[str, StoredValue] = {}
    for reference, value in values.items():
        name = f"{reference.name}-{reference.namespace}" if reference.namespace else reference.name
        key, count = name, 1
        while key in found:
            count += 1
            key = f"{name}#{count}"
        found[key] = value
    return found


def from_status(stored: Mapping[str, StoredValue]) -> dict[ObjectReference, StoredValue]:
    """The values in a status, by template, without those that are missing."""
    return {
        each.objective_reference: each
        for each in stored.values()
        if each.objective_reference is not None and not each.err_msg
    }


def _seconds(recent: str) -> float:
    """Go programs write an unset duration as ``0s``."""
    if not recent:
        return 0.0
    try:
        seconds = parse_duration(recent)
    except ValueError as error:
        raise ValueError(f"timeframe.recent {error}") from None
    if seconds < 0:
        raise ValueError("timeframe.recent must not be negative")
    return seconds


def _moment(name: str, text: str) -> datetime:
    try:
        return parse_rfc3339(text)
    except ValueError:
        raise ValueError(
            f"timeframe.{name} is not a time: write for example 2026-01-31T12:00:00Z"
        ) from None
