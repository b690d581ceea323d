"""Limits how often somebody may do something: a bucket for each of them, and one for all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from harbourmaster.kube.event_series import Allowance, Limiter

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST: Final = 1024
"""Of whom is remembered what is left."""


class Rate(Struct, frozen=True):
    """For each of them, and for all together."""

    each: Allowance
    all: Allowance


WRONG_TOKENS: Final = Rate(Allowance(100, 0.02), Allowance(100, 0.02))
"""Of everybody: each is a question to the API server."""
PAGES: Final = Rate(Allowance(200, 0.1), Allowance(400, 0.05))
"""Of a user: pages are made by the process that leads."""


class RateLimit:
    """Counts actions; ``clock`` is monotonic, in seconds."""

    def __init__(self, rate: Rate, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._all = Limiter(rate.all, 1)
        self._each = Limiter(rate.each, _MOST)

    def wait(self, who: str) -> float:
        """Seconds until it may be done again; 0 for now."""
        now = self._clock()
        return max(self._all.wait("", now), self._each.wait(who, now))

    def note(self, who: str) -> None:
        """It was done."""
        now = self._clock()
        self._all.take("", now)
        self._each.take(who, now)
