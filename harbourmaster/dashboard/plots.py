"""Lays out measurements over time: a drawing of marks and lines, and the same as a table. Pure."""

from __future__ import annotations

import math
from itertools import groupby, takewhile
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec import Struct

from harbourmaster.api.times import moment
from harbourmaster.evaluation.targets import is_met, parse_number, parse_target
from harbourmaster.lifecycle.model import Try

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harbourmaster.evaluation.targets import Comparison

WIDTH: Final = 320
HEIGHT: Final = 120
MOST: Final = 256
"""Maximum measurements of a plot; the newest ones count."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 8, 312, 14, 100
"""The edges of the area of values."""

Kind: TypeAlias = Literal["met", "unmet", "plain", "none"]
"""``plain`` has no target to meet, ``none`` has no value."""

_KINDS: Final[dict[str, Kind]] = {"Succeeded": "met", "Failed": "unmet", "Warning": "unmet"}


class Mark(Struct, frozen=True, gc=False):
    """A measurement in the drawing; one without a value is at the bottom."""

    x: int
    y: int
    kind: Kind
    measured: Try


class Plot(Struct, frozen=True, gc=False):
    """A drawing of WIDTH times HEIGHT units; its ``marks`` in their order are the table."""

    name: str
    target: str
    summary: str
    """The drawing as a sentence."""
    marks: tuple[Mark, ...]
    lines: tuple[str, ...]
    """The points of lines, which are interrupted where a value is missing."""
    rules: tuple[tuple[int, str], ...]
    """The bounds of the target, as y and text."""


def plot(name: str, measurements: Sequence[Try], target: str = "") -> Plot | None:
    """Lay out measurements, the oldest first, with texts as in a status; None without any.

    ``target`` is that of an objective, such as ``>=10,<20``; an invalid one has no lines.
    """
    shown = measurements[-MOST:]
    if not shown:
        return None
    comparisons = _comparisons(target)
    numbers = [_number(measured) for measured in shown]
    bounds = {comparison.bound for comparison in comparisons if math.isfinite(comparison.bound)}
    heights = _heights([*(number for number in numbers if number is not None), *bounds])
    marks = tuple(
        Mark(
            x,
            _BOTTOM if number is None else heights[number],
            _kind(measured, number, comparisons),
            measured,
        )
        for measured, number, x in zip(shown, numbers, _places(shown), strict=True)
    )
    runs = (list(run) for has, run in groupby(marks, lambda mark: mark.kind != "none") if has)
    return Plot(
        name=name,
        target=target,
        summary=_summary(marks),
        marks=marks,
        lines=tuple(" ".join(f"{mark.x},{mark.y}" for mark in run) for run in runs if run[1:]),
        rules=tuple(
            (heights[item.bound], f"{item.sign}{item.bound:g}")
            for item in comparisons
            if item.bound in bounds
        ),
    )


def _comparisons(target: str) -> tuple[Comparison, ...]:
    try:
        return parse_target(target) if target else ()
    except ValueError:
        return ()


def _number(measured: Try) -> float | None:
    try:
        number = parse_number(measured.value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _kind(measured: Try, number: float | None, target: tuple[Comparison, ...]) -> Kind:
    if number is None:
        return "none"
    if measured.status in _KINDS:
        return _KINDS[measured.status]
    return ("met" if is_met(target, number) else "unmet") if target else "plain"


def _heights(numbers: Sequence[float]) -> dict[float, int]:
    """Return the place of each number, the largest at the top; all equal ones in the middle."""
    # Halves, because the difference of two numbers can be infinite.
    low, high = min(numbers, default=0.0) / 2, max(numbers, default=0.0) / 2
    whole = high - low
    depth = _BOTTOM - _TOP
    return {
        number: _BOTTOM - round(depth * ((number / 2 - low) / whole if whole else 0.5))
        for number in numbers
    }


def _places(shown: Sequence[Try]) -> list[int]:
    """Return the x of each measurement, by its time if all are known and in order."""
    times = [when.timestamp() for when in (moment(item.time) for item in shown) if when]
    if len(times) < len(shown) or times != sorted(times) or times[0] == times[-1]:
        times = [float(number) for number in range(len(shown))]
    whole = times[-1] - times[0]
    middle = (_LEFT + _RIGHT) // 2
    return [
        _LEFT + round((_RIGHT - _LEFT) * (time - times[0]) / whole) if whole else middle
        for time in times
    ]


def _summary(marks: Sequence[Mark]) -> str:
    count = len(marks)
    text = f"{count} measurement{'s' if count != 1 else ''}"
    unmet = sum(mark.kind == "unmet" for mark in marks)
    missing = sum(mark.kind == "none" for mark in marks)
    if unmet:
        text = f"{unmet} of {text} did not meet the target"
        last = sum(1 for _ in takewhile(lambda mark: mark.kind == "unmet", reversed(marks)))
        if last > 1:
            text += f", the last {last} in a row"
    if missing:
        text += f"; {missing} without a value"
    return f"{text}; the last value is {marks[-1].measured.value or 'missing'}"
