"""The times at which metrics are queried: fixed slots, so that equal queries meet.

A query has one slot in each interval, at a phase that is a hash of the query. The metrics of one
query share an answer; their slots are spread over a short time before it. Times are seconds since
1970.
"""

from __future__ import annotations

import math
from hashlib import blake2b
from typing import Final

from msgspec import Struct

SLACK: Final = 1.0
"""Seconds that a shared answer may be older than the spread."""
RETRY: Final = 5.0
"""Seconds from a temporary fault to the first retry; each further wait is twice as long."""
_ROUNDING: Final = 1e-6
_ALONE: Final = 0.01
"""Seconds of spread for each metric of a query."""
_SHARE: Final = 0.25
"""The limit of the spread, as a share of the interval."""
_LONGEST_EXPONENT: Final = 32


class Slots(Struct, frozen=True, gc=False):
    """The slots of a metric, ``early`` seconds before those of its query.

    All metrics of the query have their slots within ``spread`` seconds.
    """

    interval: float
    phase: float
    early: float = 0.0
    spread: float = 0.0

    def last(self, now: float) -> float:
        """Return the last slot before ``now``."""
        return self._number(now) * self.interval + self.phase - self.early

    def next(self, fetched: float) -> float:
        """Return the first slot after a fetch, at most an interval later."""
        return (self._number(fetched) + 1) * self.interval + self.phase - self.early

    def last_fetch(self, updated: float, now: float) -> float:
        """Return the time of the last fetch, of which only the time of the value is known.

        That time is cut to its second, and the value may be of another metric's earlier slot; both
        count for the current slot. A time in the future counts as ``now``.
        """
        slot = self.last(now)
        is_done = updated + 1 > slot + self.early - self.spread
        return min(max(updated, slot) if is_done else updated, now)

    def shared_since(self, now: float, slot: float | None = None) -> float:
        """Return the earliest query time of an answer that a metric shares now.

        For a slot, that is the first slot of the same query, however late it is: a controller that
        is behind must not send more queries.
        """
        since = now - self.spread - SLACK
        return since if slot is None else min(since, slot + self.early - self.spread)

    def _number(self, moment: float) -> int:
        return math.floor((moment - self.phase + self.early + _ROUNDING) / self.interval)


def slots(interval: float, question: int, metric: int, count: int) -> Slots:
    """Return the slots of a metric.

    ``question`` and ``metric`` are hashes; ``count`` is the number of metrics with the query.
    """
    spread = min(interval * _SHARE, count * _ALONE)
    milliseconds = max(round(interval * 1000), 1)
    return Slots(
        interval=interval,
        # One hash sets all phases, so queries with multiple intervals coincide.
        phase=question % milliseconds / 1000,
        early=spread * (metric % 4096) / 4096,
        spread=spread,
    )


def stable_hash(*parts: str) -> int:
    """Return a hash of 64 bits that is the same in every process."""
    lengths = ",".join(str(len(part)) for part in parts)
    text = f"{lengths} {''.join(parts)}".encode(errors="surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8).digest())


def retry_wait(failures: int, interval: float, asked_for: float | None = None) -> float:
    """Return the seconds until the next try after ``failures`` faults in a row, at least 1.

    ``asked_for`` is the wait that the provider asks for, which may exceed the interval.
    """
    back_off = RETRY * 2.0 ** min(failures - 1, _LONGEST_EXPONENT)
    return max(min(back_off, interval), asked_for or 0.0)
