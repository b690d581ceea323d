"""Amounts of several resources in one integer, so that they are added and compared at once.

Each resource has a field of its own, with the highest bit as a guard: a sum of signed amounts to
which ``guard`` was added has all guards set exactly if no amount is negative.
"""

from __future__ import annotations

import math
from itertools import repeat
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from harbourmaster.rescheduling.model import Requests

_WIDTH: Final = 80
"""Bits; amounts have 63 at most, and thousands of them may be added."""
_HALF: Final = 1 << (_WIDTH - 1)
_MASK: Final = (1 << _WIDTH) - 1
_ALWAYS: Final = ("cpu", "memory")
MILLION: Final = 1_000_000
_REMEMBERED: Final = 50_000
UNBEARABLE: Final = 1 << 40
"""What weighs so much is never kept; it stands in the field of pods, which is the lowest one."""


class Weight(NamedTuple):
    """What a pod uses: packed, by resource, and of those resources whose use is counted."""

    requests: Requests
    packed: int
    amounts: tuple[int, ...]
    counted: tuple[int, ...]


class Scale:
    """Weighs pods by the resources ``names``, and by their number.

    ``counted`` are the resources by which it is told how much is taken from a node: CPU, memory,
    and those extended ones that are among ``names``.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.counted = (*_ALWAYS, *(name for name in names if "/" in name))
        self.are_counted = tuple(name in self.counted for name in names)
        self._places = tuple(_WIDTH * index for index in range(len(names) + 1))
        self._above = self._places[1:]
        self.guard = sum(_HALF << place for place in self._places)
        self._weights: dict[int, Weight] = {}

    def weigh(self, requests: Requests) -> Weight:
        """What one pod with these requests uses; remembered by identity."""
        found = self._weights.get(id(requests))
        if found is not None and found.requests is requests:
            return found
        if len(self._weights) >= _REMEMBERED:
            self._weights.clear()
        by_name = dict(requests)
        amounts = tuple(by_name.get(name, 0) for name in self.names)
        counted = tuple(by_name.get(name, 0) for name in self.counted)
        found = Weight(requests, self.pack(1, amounts), amounts, counted)
        self._weights[id(requests)] = found
        return found

    def pack(self, pods: int, amounts: Iterable[int]) -> int:
        """A number of pods and what they use, by resource, as one integer."""
        packed = pods
        for place, amount in zip(self._above, amounts, strict=True):
            packed += amount << place
        return packed

    def pack_all(self, pods: list[int], amounts: Iterable[Iterable[int]]) -> list[int]:
        """The same of many; the amounts are given resource by resource."""
        packed = pods
        for place, several in zip(self._above, amounts, strict=True):
            packed = [
                each + (amount << place) for each, amount in zip(packed, several, strict=True)
            ]
        return packed

    def is_enough(self, packed: int) -> bool:
        """Whether no amount is negative."""
        return (packed + self.guard) & self.guard == self.guard

    def amounts(self, packed: int) -> list[int]:
        """The number of pods, then the amounts by resource, all perhaps negative."""
        rest = packed + self.guard
        return [((rest >> place) & _MASK) - _HALF for place in self._places]


def largest_part(amounts: Iterable[int], available: Iterable[int]) -> float:
    """The largest part of a node's resources that a pod uses; infinite of those it hasn't."""
    largest = 0.0
    for amount, whole in zip(amounts, available, strict=True):
        if amount > 0:
            part = amount / whole if whole > 0 else math.inf
            # Not max(), which takes four times as long.
            if part > largest:  # noqa: PLR1730
                largest = part
    return largest


def largest_parts(amounts: Iterable[Sequence[int]], available: Iterable[int]) -> Iterable[float]:
    """The same of many pods, whose amounts are given resource by resource."""
    parts = [
        [amount / whole if amount else 0.0 for amount in several]
        if whole > 0
        else [math.inf if amount else 0.0 for amount in several]
        for several, whole in zip(amounts, available, strict=True)
    ]
    return map(max, repeat(0.0), *parts) if parts else repeat(0.0)


def millionths(amounts: Iterable[Iterable[int]], available: Iterable[int]) -> list[int]:
    """What pods take of a node: each resource's part rounded up, and those of a pod added up.

    ``amounts`` has those of all pods, resource by resource.
    """
    parts = [
        [-(-amount * MILLION // (whole or 1)) for amount in several]
        for several, whole in zip(amounts, available, strict=True)
    ]
    return [sum(each) for each in zip(*parts, strict=True)]
