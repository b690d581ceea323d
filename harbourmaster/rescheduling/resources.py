"""Amounts of several resources as one tuple: the number of pods first, then one per resource."""

from __future__ import annotations

import math
from operator import sub
from typing import TYPE_CHECKING, Final, TypeAlias

from harbourmaster.rescheduling.requests import PODS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from harbourmaster.rescheduling.model import Node, Requests

Amounts: TypeAlias = tuple[int, ...]

_ALWAYS_COUNTED: Final = ("cpu", "memory")
_MILLION: Final = 1_000_000


class Scale:
    """Turns requests into amounts of the resources ``names``."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(names)
        self._counted = (*_ALWAYS_COUNTED, *(name for name in self.names if "/" in name))
        self._amounts: dict[Requests, Amounts] = {}

    def of(self, requests: Requests) -> Amounts:
        """Return the amounts that one pod with these requests uses."""
        amounts = self._amounts.get(requests)
        if amounts is None:
            by_name = dict(requests)
            amounts = (1, *(by_name.get(name, 0) for name in self.names))
            self._amounts[requests] = amounts
        return amounts

    def allocatable(self, node: Node) -> Amounts:
        """Return the amounts of the node."""
        return tuple([node.allocatable.get(name, 0) for name in (PODS, *self.names)])

    def left(self, node: Node, present: Iterable[Requests]) -> Amounts:
        """Return the amounts left beside pods with these requests; negative if overcommitted."""
        used = [self.of(requests) for requests in present]
        return without(self.allocatable(node), used)

    def share(self, requests: Requests, node: Node) -> int:
        """The pod's part of the node in millionths, summed over its resources, each rounded up.

        CPU, memory and the extended resources among ``names`` are counted.
        """
        by_name = dict(requests)
        return sum(
            -(-by_name.get(name, 0) * _MILLION // (node.allocatable.get(name, 0) or 1))
            for name in self._counted
        )


def minus(first: Amounts, second: Amounts) -> Amounts:
    """The difference, resource by resource."""
    return tuple(map(sub, first, second))


def without(amounts: Amounts, used: Sequence[Amounts]) -> Amounts:
    """Return ``amounts`` minus all of these."""
    return tuple(map(sub, amounts, map(sum, zip(*used, strict=True)))) if used else amounts


def is_enough(amounts: Amounts) -> bool:
    """Whether no amount is negative."""
    return min(amounts) >= 0


def largest_part(amounts: Amounts, whole: Amounts) -> float:
    """The largest part of a node's resources, pods not counted; infinite of one it lacks."""
    return max(
        [
            (amount / total if total > 0 else math.inf)
            for amount, total in zip(amounts[1:], whole[1:], strict=True)
            if amount > 0
        ],
        default=0.0,
    )
