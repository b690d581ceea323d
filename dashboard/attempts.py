"""Limits how often somebody may do something: a bucket for each of them, and one for all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST: Final = 1024
"""Of whom is remembered what is left."""


class Rate(Struct, frozen=True):
    """A burst, and one more after each period; for each, and for all together."""

    burst: int
    period: float
    """Seconds."""
    burst_of_all: int
    period_of_all: float


WRONG_TOKENS: Final = Rate(burst=100, period=0.02, burst_of_all=100, period_of_all=0.02)
"""Of everybody: each is a question to the API server."""
PAGES: Final = Rate(burst=200, period=0.1, burst_of_all=400, period_of_all=0.05)
"""Of a user: pages are made by the process that leads."""


class RateLimit:
    """Counts actions; ``clock`` is monotonic, in seconds."""

    def __init__(self, allowance: Rate, clock: Callable[[], float]) -> None:
        self._allowance = allowance
        self._clock = clock
        self._all = _Bucket(allowance.burst_of_all, allowance.period_of_all, clock())
        self._buckets: dict[str, _Bucket] = {}

    def wait(self, who: str) -> float:
        """Seconds until it may be done again; 0 for now."""
        now = self._clock()
        bucket = self._buckets.get(who)
        return max(self._all.wait(now), 0.0 if bucket is None else bucket.wait(now))

    def note(self, who: str) -> None:
        """It was done."""
        now = self._clock()
        self._all.take(now)
        bucket = self._buckets.pop(who, None)
        if bucket is None:
            bucket = _Bucket(self._allowance.burst, self._allowance.period, now)
        bucket.take(now)
        # The one that was used last stands at the end, and the others go first.
        self._buckets[who] = bucket
        while len(self._buckets) > _MOST:
            del self._buckets[next(iter(self._buckets))]


class _Bucket:
    def __init__(self, size: int, period: float, now: float) -> None:
        self._size = size
        self._period = period
        self._left = float(size)
        self._then = now

    def wait(self, now: float) -> float:
        self._refill(now)
        return 0.0 if self._left >= 1 else (1 - self._left) * self._period

    def take(self, now: float) -> None:
        self._refill(now)
        self._left = max(self._left - 1, 0.0)

    def _refill(self, now: float) -> None:
        self._left = min(self._left + (now - self._then) / self._period, float(self._size))
        self._then = now
