"""Numbers and samples as providers return them, and as Keptn prints them in Go's formats."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from decimal import Decimal
from math import fsum
from typing import TYPE_CHECKING, Final, TypeGuard

from harbourmaster.api import quantities
from harbourmaster.providers.errors import (
    BadAnswerError,
    NotFiniteError,
    NoValuesError,
    TooLargeError,
    TooManyValuesError,
)
from harbourmaster.providers.model import Answer, Sample
from harbourmaster.providers.requests import one_line
from harbourmaster.telemetry.text import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from harbourmaster.providers.model import Question
    from harbourmaster.providers.requests import Reply


_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NON_FINITE: Final = re.compile(r"([+-]?)(?:(nan)|inf(?:inity)?)", re.IGNORECASE)
_SHOWN: Final = 40
"""Characters of an invalid number that an error shows."""
_MAX_TEXT: Final = 1100
"""The limit of characters in a number; Go prints no float with more."""


def format_shortest(number: float) -> str:
    """Format as Prometheus does (Go's ``'f', -1``), without an exponent: ``4``, ``0.25``."""
    text = format(Decimal(repr(float(number))), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def format_general(number: float, digits: int) -> str:
    """Format as Go's ``'g'`` with so many significant digits: ``0.25``, ``1.2346e+06``."""
    return format(float(number), f".{digits}g")


def format_fixed6(number: float) -> str:
    """Format as Go's ``%f``: ``12.000000``."""
    return format(float(number), ".6f")


def parse_finite(number: object) -> float:
    """Return a number, also of a text. Raises NotFiniteError or BadAnswerError."""
    if isinstance(number, str):
        return _parse_finite_text(number)
    if not is_number(number):
        what = "no value" if number is None else f"a {type(number).__name__}"
        raise BadAnswerError(f"the answer has {what} instead of a number")
    try:
        value = float(number)
    except OverflowError:
        value = math.inf if number > 0 else -math.inf
    return _check_finite(value)


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value of JSON is a number, which ``true`` and ``false`` are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def parse_quantity(text: str) -> float:
    """Parse a Kubernetes quantity: ``500m``, ``1.5``, ``2Gi``, ``1e3``. Raises BadAnswerError."""
    try:
        return parse_finite(text)
    except BadAnswerError:
        try:
            return _check_finite(float(quantities.parse_quantity(text)))
        except ValueError:
            pass
        raise


def _parse_finite_text(text: str) -> float:
    if len(text) <= _MAX_TEXT and _NUMBER.fullmatch(text):
        return _check_finite(float(text))
    match = _NON_FINITE.fullmatch(text)
    if match is None:
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
        raise BadAnswerError(f"the value '{clean(shown)}' is not a number")
    sign, is_nan = match.groups()
    return _check_finite(math.nan if is_nan else math.copysign(math.inf, -1 if sign == "-" else 1))


def _check_finite(number: float) -> float:
    if math.isfinite(number):
        return number
    shown = "NaN" if math.isnan(number) else f"{number:+}".title()
    raise NotFiniteError(f"the value is {shown}, expected a finite number")


MAX_SAMPLES: Final = 10_000
_YEAR_10000: Final = 253_402_300_800
WINDOW: Final = 300
"""Seconds of the default range, for APIs that require one."""
_SHOWN_NAMES: Final = 5
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
        shown = ", ".join(one_line(name) for name in names[:_SHOWN_NAMES])
        more = ", …" if len(names) > _SHOWN_NAMES else ""
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
