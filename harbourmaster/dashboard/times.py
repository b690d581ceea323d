"""Formats times and durations for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harbourmaster.api.times import moment

if TYPE_CHECKING:
    from datetime import datetime

_UNITS: Final = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))
_ENOUGH: Final = {"d": 7, "h": 10, "m": 10}
"""The count of a unit from which on the next smaller unit is omitted."""


def seconds_between(start: datetime | None, end: datetime | None) -> float:
    """Return the seconds between two times; 0 if one is missing or they are reversed."""
    if start is None or end is None:
        return 0.0
    return max((end - start).total_seconds(), 0.0)


def span(seconds: float) -> str:
    """Format a duration, such as ``4 s``, ``3 m 20 s``, ``12 h`` or ``9 d``."""
    left = int(seconds)
    for place, (unit, size) in enumerate(_UNITS):
        count, rest = divmod(left, size)
        if not count and unit != "s":
            continue
        if count < _ENOUGH.get(unit, 0):
            smaller, small = _UNITS[place + 1]
            if rest >= small:
                return f"{count} {unit} {rest // small} {smaller}"
        return f"{count} {unit}"
    return "0 s"


def age(stamp: str, now: datetime) -> str:
    """Format the time from or until a timestamp; empty if the timestamp is invalid."""
    when = moment(stamp)
    if when is None:
        return ""
    left = (when - now).total_seconds()
    return f"in {span(left)}" if left >= 1 else f"{span(-left)} ago"
