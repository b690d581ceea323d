"""The values in the records of a DQL query, with their times."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from harbourmaster.providers.errors import NoValuesError, TooManyValuesError
from harbourmaster.providers.replies import words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_VALUE: Final = "value"
"""The field that counts where there are several, and in it, where it is an object, the average."""
_AVERAGE: Final = "avg"
_NUMERIC: Final = frozenset({"long", "double"})
_NANOSECONDS: Final = 1e9
_SHOWN: Final = 5


class FieldType(Struct, frozen=True):
    """``long`` and ``double`` are numbers, which may be written as strings."""

    type: str = ""


class RecordTypes(Struct, frozen=True):
    """The types of the fields of some of the records."""

    mappings: dict[str, FieldType] = {}


def points(
    records: Sequence[Mapping[str, Any]], types: Sequence[RecordTypes], path: str, now: float
) -> list[tuple[float, object]]:
    """The times and values, nulls left out, in the order of the records.

    A record is a point of one series, at its ``timestamp`` or else ``now``; one with an array is
    a whole series (``timeseries``, ``makeTimeseries``), so that several of those are too many.
    """
    numeric = {name for each in types for name, of in each.mappings.items() if of.type in _NUMERIC}
    found: list[tuple[float, object]] = []
    for record in records:
        value = _value(record, numeric, path)
        if not isinstance(value, list):
            found.append((_seconds(record.get("timestamp"), now), value))
        elif len(records) > 1:
            raise TooManyValuesError(
                f"too many values in query result: {len(records)} records are series"
            )
        else:
            found.extend(_series(record, value, now))
    return [(time, value) for time, value in found if value is not None]


def _value(record: Mapping[str, Any], numeric: set[str], path: str) -> object:
    if path and path not in record:
        raise NoValuesError(f"no values in query result: no field '{words(path)}'")
    name = path or (_VALUE if _VALUE in record else _only(record, numeric))
    value = record[name]
    return value.get(_AVERAGE) if isinstance(value, dict) else value


def _only(record: Mapping[str, Any], numeric: set[str]) -> str:
    names = [
        name
        for name, value in record.items()
        if _is_number(value)
        or (name in numeric and isinstance(value, str))
        or (isinstance(value, list) and all(item is None or _is_number(item) for item in value))
    ]
    if len(names) > 1:
        shown = ", ".join(words(name) for name in names[:_SHOWN])
        more = ", …" if len(names) > _SHOWN else ""
        raise TooManyValuesError(f"too many values in query result: {shown}{more}")
    if not names:
        raise NoValuesError("no values in query result")
    return names[0]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _series(
    record: Mapping[str, Any], values: Sequence[object], now: float
) -> list[tuple[float, object]]:
    """The values of an array, whose times follow from the record's timeframe and interval."""
    timeframe = record.get("timeframe")
    start = _seconds(timeframe.get("start") if isinstance(timeframe, dict) else None, now)
    try:
        step = float(record.get("interval") or 0) / _NANOSECONDS
    except (TypeError, ValueError, OverflowError):
        step = 0.0
    return [(start + step * index, value) for index, value in enumerate(values)]


def _seconds(text: object, now: float) -> float:
    try:
        return datetime.fromisoformat(text).timestamp() if isinstance(text, str) else now
    except (ValueError, OverflowError):
        return now
