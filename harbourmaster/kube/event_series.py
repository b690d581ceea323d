"""Repeated events: one object with a count, within a rate limit.

All times are of a monotonic clock, in seconds, unless they are text for the API.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

EventType: TypeAlias = Literal["Normal", "Warning"]

MAX_NOTE: Final = 1024
"""Bytes of a note that the API takes."""
MAX_TEXT: Final = 128
"""Bytes of a reason, an action or an instance that the API takes."""
_ELLIPSIS: Final = "…"


class ObjectReference(Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """The object that an event is about; of a cluster-scoped one, ``namespace`` is empty."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class Occurrence(Struct, frozen=True, gc=False):
    """An occurrence of an event, once or many times."""

    regarding: ObjectReference
    type: EventType
    reason: str
    note: str
    action: str
    identity: str = ""
    """Replaces the note in the key of a series; empty for the note itself."""

    @property
    def key(self) -> Occurrence:
        """The key of the series: an object is the same in each version."""
        regarding = replace(self.regarding, resource_version="")
        return replace(self, regarding=regarding, note="" if self.identity else self.note)


class Details(Struct, frozen=True, gc=False):
    """The related object and the annotations of an event, which do not separate series."""

    related: ObjectReference | None = None
    annotations: Mapping[str, str] = {}


def occurrence(
    regarding: ObjectReference, kind: EventType, reason: str, note: str, action: str
) -> Occurrence:
    """Create an occurrence whose texts are not too long for the API."""
    return Occurrence(
        regarding,
        kind,
        shorten(reason, MAX_TEXT),
        shorten(note, MAX_NOTE),
        shorten(action, MAX_TEXT),
    )


def shorten(text: str, limit: int) -> str:
    """Cut ``text`` to at most ``limit`` bytes of UTF-8, with a mark where it was cut."""
    encoded = text.encode(errors="replace")
    if len(encoded) <= limit:
        return encoded.decode()
    kept = encoded[: limit - len(_ELLIPSIS.encode())]
    return kept.decode(errors="ignore") + _ELLIPSIS


class Allowance(Struct, frozen=True, gc=False):
    """Allows ``burst`` events at once, and one more each ``period``, in seconds."""

    burst: int
    period: float


class Bucket(Struct, frozen=True, gc=False):
    """The rest of an allowance: ``tokens`` at the time ``at``."""

    tokens: float
    at: float

    def refill(self, allowance: Allowance, now: float) -> Bucket:
        """Return the bucket at ``now``."""
        gained = max(now - self.at, 0.0) / allowance.period
        return Bucket(min(self.tokens + gained, float(allowance.burst)), now)


class Limiter:
    """Limits events by key, with buckets for the ``size`` latest keys."""

    def __init__(self, allowance: Allowance, size: int) -> None:
        self._allowance = allowance
        self._size = size
        self._buckets: OrderedDict[object, Bucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def wait(self, key: object, now: float) -> float:
        """Return the seconds until an event of ``key`` is within its allowance; 0 for now."""
        return max(1 - self._bucket_of(key, now).tokens, 0.0) * self._allowance.period

    def take(self, key: object, now: float) -> None:
        """Take a token, and drop buckets that are full again."""
        while self._buckets:
            oldest = next(iter(self._buckets))
            if self._bucket_of(oldest, now).tokens < self._allowance.burst:
                break
            del self._buckets[oldest]
        bucket = self._bucket_of(key, now)
        self._buckets[key] = replace(bucket, tokens=max(bucket.tokens - 1, 0.0))
        self._buckets.move_to_end(key)
        if len(self._buckets) > self._size:
            self._buckets.popitem(last=False)

    def turn(self, key: object, now: float) -> float:
        """Take a token and return 0, or return the seconds until there is one."""
        if not (wait := round(self.wait(key, now), 6)):
            self.take(key, now)
        return wait

    def _bucket_of(self, key: object, now: float) -> Bucket:
        full = Bucket(float(self._allowance.burst), now)
        return self._buckets.get(key, full).refill(self._allowance, now)


class Series(Struct):
    """An event object and its number of occurrences."""

    occurrence: Occurrence
    name: str
    first: str
    """Time of the first occurrence, as the API writes it; ``last`` is that of the last one."""
    last: str
    seen: float
    reported: float = 0.0
    """Time of the last report to the API server, which had the count ``told``."""
    count: int = 1
    told: int = 0
    details: Details = Details()

    @property
    def is_behind(self) -> bool:
        """Whether it happened more often than the API server knows."""
        return self.told != self.count


class SeriesTable:
    """The ``size`` latest series; a series ends ``quiet`` seconds after its last occurrence."""

    def __init__(self, size: int, quiet: float) -> None:
        self._size = size
        self._quiet = quiet
        self._series: OrderedDict[Occurrence, Series] = OrderedDict()
        self._behind: dict[Occurrence, Series] = {}

    def __len__(self) -> int:
        return len(self._series)

    def __iter__(self) -> Iterator[Series]:
        return iter(self._series.values())

    @property
    def behind(self) -> Collection[Series]:
        """The series that happened again since their last report."""
        return self._behind.values()

    def count_again(self, what: Occurrence, now: float, at: str) -> Series | None:
        """Count an occurrence in its series; returns None if no series continues."""
        series = self._series.get(what.key)
        if series is None or now - series.seen > self._quiet:
            return None
        series.count += 1
        series.seen, series.last = now, at
        self._series.move_to_end(what.key)
        self._behind[what.key] = series
        return series

    def begin(self, series: Series) -> Series | None:
        """Add a series; returns the one that is forgotten for it, if a count of that is lost."""
        self._forget_ended(series.seen)
        key = series.occurrence.key
        before = self._series.get(key)
        if before is None and len(self._series) >= self._size:
            before = next(iter(self))
        if before is not None:
            self.forget(before)
        self._series[key] = series
        # One that was never reported is on its way, with its count.
        return before if before is not None and before.told and before.is_behind else None

    def _forget_ended(self, now: float) -> None:
        """Forget the oldest series that have ended and whose count is reported."""
        while self._series:
            oldest = next(iter(self))
            if oldest.is_behind or now - oldest.seen <= self._quiet:
                return
            self.forget(oldest)

    def record_report(self, series: Series, count: int, now: float) -> None:
        """Record the count that the API server knows of a series."""
        series.told, series.reported = count, now
        key = series.occurrence.key
        if not series.is_behind and self._behind.get(key) is series:
            del self._behind[key]

    def forget(self, series: Series) -> None:
        """Let the next occurrence begin a series of its own."""
        key = series.occurrence.key
        if self._series.get(key) is series:
            del self._series[key]
            self._behind.pop(key, None)
