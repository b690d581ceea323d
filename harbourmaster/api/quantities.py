"""Kubernetes' quantities, as its Go library parses and prints them: ``500m``, ``1.5Gi``, ``1e3``.

A quantity keeps the family of its suffix and is printed with the largest one that needs no
fraction. One that is close enough to that is printed as it was written, though: ``1.500`` stays
``1.500`` where ``1.5`` becomes ``1500m``.
"""

from __future__ import annotations

import re
from decimal import ROUND_UP, Context, Decimal
from enum import Enum
from typing import Final

from msgspec import Struct

_TEXT: Final = re.compile(
    r"(?P<sign>[+-]?)0*(?P<whole>\d*)(?:\.(?P<fraction>\d*))?"
    r"(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<exponent>[+-]?\d+))?",
    re.ASCII,
)
_DECIMAL: Final = dict(
    zip(("n", "u", "m", "", "k", "M", "G", "T", "P", "E"), range(-9, 19, 3), strict=True)
)
_BINARY: Final = dict(zip(("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), range(0, 70, 10), strict=True))
_DECIMAL_BY_EXPONENT: Final = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_BY_EXPONENT: Final = {exponent: suffix for suffix, exponent in _BINARY.items()}
_SMALLEST: Final = Decimal("1e-9")
_LARGEST_BINARY: Final = Decimal(2**63 - 1)
_LONGEST: Final = 128
"""Characters of a quantity; real ones are shorter."""
_EXPONENTS: Final = 300
"""Nearly the largest float."""
_EXACT: Final = Context(prec=1000)
_SHORT: Final = 18
"""Digits that always fit into 64 bits."""
_SHORT_BINARY: Final = 14
_BINARY_UNIT: Final = 1024


class _Family(Enum):
    """The family of suffixes with which a quantity is printed."""

    DECIMAL = 0
    BINARY = 1
    EXPONENT = 2


class Quantity(Struct, frozen=True, gc=False):
    """A number, exactly, and how the API prints it."""

    value: Decimal
    text: str

    def __float__(self) -> float:
        return float(self.value)


def parse_quantity(given: str | float) -> Quantity:
    """Parse a quantity as it is in JSON. Raises ValueError with one line."""
    text = str(given).strip() if isinstance(given, str) else repr(given)
    shown = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
    match = _TEXT.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None or isinstance(given, bool) or not any(map(str.isdigit, text)):
        raise ValueError(f"{shown!r} is not a quantity: write for example 5, 0.5, 500m or 1Gi")
    exponent = int(match["exponent"] or 0)
    if abs(exponent) > _EXPONENTS:
        raise ValueError(f"{shown!r} is out of range")
    suffix = match["suffix"] or ""
    if suffix.endswith("i"):
        return _binary(text, match, _BINARY[suffix])
    if match["exponent"] is not None:
        return _decimal(text, match, exponent, _Family.EXPONENT)
    return _decimal(text, match, _DECIMAL[suffix], _Family.DECIMAL)


def _decimal(text: str, match: re.Match[str], exponent: int, family: _Family) -> Quantity:
    whole, fraction = match["whole"] or "0", match["fraction"] or ""
    digits, scale = whole + fraction, exponent - len(fraction)
    value = _apply_sign(match, Decimal(f"{digits}e{scale}"))
    if len(digits) <= _SHORT and scale >= _DECIMAL["n"]:
        if scale % 3 == 0 and digits[0] != "0" and not digits.endswith("000"):
            return Quantity(value, text)
        return Quantity(value, _format(value, family))
    value = _round_up(value)
    return Quantity(value, _format(value, family))


def _binary(text: str, match: re.Match[str], exponent: int) -> Quantity:
    whole, fraction = match["whole"] or "0", match["fraction"] or ""
    is_short = len(whole) + exponent * 3 // 10 <= _SHORT_BINARY
    value = _EXACT.multiply(Decimal(f"{whole}.{fraction}"), Decimal(2**exponent))
    if not fraction and is_short:
        value = _apply_sign(match, value)
        # A multiple of eight can have a larger suffix.
        is_shortest = int(whole) % 8 != 0
        return Quantity(value, text if is_shortest else _format(value, _Family.BINARY))
    value = min(_round_up(value), _LARGEST_BINARY)
    family = _Family.DECIMAL if 0 < value < 1 else _Family.BINARY
    value = _apply_sign(match, value)
    return Quantity(value, _format(value, family))


def _apply_sign(match: re.Match[str], value: Decimal) -> Decimal:
    return value.copy_negate() if match["sign"] == "-" else value


def _round_up(value: Decimal) -> Decimal:
    """Round away from zero to a multiple of the smallest unit."""
    return value.quantize(_SMALLEST, ROUND_UP, _EXACT)


def _format(value: Decimal, family: _Family) -> str:
    if value == 0:
        return "0"
    if family is _Family.BINARY:
        # Small numbers and fractions would lose precision.
        if abs(value) >= _BINARY_UNIT and value == value.to_integral_value():
            return _format_binary(int(value))
        family = _Family.DECIMAL
    sign, digits, exponent = _EXACT.normalize(value).as_tuple()
    number = int("".join(map(str, digits)))
    shift = int(exponent) % 3
    number, power = number * 10**shift, int(exponent) - shift
    text = f"-{number}" if sign else str(number)
    if family is _Family.DECIMAL and power in _DECIMAL_BY_EXPONENT:
        return text + _DECIMAL_BY_EXPONENT[power]
    return f"{text}e{power}" if power else text


def _format_binary(number: int) -> str:
    exponent = 0
    while number % _BINARY_UNIT == 0:
        number //= _BINARY_UNIT
        exponent += 10
    return f"{number}{_BINARY_BY_EXPONENT[exponent]}"
