"""Numbers as providers return them, and as Keptn prints them in Go's formats."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Final, TypeGuard

from harbourmaster.providers.errors import BadAnswerError, NotFiniteError
from harbourmaster.telemetry.text import clean

_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NON_FINITE: Final = re.compile(r"([+-]?)(?:(nan)|inf(?:inity)?)", re.IGNORECASE)
_SHOWN: Final = 40
"""Characters of an invalid number that an error shows."""
_MAX_TEXT: Final = 1100
"""The limit of characters in a number; Go prints no float with more."""
_QUANTITY: Final = re.compile(
    r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:([eE][+-]?[0-9]{1,3})|([KMGTPE]i|[numkMGTPE]))?"
)
_UNITS: Final = {
    **{unit: Decimal(1000) ** power for power, unit in enumerate(("n", "u", "m", ""), -3)},
    **{unit: Decimal(1000) ** power for power, unit in enumerate("kMGTPE", 1)},
    **{f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", 1)},
}


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
    match = _QUANTITY.fullmatch(text) if len(text) <= _MAX_TEXT else None
    if match is None:
        return parse_finite(text)
    number, exponent, unit = match.groups()
    return _check_finite(float(Decimal(number + (exponent or "")) * _UNITS[unit or ""]))


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
