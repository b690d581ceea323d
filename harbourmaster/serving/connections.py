"""The connections of one site: how many there are, what they buffer, and which end for others.

Above a limit the address that takes most loses: of connections the one idle for longest, of bytes
the request that is incomplete for longest. A request that is whole is always answered.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from harbourmaster.serving.http_connection import HttpConnection
    from harbourmaster.serving.limits import Limits

_START: Final = 0.1
"""Seconds added to the age of what is buffered, so that new bytes count too."""
_MANY: Final = 64
"""Connections whose end is worth giving memory back."""
_TRIM_AFTER: Final = 1.0
"""Seconds that the end of further connections is awaited."""
_trim: Final = getattr(ctypes.CDLL(None), "malloc_trim", None)
"""What glibc has to give freed memory back to the system; other libraries do by themselves."""


class Connections:
    """The open connections of one site, and whether they are to end."""

    def __init__(self, limits: Limits) -> None:
        self.count = 0
        """Without those in their TLS handshake."""
        self.draining = False
        self.unused = asyncio.Event()
        """Set while there are none."""
        self.unused.set()
        self._limits = limits
        self._members: dict[HttpConnection, None] = {}
        """With those in their handshake."""
        self._most = 0
        """The most of them since memory was given back."""

    def opened(self) -> None:
        """Count a connection."""
        self.count += 1
        self.unused.clear()

    def closed(self) -> None:
        """Stop counting a connection."""
        self.count -= 1
        if not self.count:
            self.unused.set()

    def accept(self, new: HttpConnection) -> None:
        """Take a connection in; above the limit another one ends for it."""
        self._members[new] = None
        self._most = max(self._most, len(self._members))
        if len(self._members) <= self._limits.max_connections:
            return
        counts = Counter(member.address for member in self._members)
        found = [each for each in self._members if each is not new and not each.is_answering]
        if found:
            self._evict(
                min(found, key=lambda each: (-counts[each.address], not each.is_idle, each.since)),
                "connections",
            )

    def remove(self, member: HttpConnection) -> None:
        """Forget a connection that has ended, and what it held."""
        self._members.pop(member, None)
        self._limits.bytes_in_flight -= member.held
        member.held = 0
        if len(self._members) * 2 < self._most and self._most >= _MANY and _trim is not None:
            self._most = 0
            asyncio.get_running_loop().call_later(_TRIM_AFTER, _trim, 0)

    def hold(self, member: HttpConnection, size: int) -> bool:
        """Count ``size`` bytes that a connection buffers; False if there is no room for them.

        An address gets room at the expense of one that holds more, and for longer.
        """
        if member not in self._members:
            # It was told to end.
            return True
        member.held += size
        self._limits.bytes_in_flight += size
        while self._limits.bytes_in_flight > self._limits.max_bytes:
            victim = self._longest_holding(member)
            if victim is None:
                self.release(member, size)
                return False
            self._evict(victim, "bytes")
        return True

    def release(self, member: HttpConnection, size: int) -> None:
        """Stop counting bytes that a connection no longer buffers."""
        if member in self._members:
            member.held -= size
            self._limits.bytes_in_flight -= size

    def _longest_holding(self, asking: HttpConnection) -> HttpConnection | None:
        now = asyncio.get_running_loop().time()
        shares: defaultdict[str, float] = defaultdict(float)
        found = []
        for member in self._members:
            if member.held:
                shares[member.address] += member.held * (now - member.since + _START)
                if member.address != asking.address and not member.is_answering:
                    found.append(member)
        victim = max(found, key=lambda each: (shares[each.address], -each.since), default=None)
        if victim is None or shares[victim.address] < shares[asking.address]:
            return None
        return victim

    def _evict(self, victim: HttpConnection, reason: str) -> None:
        victim.evict()
        self.remove(victim)
        self._limits.note_eviction(reason)
