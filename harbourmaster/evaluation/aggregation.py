"""Aggregations of many values into one (keptn-spec 4.2)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def aggregate(name: str, values: Sequence[float]) -> float:
    """Aggregate one or more finite ``values``; ``name`` is a key of AGGREGATIONS."""
    return AGGREGATIONS[name](sorted(values))


def _percentile(percent: int) -> Callable[[Sequence[float]], float]:
    return lambda ordered: ordered[-(-len(ordered) * percent // 100) - 1]


def _average(ordered: Sequence[float]) -> float:
    count = len(ordered)
    try:
        mean = math.fsum(ordered) / count
    except OverflowError:
        mean = math.fsum(value / count for value in ordered)
    # Rounding can leave the range of the values.
    return min(max(mean, ordered[0]), ordered[-1])


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
