"""The connections of one site: their number, their buffers, and those that end for others.

Above a limit the address with the largest share loses: of connections the one idle for longest, of
bytes the request that is incomplete for longest. A request that is whole is always answered.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections import defaultdict
from itertools import chain, groupby, islice
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from harbourmaster.serving.limits import Limits

_START: Final = 0.1
"""Seconds added to the age of what is buffered, so that new bytes count too."""
_MANY: Final = 64
"""Minimum number of connections after whose end memory is returned."""
_TRIM_AFTER: Final = 1.0
"""Seconds to wait for the end of further connections."""
_COMPARED: Final = 256
"""Connections that are compared before one of them ends, so that a crowd costs little time."""
_trim: Final = getattr(ctypes.CDLL(None), "malloc_trim", None)
"""The function of glibc that returns freed memory to the system; None with other libraries."""


class Evictable(Protocol):
    """A connection that may have to end for others."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing of a request or an answer is here."""

    @property
    def is_answering(self) -> bool:
        """Whether a request is whole and the client takes its answer."""

    def evict(self) -> None:
        """End the connection for others: in order if it is idle."""


class ConnectionShare:
    """The bytes that a connection buffers, by which ``Connections`` selects those that end."""

    __slots__ = (
        "_connections",
        "_received",
        "_unread",
        "address",
        "connection",
        "has_too_much",
        "held",
        "since",
    )

    def __init__(self, connections: Connections, connection: Evictable, address: str) -> None:
        self._connections = connections
        self.connection = connection
        self.address = address
        self.since = asyncio.get_running_loop().time()
        """Time at which it became idle or began a request, on the loop's clock."""
        self.held = 0
        """Number of all bytes that count as buffered."""
        self._received = 0
        self._unread = 0
        self.has_too_much = False
        """Whether there was no room for all of a request."""

    def hold_request(self, size: int) -> bool:
        """Count bytes of a request; returns False if there is no room for them."""
        if not self._received:
            self.since = asyncio.get_running_loop().time()
        if not self._connections.hold(self, size):
            return False
        self._received += size
        return True

    def release_request(self) -> None:
        """Stop counting the bytes of a request that is answered."""
        self._connections.release(self, self._received)
        self._received = 0
        self.has_too_much = False

    def hold_answer(self, size: int) -> bool:
        """Count bytes that the client does not read; returns False if there is no room for them."""
        has_room = self._connections.hold(self, size)
        self._unread = size if has_room else 0
        return has_room

    def release_answer(self) -> None:
        """Stop counting bytes that the client has read."""
        self._connections.release(self, self._unread)
        self._unread = 0

    @property
    def has_unread(self) -> bool:
        """Whether the client does not read its answer."""
        return self._unread > 0


class Connections:
    """The open connections of one site, and whether they are to end."""

    def __init__(self, limits: Limits) -> None:
        self.count = 0
        """Number of connections, without those in their TLS handshake."""
        self.is_draining = False
        self.unused = asyncio.Event()
        """Set while ``count`` is 0."""
        self.unused.set()
        self._limits = limits
        self._members: dict[str, dict[ConnectionShare, None]] = {}
        """All connections by address, with those in their handshake."""
        self._size = 0
        """Number of members."""
        self._most = 0
        """Maximum number of members since memory was given back."""

    def count_opened(self) -> None:
        """Count a connection."""
        self.count += 1
        self.unused.clear()

    def count_closed(self) -> None:
        """Stop counting a connection."""
        self.count -= 1
        if not self.count:
            self.unused.set()

    def accept(self, new: ConnectionShare) -> None:
        """Add a connection; above the limit another connection ends for it."""
        self._members.setdefault(new.address, {})[new] = None
        self._size += 1
        self._most = max(self._most, self._size)
        if self._size <= self._limits.max_connections:
            return
        largest_first = sorted(self._members.values(), key=len, reverse=True)
        for _, equal in groupby(largest_first, key=len):
            candidates = (
                member
                for member in chain.from_iterable(equal)
                if member is not new and not member.connection.is_answering
            )
            victim = min(
                islice(candidates, _COMPARED),
                key=lambda share: (not share.connection.is_idle, share.since),
                default=None,
            )
            if victim is not None:
                self._evict(victim, "connections")
                return

    def remove(self, member: ConnectionShare) -> None:
        """Forget a connection that has ended, and what it held."""
        if self._has(member):
            self._size -= 1
            del self._members[member.address][member]
            if not self._members[member.address]:
                del self._members[member.address]
        self._limits.bytes_in_flight -= member.held
        member.held = 0
        if self._size * 2 < self._most and self._most >= _MANY and _trim is not None:
            self._most = 0
            asyncio.get_running_loop().call_later(_TRIM_AFTER, _trim, 0)

    def hold(self, member: ConnectionShare, size: int) -> bool:
        """Count bytes that a connection buffers; returns False if there is no room for them.

        An address gets room at the expense of one that holds more, and for longer.
        """
        if not self._has(member):
            # It was evicted.
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

    def release(self, member: ConnectionShare, size: int) -> None:
        """Stop counting bytes that a connection no longer buffers."""
        if self._has(member):
            member.held -= size
            self._limits.bytes_in_flight -= size

    def _has(self, member: ConnectionShare) -> bool:
        return member in self._members.get(member.address, ())

    def _longest_holding(self, asking: ConnectionShare) -> ConnectionShare | None:
        now = asyncio.get_running_loop().time()
        shares: defaultdict[str, float] = defaultdict(float)
        candidates = []
        for member in chain.from_iterable(self._members.values()):
            if member.held:
                shares[member.address] += member.held * (now - member.since + _START)
                if member.address != asking.address and not member.connection.is_answering:
                    candidates.append(member)
        victim = max(
            candidates, key=lambda share: (shares[share.address], -share.since), default=None
        )
        if victim is None or shares[victim.address] < shares[asking.address]:
            return None
        return victim

    def _evict(self, victim: ConnectionShare, reason: str) -> None:
        victim.connection.evict()
        self.remove(victim)
        self._limits.count_eviction(reason)
