"""The samples of an answer, and the value that Keptn shows."""

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
"""Seconds of the default range, for APIs that require one."""
_SHOWN: Final = 5
"""The limit of names that an error lists."""


def window(question: Question, now: float) -> tuple[float, float]:
    """Return start and end of the range, by default ``WINDOW`` seconds up to ``now``."""
    end = now if question.end is None else question.end
    return (end - WINDOW if question.start is None else question.start), end


def format_time(seconds: float) -> str:
    """Format seconds since 1970 as RFC 3339 in UTC with milliseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def only_name(names: Sequence[str]) -> str:
    """Return the only name. Raises TooManyValuesError, which lists the first ones."""
    if len(names) > 1:
        shown = ", ".join(one_line(name) for name in names[:_SHOWN])
        more = ", …" if len(names) > _SHOWN else ""
        raise TooManyValuesError(f"too many values in query result: {shown}{more}")
    return names[0]


def to_samples(points: Iterable[tuple[float, object]]) -> tuple[Sample, ...]:
    """Return the points (time, value) that have a value, the oldest first. Raises ProviderError."""
    samples: list[Sample] = []
    for time, value in points:
        if value is None:
            continue
        if len(samples) == MAX_SAMPLES:
            raise TooLargeError(f"the answer has more than {MAX_SAMPLES} values: ask for fewer")
        if not 0 <= time < _YEAR_10000:
            raise BadAnswerError("the answer has a value with an invalid time")
        samples.append(Sample(time, parse_finite(value)))
    if not samples:
        raise NoValuesError("no values in query result")
    return tuple(sorted(samples, key=lambda sample: sample.time))


def average_answer(
    samples: tuple[Sample, ...], question: Question, reply: Reply, write: Callable[[float], str]
) -> Answer:
    """Return the mean, with the time of the newest sample; with a step, with all samples."""
    try:
        value = fsum(sample.value for sample in samples) / len(samples)
    except OverflowError:
        raise NotFiniteError("the sum of the values is infinite") from None
    shown = (Sample(samples[-1].time, value),) if question.step is None else samples
    return Answer(value=write(value), samples=shown, raw=reply.body)
