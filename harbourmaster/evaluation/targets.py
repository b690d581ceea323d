"""Targets of objectives: ``>5``, ``<=1e3``, ``>=10,<20`` (keptn-spec 4.1)."""

from __future__ import annotations

import math
import operator
import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable

_COMPARISONS: Final[dict[str, Callable[[float, float], bool]]] = {
    # Longer operators first: otherwise the rest of ">=5" would be "=5".
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
"""Common mistakes in operators, the longer ones first."""
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
    """A comparison of a value with ``bound``."""

    sign: str
    bound: float

    def holds(self, value: float) -> bool:
        """Return whether the comparison is true for ``value``."""
        return _COMPARISONS[self.sign](value, self.bound)


def parse_target(text: str) -> tuple[Comparison, ...]:
    """Return the comparisons, all of which must be true. Raises ValueError with one line."""
    try:
        return _parse_comparisons(text)
    except ValueError as error:
        fault, remedy = error.args
        if suggestion := _suggest(text):
            remedy = f"did you mean '{suggestion}'?"
        raise ValueError(f"{fault}: {remedy}") from None


def parse_number(text: str) -> float:
    """Return a number in Go's syntax: ``-5``, ``1e3``, ``1_000``, ``0x1p-2``, ``Inf``, ``NaN``.

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
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"'{shorten(text)}' is out of range")
    return number


def is_met(target: tuple[Comparison, ...], value: float) -> bool:
    """Return whether ``value`` meets all comparisons; an infinity or NaN never does.

    Otherwise, a division by zero could pass.
    """
    return math.isfinite(value) and all(comparison.holds(value) for comparison in target)


def shorten(text: str) -> str:
    """Return the text as one line of at most 128 printable characters, for a message."""
    characters = text[: _LONGEST + 1]
    line = "".join(character if character.isprintable() else " " for character in characters)
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."


def _parse_comparisons(text: str) -> tuple[Comparison, ...]:
    return tuple(_parse_comparison(part, text) for part in _SEPARATOR.split(text))


def _suggest(text: str) -> str:
    """Return the target that was probably meant; empty if unknown."""
    if len(text) > _LONGEST:
        return ""
    parts = "".join(text.split()).split(",")
    for index, part in enumerate(parts):
        wrong = "" if part.startswith("==") else next(filter(part.startswith, _MEANT), "")
        if wrong:
            parts[index] = _MEANT[wrong] + part.removeprefix(wrong)
        # The unit is the one of the metric.
        parts[index] = parts[index].removesuffix("%")
    try:
        _parse_comparisons(",".join(parts))
    except ValueError:
        return ""
    return ",".join(parts)


def _parse_comparison(part: str, whole: str) -> Comparison:
    for sign in _COMPARISONS:
        if part.startswith(sign):
            try:
                return Comparison(sign, parse_number(part.removeprefix(sign)))
            except ValueError as error:
                fault = f"objective '{shorten(whole)}': {error}"
                raise ValueError(fault, "write a number without a unit") from None
    remedy = f"write one of {', '.join(sorted(_COMPARISONS))} before a number"
    if not whole:
        # YAML takes the > of >5 for the start of a block of text.
        remedy += ", and put both in quotes"
    raise ValueError(f"invalid operator in objective '{shorten(whole)}'", remedy)
