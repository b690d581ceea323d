"""Aggregations of many values into one (keptn-spec 4.2)."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def aggregate(name: str, values: Sequence[float]) -> float:
    """Aggregate finite ``values``, at least one; ``name`` is one of AGGREGATIONS."""
    return AGGREGATIONS[name](sorted(values))


def print_number(value: float) -> str:
    """The shortest digits that give the number back, without an exponent, as Go prints them."""
    text = f"{Decimal(repr(value)):f}"
    return text.removesuffix(".0")


def _percentile(percent: int) -> Callable[[Sequence[float]], float]:
    return lambda ordered: ordered[-(-len(ordered) * percent // 100) - 1]


def _average(ordered: Sequence[float]) -> float:
    count = len(ordered)
    try:
        found = math.fsum(ordered) / count
    except OverflowError:
        found = math.fsum(each / count for each in ordered)
    # Rounding can leave the range of the values.
    return min(max(found, ordered[0]), ordered[-1])


def _median(ordered: Sequence[float]) -> float:
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return _average(ordered[middle - 1 : middle + 1])


AGGREGATIONS: Final[dict[str, Callable[[Sequence[float]], float]]] = {
    "max": lambda ordered: ordered[-1],
    "min": lambda ordered: ordered[0],
    "avg": _average,
    "median": _median,
    "p90": _percentile(90),
    "p95": _percentile(95),
    "p99": _percentile(99),
}
