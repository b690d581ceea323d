"""What a value must be: ``>5``, ``<=1e3``, ``>=10,<20`` (keptn-spec 4.1)."""

from __future__ import annotations

import math
import operator
import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable

_COMPARISONS: Final[dict[str, Callable[[float, float], bool]]] = {
    # Two characters first: the rest of ">=5" would be no number.
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}
_MEANT: Final = {
    "=>": ">=",
    "=<": "<=",
    "<>": "!=",
    "\N{GREATER-THAN OR EQUAL TO}": ">=",
    "\N{LESS-THAN OR EQUAL TO}": "<=",
    "=": "==",
}
"""What people write for a comparison; the longer ones first."""
_LONGEST: Final = 128
"""Characters of a text that a message shows."""
_SEPARATOR: Final = re.compile(r" *, *")
_DIGITS: Final = r"[0-9]+(?:_[0-9]+)*"
_HEX: Final = r"[0-9a-f]+(?:_[0-9a-f]+)*"
_DECIMAL: Final = re.compile(
    rf"[+-]?(?:{_DIGITS}\.?|(?:{_DIGITS})?\.{_DIGITS})(?:e[+-]?{_DIGITS})?", re.IGNORECASE
)
_HEXADECIMAL: Final = re.compile(
    rf"[+-]?0x(?:_?{_HEX}\.?|(?:_?{_HEX})?\.{_HEX})p[+-]?{_DIGITS}", re.IGNORECASE
)
_SPECIAL: Final = re.compile(r"nan|[+-]?inf(?:inity)?", re.IGNORECASE)


class Comparison(Struct, frozen=True, gc=False):
    """One comparison with ``bound``."""

    sign: str
    bound: float

    def holds(self, value: float) -> bool:
        """Whether ``value`` is as wanted."""
        return _COMPARISONS[self.sign](value, self.bound)


def parse_target(text: str) -> tuple[Comparison, ...]:
    """The conditions, all of which must hold. Raises ValueError with one line."""
    try:
        return _conditions(text)
    except ValueError as error:
        near = _meant(text)
        raise ValueError(f"{error}: did you mean '{near}'?" if near else str(error)) from None


def parse_number(text: str) -> float:
    """A number in Go's syntax: ``10``, ``-5``, ``1e3``, ``1_000``, ``0x1p-2``, ``Inf``, ``NaN``.

    Raises ValueError with one line.
    """
    if _HEXADECIMAL.fullmatch(text):
        try:
            return float.fromhex(text.replace("_", ""))
        except OverflowError:
            raise ValueError(f"'{shorten(text)}' is out of range") from None
    if _SPECIAL.fullmatch(text):
        return float(text)
    if not _DECIMAL.fullmatch(text):
        raise ValueError(f"'{shorten(text)}' is not a number")
    found = float(text)
    if math.isinf(found):
        raise ValueError(f"'{shorten(text)}' is out of range")
    return found


def is_met(target: tuple[Comparison, ...], value: float) -> bool:
    """Whether ``value`` meets all conditions; one that is not finite never does.

    A division by zero would pass otherwise.
    """
    return math.isfinite(value) and all(condition.holds(value) for condition in target)


def shorten(text: str) -> str:
    """One line of the text, for people."""
    line = "".join(each if each.isprintable() else " " for each in text[: _LONGEST + 1])
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."


def _conditions(text: str) -> tuple[Comparison, ...]:
    return tuple(_condition(part, text) for part in _SEPARATOR.split(text))


def _meant(text: str) -> str:
    """The target that was probably meant; empty where that is unknown."""
    if len(text) > _LONGEST:
        return ""
    parts = "".join(text.split()).split(",")
    for index, part in enumerate(parts):
        wrong = "" if part.startswith("==") else next(filter(part.startswith, _MEANT), "")
        if wrong:
            parts[index] = _MEANT[wrong] + part.removeprefix(wrong)
    try:
        _conditions(",".join(parts))
    except ValueError:
        return ""
    return ",".join(parts)


def _condition(part: str, whole: str) -> Comparison:
    for sign in _COMPARISONS:
        if part.startswith(sign):
            try:
                return Comparison(sign, parse_number(part.removeprefix(sign)))
            except ValueError as error:
                raise ValueError(f"objective '{shorten(whole)}': {error}") from None
    raise ValueError(
        f"invalid operator in objective '{shorten(whole)}': "
        f"write one of {', '.join(sorted(_COMPARISONS))} before a number"
    )
