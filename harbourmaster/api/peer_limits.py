"""Limits on the bytes that are held of what peers outside the cluster send.

One budget is for all peers of a kind. A peer that holds little keeps working in any case.
"""

from __future__ import annotations


class Budget:
    """The bytes that all peers of a kind may hold together."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0


class Share:
    """The part of a budget that one peer holds.

    ``floor`` bytes are available to each peer also if the budget is used up, so the peers hold at
    most the limit of the budget and ``floor`` for each of them.
    """

    def __init__(self, budget: Budget, *, limit: int, floor: int) -> None:
        self._budget = budget
        self._limit = limit
        self._floor = floor
        self.size = 0

    def take(self, count: int) -> str:
        """Hold ``count`` bytes more; returns the limit that forbids it, empty if none does."""
        size = self.size + count
        if size > self._limit:
            return f"more than {self._limit} bytes"
        if size > self._floor and self._budget.used + count > self._budget.limit:
            return f"more than {self._budget.limit} bytes together with all others"
        self.give(-count)
        return ""

    def give(self, count: int) -> None:
        """Hold ``count`` bytes less."""
        self.size -= count
        self._budget.used -= count
