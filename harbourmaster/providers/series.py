"""Samples from the points of an answer, and the one value that Keptn shows."""

from __future__ import annotations

from datetime import UTC, datetime
from math import fsum
from typing import TYPE_CHECKING, Final

from harbourmaster.providers.errors import (
    BadAnswerError,
    NotFiniteError,
    NoValuesError,
    TooLargeError,
    TooManyValuesError,
)
from harbourmaster.providers.model import Answer, Sample
from harbourmaster.providers.numbers import parse_finite
from harbourmaster.providers.replies import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from harbourmaster.providers.model import Question
    from harbourmaster.providers.replies import Reply

MAX_SAMPLES: Final = 10_000
_YEAR_10000: Final = 253_402_300_800
WINDOW: Final = 300
"""Seconds before now, for APIs that always need a range."""
_SHOWN: Final = 5
"""Names of values that an error lists."""


def time_window(question: Question, now: float) -> tuple[float, float]:
    """Start and end of the range; by default ``WINDOW`` up to ``now``."""
    end = now if question.end is None else question.end
    return (end - WINDOW if question.start is None else question.start), end


def format_time(seconds: float) -> str:
    """A time in seconds since 1970 as RFC 3339 in UTC, with milliseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def only_name(names: Sequence[str]) -> str:
    """The only name of a value. Raises TooManyValuesError, which lists the first ones."""
    if len(names) > 1:
        shown = ", ".join(one_line(name) for name in names[:_SHOWN])
        more = ", …" if len(names) > _SHOWN else ""
        raise TooManyValuesError(f"too many values in query result: {shown}{more}")
    return names[0]


def to_samples(points: Iterable[tuple[float, object]]) -> tuple[Sample, ...]:
    """The ``points`` (time, value) that have a value, the oldest first."""
    found: list[Sample] = []
    for time, value in points:
        if value is None:
            continue
        if len(found) == MAX_SAMPLES:
            raise TooLargeError(f"the answer has more than {MAX_SAMPLES} values: ask for fewer")
        if not 0 <= time < _YEAR_10000:
            raise BadAnswerError("the answer has a value with an invalid time")
        found.append(Sample(time, parse_finite(value)))
    if not found:
        raise NoValuesError("no values in query result")
    return tuple(sorted(found, key=lambda sample: sample.time))


def average_answer(
    found: tuple[Sample, ...], question: Question, reply: Reply, write: Callable[[float], str]
) -> Answer:
    """The mean, with the time of the newest sample; with a step, all samples are kept."""
    try:
        value = fsum(sample.value for sample in found) / len(found)
    except OverflowError:
        raise NotFiniteError("the sum of the values is infinite") from None
    kept = (Sample(found[-1].time, value),) if question.step is None else found
    return Answer(value=write(value), samples=kept, raw=reply.body)
