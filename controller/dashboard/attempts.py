"""How often anybody may be wrong about a token: a bucket for each address, and one for all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

BURST: Final = 10
"""Wrong tokens of one address until it has to wait."""
BURST_OF_ALL: Final = 100
PERIOD: Final = 6.0
"""Seconds after which it may be wrong once more."""
_ADDRESSES: Final = 1024


class Attempts:
    """What is left; ``clock`` gives seconds that only go forward."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._all = _Bucket(BURST_OF_ALL, PERIOD / BURST, clock())
        self._buckets: dict[str, _Bucket] = {}

    def wait(self, address: str) -> float:
        """Seconds until this address may try again; 0 for now."""
        now = self._clock()
        bucket = self._buckets.get(address)
        return max(self._all.wait(now), 0.0 if bucket is None else bucket.wait(now))

    def failed(self, address: str) -> None:
        """Note that somebody there was wrong."""
        now = self._clock()
        self._all.take(now)
        bucket = self._buckets.pop(address, None) or _Bucket(BURST, PERIOD, now)
        bucket.take(now)
        # The one that was used last stands at the end, and the others go first.
        self._buckets[address] = bucket
        while len(self._buckets) > _ADDRESSES:
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
