"""Metric constraints: ``load greater than 5``, ``load<=5`` (krake-spec 2.2, 2.4).

Bounds are finite numbers. Without the metric none of them holds, not even ``is not``.
"""

from __future__ import annotations

import math
import operator
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from harbourmaster.placement.lexer import ConstraintReader

if TYPE_CHECKING:
    from collections.abc import Callable

Operator = Literal[
    "is",
    "is not",
    "greater than",
    "greater than or equal",
    "lesser than",
    "lesser than or equal",
]

_COMPARISONS: Final[dict[Operator, Callable[[float, float], bool]]] = {
    "is": operator.eq,
    "is not": operator.ne,
    "greater than": operator.gt,
    "greater than or equal": operator.ge,
    "lesser than": operator.lt,
    "lesser than or equal": operator.le,
}
_SPELLINGS: Final[dict[Operator, tuple[str, ...]]] = {
    "is": ("=", "==", "is"),
    "is not": ("!=", "is not"),
    "greater than": (">", "gt", "greater than"),
    "greater than or equal": (">=", "=>", "gte", "greater than or equal"),
    "lesser than": ("<", "lt", "lesser than", "less than"),
    "lesser than or equal": ("<=", "=<", "lte", "lesser than or equal", "less than or equal"),
}
_OPERATORS: Final = {
    tuple(spelling.split()): each
    for each, spellings in _SPELLINGS.items()
    for spelling in spellings
}
_KNOWN: Final = "one of =, !=, >, >=, <, <=, is, is not, greater than [or equal], less than [...]"
_NUMBER: Final = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?", re.ASCII)


class MetricConstraint(Struct, frozen=True, gc=False):
    """One constraint; the bound is kept as it was written."""

    key: str
    operator: Operator
    bound: str

    @property
    def number(self) -> float:
        """The bound."""
        return float(self.bound)

    @property
    def canonical(self) -> str:
        """The one spelling that every other one means."""
        return f"{self.key} {self.operator} {self.bound}"

    def holds(self, value: float | None) -> bool:
        """Whether a value is as it wants it; None where there is none."""
        return value is not None and _COMPARISONS[self.operator](value, self.number)

    def mismatch(self, value: float | None) -> str:
        """Why a value isn't as it wants it; empty where it is."""
        if self.holds(value):
            return ""
        why = f"the value is {value:g}" if value is not None else "the metric is missing"
        return f"metric constraint '{self.canonical}': {why}"


@lru_cache(maxsize=4096)
def parse_metric(expression: str) -> MetricConstraint:
    """Read a constraint. Raises ConstraintError."""
    reader = ConstraintReader(expression)
    key = reader.key("the name of a metric")
    found = reader.operator(_OPERATORS, _KNOWN)
    token = reader.word("a number")
    if not _NUMBER.fullmatch(token.text):
        raise reader.fault(f"expected a number such as 5, -0.5 or 1e3, found {token}", token)
    if not math.isfinite(float(token.text)):
        raise reader.fault(f"the number {token} is too large", token)
    reader.end()
    return MetricConstraint(key, found, token.text)
