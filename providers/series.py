"""Samples from the points of an answer, and the one value that Keptn shows."""

from __future__ import annotations

from math import fsum
from typing import TYPE_CHECKING, Final

from harbourmaster.providers.errors import (
    BadAnswerError,
    NotFiniteError,
    NoValuesError,
    TooLargeError,
)
from harbourmaster.providers.model import Sample
from harbourmaster.providers.numbers import finite

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harbourmaster.providers.model import Question

MAX_SAMPLES: Final = 10_000
_YEAR_10000: Final = 253_402_300_800
WINDOW: Final = 300
"""Seconds back from now, for APIs that always want a range."""


def window(question: Question, now: float) -> tuple[float, float]:
    """From when to when is asked; what the question leaves open is ``WINDOW`` up to ``now``."""
    end = now if question.end is None else question.end
    return (end - WINDOW if question.start is None else question.start), end


def samples(points: Iterable[tuple[float, object]]) -> tuple[Sample, ...]:
    """Those ``points`` (time, value) that have a value, the oldest first."""
    found: list[Sample] = []
    for time, value in points:
        if value is None:
            continue
        if len(found) == MAX_SAMPLES:
            raise TooLargeError(f"the answer has more than {MAX_SAMPLES} values: ask for fewer")
        if not 0 <= time < _YEAR_10000:
            raise BadAnswerError("the answer has a value with an invalid time")
        found.append(Sample(time, finite(value)))
    if not found:
        raise NoValuesError("no values in query result")
    return tuple(sorted(found, key=lambda sample: sample.time))


def mean(of: tuple[Sample, ...]) -> Sample:
    """The mean, as old as the newest of them."""
    try:
        value = fsum(sample.value for sample in of) / len(of)
    except OverflowError:
        raise NotFiniteError("the sum of the values is infinite") from None
    return Sample(of[-1].time, value)
