"""Label constraints: ``location is DE``, ``location not in (DE, SK)`` (krake-spec 2.1, 2.4).

Without the label none of them holds, not even ``is not`` and ``not in``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from harbourmaster.placement.lexer import ConstraintReader, TokenKind

if TYPE_CHECKING:
    from collections.abc import Mapping

Operator = Literal["is", "is not", "in", "not in"]

_OPERATORS: Final[dict[tuple[str, ...], Operator]] = {
    ("=",): "is",
    ("==",): "is",
    ("is",): "is",
    ("!=",): "is not",
    ("is", "not"): "is not",
    ("in",): "in",
    ("not", "in"): "not in",
}
_KNOWN: Final = "one of =, ==, is, !=, is not, in, not in"
_VALUE: Final = "a label value"


class LabelConstraint(Struct, frozen=True):
    """One constraint; only ``in`` and ``not in`` have several values, in the order given."""

    key: str
    operator: Operator
    values: tuple[str, ...]

    @property
    def canonical(self) -> str:
        """The one spelling that every other one means."""
        listed = ", ".join(self.values)
        shown = f"({listed})" if self.operator in {"in", "not in"} else listed
        return f"{self.key} {self.operator} {shown}"

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether labels are as it wants them."""
        label = labels.get(self.key)
        if label is None:
            return False
        return (label in self.values) is (self.operator in {"is", "in"})

    def mismatch(self, labels: Mapping[str, str]) -> str:
        """Why labels aren't as it wants them; empty where they are."""
        if self.holds(labels):
            return ""
        label = labels.get(self.key)
        why = f"the label is '{label}'" if label is not None else "the label is missing"
        return f"label constraint '{self.canonical}': {why}"


@lru_cache(maxsize=4096)
def parse_label(expression: str) -> LabelConstraint:
    """Read a constraint. Raises ConstraintError."""
    reader = ConstraintReader(expression)
    key = reader.key("a label key")
    operator = reader.operator(_OPERATORS, _KNOWN)
    values = _list(reader) if operator in {"in", "not in"} else (reader.value(_VALUE),)
    reader.end()
    return LabelConstraint(key, operator, values)


def _list(reader: ConstraintReader) -> tuple[str, ...]:
    """``(a, b)``, commas at the end as many as anybody likes."""
    reader.needs("(")
    values = [reader.value(_VALUE)]
    while reader.takes(","):
        if reader.token.kind is TokenKind.WORD:
            values.append(reader.value(_VALUE))
            continue
        while reader.takes(","):
            pass
        break
    reader.needs(")")
    return tuple(values)
