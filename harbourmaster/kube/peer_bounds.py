"""The limits of an API server that is not trusted: bytes, objects, pages, and work in a second."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from harbourmaster.api.peer_limits import Budget, Share
from harbourmaster.kube.errors import ExcessError
from harbourmaster.kube.event_series import Allowance, Bucket

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

MIB: Final = 1024 * 1024
MAX_ANSWER: Final = 8 * MIB
"""Bytes of an answer or event: some servers ignore the limit of a page."""
MAX_PAGE: Final = 2 * MIB
"""Bytes of a page of several objects."""
MAX_PAGE_ITEMS: Final = 5000
"""Objects of a page, for the same reason."""
MIN_VALUE: Final = 8
"""Bytes of an average value of a page; tiny ones take many times their size in memory."""
MAX_LIST: Final = 256 * MIB
"""Bytes of all pages of a list: 5,000 nodes with 16 KiB each have a third of it."""
MAX_PAGES: Final = 2000
MAX_HELD: Final = 32 * MIB
"""Bytes that are held of a server: about 25,000 of its objects, of which little is kept."""
ALL_HELD: Final = 80 * MIB
"""Bytes that are held of all servers together."""
_FLOOR: Final = MIB
"""Bytes of a server that are held also beyond that: about 1,000 objects."""
OBJECT_BYTES: Final = 1000
"""Memory of an object and its entries in caches, besides its texts."""
MAX_BRACKETS: Final = 100_000
"""Arrays and objects of an answer in which a value that is nested too deeply is looked for."""
_UNIT: Final = 4096
"""Bytes that take about as long as one object."""
_WORK: Final = Allowance(burst=30_000, period=1 / 2000)
_WORK_OF_ALL: Final = Allowance(burst=200_000, period=1 / 50_000)
EXCESS_SECONDS: Final = 300.0
"""Seconds for which an excess is reported."""
_RETRY_SECONDS: Final = 30.0


class _Work:
    """Limits work that is counted after it was done, so that it may exceed the allowance."""

    def __init__(self, allowance: Allowance, clock: Callable[[], float]) -> None:
        self._allowance = allowance
        self._clock = clock
        self._bucket = Bucket(float(allowance.burst), clock())

    def spend(self, units: float) -> float:
        """Count work that was done, and return the seconds to wait before more of it."""
        bucket = self._bucket.refill(self._allowance, self._clock())
        self._bucket = replace(bucket, tokens=bucket.tokens - units)
        return max(-self._bucket.tokens, 0.0) * self._allowance.period


class PeerBudget:
    """The limits of all servers together."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.held = Budget(ALL_HELD)
        self.work = _Work(_WORK_OF_ALL, clock)


class PeerBounds:
    """The limits of one server; ``on_excess`` is called when it exceeds one."""

    def __init__(self, budget: PeerBudget, on_excess: Callable[[], None]) -> None:
        self._clock = budget.clock
        self._share = Share(budget.held, limit=MAX_HELD, floor=_FLOOR)
        self._limits = (_Work(_WORK, budget.clock), budget.work)
        self._on_excess = on_excess
        self._excess = ""
        self._excess_at = -EXCESS_SECONDS

    @property
    def excess(self) -> str:
        """The last excess, if it was a short time ago."""
        return self._excess if self._clock() - self._excess_at < EXCESS_SECONDS else ""

    def hold(self, change: int, call: str) -> None:
        """Hold so many bytes more or less of its answers and objects. Raises ExcessError."""
        if change <= 0:
            self._share.give(-change)
        elif limit := self._share.take(change):
            raise self.exceed(f"its answers and objects take {limit}", call)

    def exceed(self, text: str, call: str) -> ExcessError:
        """Record an excess, and return its error."""
        if not self.excess:
            # The first one stays, so that the status does not change with each request.
            self._excess = f"{call}: {text}"
            self._excess_at = self._clock()
            self._on_excess()
        self._excess_at = self._clock()
        return ExcessError(text, call=call, retry_after=_RETRY_SECONDS)

    async def pause(self, objects: int, size: int) -> None:
        """Wait as long as the work of these objects, of ``size`` bytes, was too much."""
        seconds = max(work.spend(max(objects, size / _UNIT)) for work in self._limits)
        if seconds > 0:
            await asyncio.sleep(seconds)

    def close(self) -> None:
        """Hold nothing any more."""
        self._share.give(self._share.size)


class HeldObjects:
    """The objects of one cache, which count for the limits of its server if it has any."""

    def __init__(self, bounds: PeerBounds | None, call: str) -> None:
        self._bounds = bounds
        self._call = call
        self._held = self._pages = self._bytes = 0

    async def count_page(self, items: Sequence[msgspec.Raw]) -> None:
        """Count a page of a list, and wait as its work requires. Raises ExcessError."""
        if self._bounds is None:
            return
        size = sum(memoryview(item).nbytes for item in items)
        self._pages += 1
        self._bytes += size
        for count, limit, unit in (
            (self._pages, MAX_PAGES, "pages"),
            (self._bytes, MAX_LIST, "bytes"),
            (len(items), MAX_PAGE_ITEMS, "objects in a page"),
        ):
            if count > limit:
                raise self._bounds.exceed(f"a list of more than {limit} {unit}", self._call)
        await self._bounds.pause(len(items), size)

    async def count_event(self, raw: msgspec.Raw) -> None:
        """Wait as the work of an event requires."""
        if self._bounds is not None:
            await self._bounds.pause(1, memoryview(raw).nbytes)

    def replace(self, before: object | None, after: object | None) -> None:
        """Count an object in place of another. Raises ExcessError."""
        if self._bounds is not None:
            self._hold(_weigh(after) - _weigh(before))

    def end_list(self, objects: Iterable[object]) -> None:
        """Count the objects that are cached after a list, which may have failed."""
        self._pages = self._bytes = 0
        if self._bounds is not None:
            self._hold(sum(map(_weigh, objects)) - self._held)

    def _hold(self, change: int) -> None:
        if self._bounds is not None:
            self._bounds.hold(change, self._call)
            self._held += change


def _weigh(obj: object | None) -> int:
    return 0 if obj is None else OBJECT_BYTES + len(msgspec.json.encode(obj))
