"""Limits of what is done for critical add-ons, and when nothing is (rescheduler-spec 6.1, 7).

All times are seconds of one monotonic clock, given with every call.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from harbourmaster.api.times import moment

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from harbourmaster.rescheduling.model import Node

HOUR: Final = 3600.0
MINUTE: Final = 60.0
EVICTIONS_PER_MINUTE: Final = "evictions_per_minute"
EVICTIONS_PER_HOUR: Final = "evictions_per_hour"
VIOLATIONS_PER_HOUR: Final = "pdb_violations_per_hour"
FAIR_SHARE: Final = 3
"""Evictions of one owner's pods in an hour, after which they are avoided if possible."""
FAILURES: Final = 3
"""Evictions in a row that did not help, after which the circuit opens."""
PAUSE: Final = 600.0
"""Seconds for which the circuit stays open."""
SHORT_LIFE: Final = 60.0
"""Seconds after which a pod that got room and is gone again was helped all the same."""
_MAX_EXPONENT: Final = 30
_SWEEP: Final = 4096
"""Number of keys at which expired ones are removed."""


def too_many_not_ready(nodes: Collection[Node], percent: int) -> str:
    """Why nothing may be evicted, as too many nodes are not ready; empty if few enough are not.

    One node that is not ready is always tolerated.
    """
    count = sum(not node.is_ready for node in nodes)
    tolerated = max(1, len(nodes) * percent // 100)
    if count <= tolerated:
        return ""
    return (
        f"{count} of {len(nodes)} nodes are not ready, and {tolerated} may be: make them ready, "
        f"or raise rescheduling.maxNotReadyPercent ({percent})"
    )


class EvictionLimits(Struct, frozen=True, gc=False):
    """The limits as configured."""

    evictions_per_minute: int = 20
    evictions_per_hour: int = 60
    pdb_violations_per_hour: int = 5
    attempts_per_pod: int = 5
    attempts_per_owner: int = 10


class AttemptBackoff(Struct, frozen=True, gc=False):
    """Delays after failed attempts: ``first`` doubled each time up to ``limit``, ± ``jitter``."""

    first: float = 30.0
    limit: float = 600.0
    jitter: float = 0.2

    def delay(self, attempt: int, chance: float) -> float:
        """The wait after attempt number ``attempt``, from 0; ``chance`` is from 0 to 1."""
        whole = min(self.first * 2.0 ** min(attempt, _MAX_EXPONENT), self.limit)
        return whole * (1 + self.jitter * (2 * chance - 1))


class EvictionBucket:
    """``size`` tokens, refilled evenly over ``period`` seconds; a plan takes all or none."""

    def __init__(self, size: int, period: float) -> None:
        self._size = size
        self._period = period
        self._tokens = float(size)
        self._at: float | None = None

    def tokens_left(self, now: float) -> int:
        """Whole tokens at ``now``."""
        self._fill(now)
        # Many small fills must not lose a token to rounding.
        return int(self._tokens + 1e-6)

    def wait(self, count: int, now: float) -> float | None:
        """Seconds until ``count`` tokens are there; None where the bucket never holds so many."""
        if count > self._size:
            return None
        missing = count - self._tokens if self.tokens_left(now) < count else 0.0
        return missing * self._period / self._size if missing > 0 else 0.0

    def take(self, count: int, now: float) -> None:
        """Take tokens; below none only where more was done than planned."""
        self._fill(now)
        self._tokens -= count

    def give_back(self, count: int, now: float) -> None:
        """Return tokens that were not used."""
        self._fill(now)
        self._tokens = min(self._tokens + count, float(self._size))

    def tokens_spent(self, now: float) -> float:
        """The tokens that are missing."""
        self._fill(now)
        return self._size - self._tokens

    def recall(self, spent: float, age: float, now: float) -> None:
        """Take over that so many were missing ``age`` seconds ago, unless more are missing now."""
        self._fill(now)
        gained = max(age, 0.0) * self._size / self._period
        missing = min(max(spent - gained, 0.0), float(self._size))
        self._tokens = min(self._tokens, self._size - missing)

    def _fill(self, now: float) -> None:
        before = now if self._at is None else self._at
        gained = max(now - before, 0.0) * self._size / self._period
        self._tokens = min(self._tokens + gained, float(self._size))
        self._at = max(now, before)


class Budgets:
    """The evictions and the violations of disruption budgets that are left."""

    def __init__(self, limits: EvictionLimits) -> None:
        self._buckets = {
            EVICTIONS_PER_MINUTE: EvictionBucket(limits.evictions_per_minute, MINUTE),
            EVICTIONS_PER_HOUR: EvictionBucket(limits.evictions_per_hour, HOUR),
            VIOLATIONS_PER_HOUR: EvictionBucket(limits.pdb_violations_per_hour, HOUR),
        }

    def wait(self, evictions: int, violations: int, now: float) -> float | None:
        """Seconds until a plan may take so many at once, or None for never."""
        waits = [
            self._buckets[kind].wait(count, now)
            for kind, count in self._counts(evictions, violations)
        ]
        known = [wait for wait in waits if wait is not None]
        return max(known, default=0.0) if len(known) == len(waits) else None

    def take(self, evictions: int, violations: int, now: float) -> None:
        """Count what a plan is going to do."""
        for kind, count in self._counts(evictions, violations):
            self._buckets[kind].take(count, now)

    def give_back(self, evictions: int, violations: int, now: float) -> None:
        """Return what a plan did not use."""
        for kind, count in self._counts(evictions, violations):
            self._buckets[kind].give_back(count, now)

    def tokens_left(self, now: float) -> dict[str, int]:
        """Return the remaining tokens by kind, at least 0."""
        return {kind: max(bucket.tokens_left(now), 0) for kind, bucket in self._buckets.items()}

    def tokens_spent(self, now: float) -> dict[str, float]:
        """The tokens that are missing, by kind, in whole thousandths."""
        return {kind: round(bucket.tokens_spent(now), 3) for kind, bucket in self._buckets.items()}

    def recall(self, spent: Mapping[str, float], age: float, now: float) -> None:
        """Take over what was missing ``age`` seconds ago."""
        for kind, bucket in self._buckets.items():
            bucket.recall(spent.get(kind, 0.0), age, now)

    @staticmethod
    def _counts(evictions: int, violations: int) -> Iterable[tuple[str, int]]:
        return (
            (EVICTIONS_PER_MINUTE, evictions),
            (EVICTIONS_PER_HOUR, evictions),
            (VIOLATIONS_PER_HOUR, violations),
        )


class Recent:
    """Counts what happened to each key within the last ``period`` seconds."""

    def __init__(self, period: float = HOUR) -> None:
        self._period = period
        self._times: dict[str, deque[float]] = {}

    def note(self, key: str, now: float) -> None:
        """Count one."""
        if len(self._times) >= _SWEEP:
            for time in list(self._times):
                self._of(time, now)
        self._times.setdefault(key, deque()).append(now)

    def count(self, key: str, now: float) -> int:
        """Return the count of this key."""
        return len(self._of(key, now))

    def wait(self, key: str, limit: int, now: float) -> float:
        """Seconds until there are fewer than ``limit``."""
        times = self._of(key, now)
        if len(times) < limit:
            return 0.0
        return max(times[len(times) - limit] + self._period - now, 0.0)

    def at_least(self, limit: int, now: float) -> frozenset[str]:
        """The keys with so many."""
        return frozenset(key for key in list(self._times) if len(self._of(key, now)) >= limit)

    def _of(self, key: str, now: float) -> deque[float]:
        times = self._times.get(key)
        if times is None:
            return deque()
        while times and now - times[0] >= self._period:
            times.popleft()
        if not times:
            del self._times[key]
        return times


class Attempts:
    """Plans that evicted pods, by pod and by owner, and when the next one may start.

    A pod is counted for while it fails, its owner for every attempt. An owner whose pods are gone
    soon after each success has to wait as after failures.
    """

    def __init__(self, limits: EvictionLimits, backoff: AttemptBackoff) -> None:
        self._limits = limits
        self._backoff = backoff
        self._of_pods: dict[str, int] = {}
        self._of_owners = Recent()
        self._helped: dict[str, tuple[str, float]] = {}
        """The owner of each pod that got room, and when it did, by UID."""
        self._losses = Recent()
        self._until: dict[str, float] = {}

    def count_of(self, uid: str) -> int:
        """Return the number of plans that were started for a pod."""
        return self._of_pods.get(uid, 0)

    def note_failure(self, uid: str) -> int:
        """Count a failed attempt for the pod; returns its number."""
        self._of_pods[uid] = self.count_of(uid) + 1
        return self._of_pods[uid]

    def note_attempt(self, owner: str, now: float) -> None:
        """Count an attempt for the owner, failed or not."""
        if owner:
            self._of_owners.note(owner, now)

    def note_success(self, uid: str, owner: str, now: float) -> None:
        """Room was made for the pod, and it is bound."""
        recent = {uid: pod for uid, pod in self._helped.items() if now - pod[1] < HOUR}
        self._helped = {**recent, uid: (owner, now)} if owner else recent

    def count_losses(
        self, owner: str, since: float, is_there: Callable[[str], bool], now: float, chance: float
    ) -> int:
        """Count the pods of the owner that were soon gone after their success, in the last hour.

        A pod that waits ``since`` then takes the place of one that is no longer there.
        """
        for uid, (helped_owner, at) in list(self._helped.items()):
            if helped_owner == owner and not is_there(uid):
                del self._helped[uid]
                if 0 <= since - at < SHORT_LIFE:
                    self._losses.note(owner, now)
                    losses = self._losses.count(owner, now)
                    self._until[owner] = now + self._backoff.delay(losses - 1, chance)
        return self._losses.count(owner, now)

    def recall(self, uid: str, attempt: int) -> None:
        """Take over the count of the previous leader."""
        self._of_pods[uid] = max(self.count_of(uid), attempt)

    def wait(self, uid: str, owner: str, now: float) -> float | None:
        """Seconds until the next may begin, by the counts; None for never."""
        if self.count_of(uid) >= self._limits.attempts_per_pod:
            return None
        if not owner:
            return 0.0
        until = self._until.get(owner, now)
        return max(until - now, self._of_owners.wait(owner, self._limits.attempts_per_owner, now))

    def pause(self, uid: str, chance: float) -> float:
        """Seconds between a failed attempt and the next one."""
        return self._backoff.delay(max(self.count_of(uid) - 1, 0), chance)

    def forget(self, uid: str) -> None:
        """The pod is deleted or bound."""
        self._of_pods.pop(uid, None)

    def forget_but(self, uids: Collection[str]) -> None:
        """Keep only the counts of these pods."""
        self._of_pods = {uid: count for uid, count in self._of_pods.items() if uid in uids}


class Breaker:
    """Opens after evictions in a row that did not help, then allows one trial."""

    def __init__(self, failures: int = FAILURES, seconds: float = PAUSE) -> None:
        self._limit = failures
        self._seconds = seconds
        self._failures = 0
        self._until: float | None = None
        self._trying = ""

    def wait(self, uid: str, now: float) -> float:
        """Seconds until a plan for this pod may begin; 0 for now."""
        if self._until is None or self._trying == uid:
            return 0.0
        if now < self._until:
            return self._until - now
        return self._seconds if self._trying else 0.0

    def is_open(self, now: float) -> bool:
        """Whether only one plan, or none, may go on."""
        return self._until is not None and (now < self._until or bool(self._trying))

    def begin(self, uid: str, now: float) -> None:
        """A plan starts to evict; after the pause it is the trial."""
        if self._until is not None and now >= self._until and not self._trying:
            self._trying = uid

    def succeed(self) -> None:
        """A pod for which others were evicted is bound."""
        self._failures, self._until, self._trying = 0, None, ""

    def fail(self, now: float) -> bool:
        """Evictions did not help a pod; returns whether this opened the circuit."""
        self._failures += 1
        if self._failures < self._limit:
            return False
        was_open = self._until is not None and now < self._until
        self._until, self._trying = now + self._seconds, ""
        return not was_open

    def drop(self, uid: str) -> None:
        """The trial ended without a result: the next plan is the trial."""
        if self._trying == uid:
            self._trying = ""


class Renewals:
    """Whether a Lease is renewed, judged by its renew time.

    A change between two checks is a renewal whatever time it says: clocks differ, and are
    set. Only after a long time without a check does the time itself count.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._text = ""
        self._looked: float | None = None
        self._at: float | None = None

    def record(self, text: str, now: float, time_of_day: float) -> bool:
        """Note what the Lease says; whether it was renewed within the seconds.

        ``time_of_day`` is in seconds since the epoch, and may be wrong.
        """
        if self._looked is None or now - self._looked >= self._seconds:
            said = moment(text)
            is_close = said is not None and abs(time_of_day - said.timestamp()) < self._seconds
            self._at = now if is_close else None
        elif text != self._text:
            self._at = now
        self._text, self._looked = text, now
        return self._at is not None and now - self._at < self._seconds
