"""JSON as Go's ``encoding/json`` writes it, so that users see the same text as with Keptn."""

from __future__ import annotations

import json
import math
from typing import Any, Final

_ESCAPED: Final = {ord(each): f"\\u{ord(each):04x}" for each in "<>&\u2028\u2029"}
_SMALL: Final = 1e-6
_LARGE: Final = 1e21
"""From this value on, and below the former, numbers have exponents."""


def dumps(value: Any) -> str:  # noqa: ANN401 - what JSON has
    """Compact, keys in their order, ``<``, ``>`` and ``&`` escaped. Raises ValueError for NaN."""
    match value:
        case None | bool():
            return json.dumps(value)
        case int():
            return str(value)
        case float():
            return number(value)
        case str():
            return _string(value)
        case dict():
            parts = (f"{_string(name)}:{dumps(each)}" for name, each in value.items())
            return f"{{{','.join(parts)}}}"
        case list() | tuple():
            return f"[{','.join(dumps(each) for each in value)}]"
    raise TypeError(f"JSON has no {type(value).__name__}")


def number(value: float) -> str:
    """The shortest digits that give the same float again: ``4``, ``0.25``, ``1e-7``, ``1e+21``."""
    if not math.isfinite(value):
        raise ValueError(f"JSON has no {value}")
    if value == 0:
        return "-0" if math.copysign(1, value) < 0 else "0"
    digits, exponent = _shortest(abs(value))
    sign = "-" if value < 0 else ""
    if _SMALL <= abs(value) < _LARGE:
        return sign + _plain(digits, exponent)
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{fraction}e{exponent:+d}"


def _shortest(value: float) -> tuple[str, int]:
    """The digits without zeros at the ends, and the exponent of the first one."""
    mantissa, _, exponent = f"{value!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    first = len(whole) - 1 - (len(whole + fraction) - len(digits))
    return digits.rstrip("0"), first + int(exponent or 0)


def _plain(digits: str, exponent: int) -> str:
    if exponent < 0:
        return f"0.{'0' * (-exponent - 1)}{digits}"
    whole = digits[: exponent + 1].ljust(exponent + 1, "0")
    fraction = digits[exponent + 1 :]
    return f"{whole}.{fraction}" if fraction else whole


def _string(value: str) -> str:
    # A lone surrogate is not valid text, in Go neither.
    text = value.encode(errors="replace").decode()
    return json.dumps(text, ensure_ascii=False).translate(_ESCAPED)
