"""When a metric is asked for: at fixed times, so that nothing drifts and equal questions meet.

A slot comes once in each interval, at a phase that follows from the question. Where many metrics
have one question, theirs come a little before it, spread, and share an answer. Times are seconds
since 1970.
"""

from __future__ import annotations

import math
from hashlib import blake2b
from typing import Final

from msgspec import Struct

SLACK: Final = 1.0
"""Seconds more than the spread that a shared answer may be old."""
RETRY: Final = 5.0
"""Seconds from a fault that may pass by itself to the first try after it; then twice as long."""
_ROUNDING: Final = 1e-6
_ALONE: Final = 0.01
"""Seconds of spread for each metric of a question."""
_SHARE: Final = 0.25
"""Of the interval, which no spread exceeds."""
_LONGEST_EXPONENT: Final = 32


class Slots(Struct, frozen=True, gc=False):
    """The slots of one metric: ``early`` seconds before those of its question.

    All metrics of the question have theirs within ``spread`` seconds.
    """

    interval: float
    phase: float
    early: float = 0.0
    spread: float = 0.0

    def last(self, now: float) -> float:
        """The slot that has come last."""
        return self._number(now) * self.interval + self.phase - self.early

    def next(self, fetched: float) -> float:
        """The first slot after a fetch: an interval later at most."""
        return (self._number(fetched) + 1) * self.interval + self.phase - self.early

    def known(self, updated: float, now: float) -> float:
        """When to take a metric as fetched of which only the stamp of its value is known.

        A stamp is cut to its second, and the value may be of another metric's slot before ours;
        both count for this slot. A future stamp counts as the current time.
        """
        slot = self.last(now)
        is_done = updated + 1 > slot + self.early - self.spread
        return min(max(updated, slot) if is_done else updated, now)

    def shared_since(self, now: float, slot: float | None = None) -> float:
        """When an answer was asked for at the earliest that a metric takes now.

        For a slot that is as soon as the first of the same question, however late it has become:
        who is behind must not ask more often.
        """
        since = now - self.spread - SLACK
        return since if slot is None else min(since, slot + self.early - self.spread)

    def _number(self, moment: float) -> int:
        return math.floor((moment - self.phase + self.early + _ROUNDING) / self.interval)


def slots(interval: float, question: int, metric: int, count: int) -> Slots:
    """The slots of a metric, given the hashes of it and its question, and how many ask that."""
    spread = min(interval * _SHARE, count * _ALONE)
    milliseconds = max(round(interval * 1000), 1)
    return Slots(
        interval=interval,
        # Of one hash, so that questions also meet where one's interval is a multiple of another's.
        phase=question % milliseconds / 1000,
        early=spread * (metric % 4096) / 4096,
        spread=spread,
    )


def stable_hash(*parts: str) -> int:
    """The same for the same texts, in every process."""
    lengths = ",".join(str(len(part)) for part in parts)
    text = f"{lengths} {''.join(parts)}".encode(errors="surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8).digest())


def retry_wait(failures: int, interval: float, asked_for: float | None = None) -> float:
    """Seconds until the next try after so many faults in a row, the first one counted.

    ``asked_for`` is what the provider wants, which may be longer than the interval.
    """
    grown = RETRY * 2.0 ** min(failures - 1, _LONGEST_EXPONENT)
    return max(min(grown, interval), asked_for or 0.0)
