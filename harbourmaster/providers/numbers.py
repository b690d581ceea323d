"""Numbers as providers return them and as Keptn prints them, in Go's formats."""

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
"""Characters of a text that is not a number, in an error."""
_MAX_TEXT: Final = 1100
"""Characters of a number: Go prints no float with more."""
_QUANTITY: Final = re.compile(
    r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:([eE][+-]?[0-9]{1,3})|([KMGTPE]i|[numkMGTPE]))?"
)
_UNITS: Final = {
    **{unit: Decimal(1000) ** power for power, unit in enumerate(("n", "u", "m", ""), -3)},
    **{unit: Decimal(1000) ** power for power, unit in enumerate("kMGTPE", 1)},
    **{f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", 1)},
}


def format_shortest(number: float) -> str:
    """A finite number as Prometheus prints it (Go's ``'f', -1``): ``4``, ``0.25``, no exponent."""
    text = format(Decimal(repr(float(number))), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def format_general(number: float, digits: int) -> str:
    """Go's ``'g'`` with so many significant digits: ``0.25``, ``1.2346e+06``."""
    return format(float(number), f".{digits}g")


def format_fixed6(number: float) -> str:
    """Go's ``%f``: ``12.000000``."""
    return format(float(number), ".6f")


def parse_finite(number: object) -> float:
    """A number, or the number in a text. Raises NotFiniteError, or BadAnswerError if it is none."""
    if isinstance(number, str):
        return _finite_text(number)
    if not is_number(number):
        what = "no value" if number is None else f"a {type(number).__name__}"
        raise BadAnswerError(f"the answer has {what} instead of a number")
    try:
        found = float(number)
    except OverflowError:
        found = math.inf if number > 0 else -math.inf
    return _checked(found)


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value of JSON is a number, which ``true`` and ``false`` are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def parse_quantity(text: str) -> float:
    """A quantity of Kubernetes: ``500m``, ``1.5``, ``2Gi``, ``1e3``. Raises BadAnswerError."""
    found = _QUANTITY.fullmatch(text) if len(text) <= _MAX_TEXT else None
    if found is None:
        return parse_finite(text)
    number, exponent, unit = found.groups()
    return _checked(float(Decimal(number + (exponent or "")) * _UNITS[unit or ""]))


def _finite_text(text: str) -> float:
    if len(text) <= _MAX_TEXT and _NUMBER.fullmatch(text):
        return _checked(float(text))
    match = _NON_FINITE.fullmatch(text)
    if match is None:
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
        raise BadAnswerError(f"the value '{clean(shown)}' is not a number")
    return _checked(math.nan if match[2] else math.copysign(math.inf, -1 if match[1] == "-" else 1))


def _checked(number: float) -> float:
    if math.isfinite(number):
        return number
    shown = "NaN" if math.isnan(number) else f"{number:+}".title()
    raise NotFiniteError(f"the value is {shown}, expected a finite number")
