"""Limits under overload: excess requests get 429 at once, so that the others are answered in time.

The API server repeats a call refused with 429 and ``Retry-After`` within its own time-out.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Self

from harbourmaster.serving.responses import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from harbourmaster.serving.connections import ConnectionShare
    from harbourmaster.telemetry.metrics import Metrics

MAX_CONNECTIONS: Final = 1000
"""Maximum number of connections; each takes about 50 KiB besides the bytes that are counted."""
MAX_REQUESTS: Final = 1024
# A request in flight is one whose body is incomplete, because a decision takes no turn of the loop:
# many slow clients must not shut out the quick ones, so the limit is high and bytes are scarce.
MAX_BODY_BYTES: Final = 32 * 1024 * 1024
MAX_LAG: Final = 0.25
"""Seconds that the event loop may be late before new requests are refused."""
HEARTBEAT: Final = 0.05
"""Seconds between two measurements of the lag, so also the shortest time of refusals."""
_RETRY_AFTER: Final = 1
_TEXTS: Final = {
    "requests": "429: too many requests at one time; try again in a second",
    "bytes": "429: too many bytes of request bodies at one time; try again in a second",
    "lag": "429: the server is overloaded; try again in a second",
}


class Heartbeat:
    """Measures how late the event loop is, every ``period`` seconds; ``on_beat`` gets seconds."""

    def __init__(self, period: float, on_beat: Callable[[float], None]) -> None:
        self._period = period
        self._on_beat = on_beat
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to measure the running event loop's lag."""
        self._schedule(asyncio.get_running_loop())

    def stop(self) -> None:
        """Stop measuring."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        due = loop.time() + self._period
        self._timer = loop.call_at(due, self._beat, loop, due)

    def _beat(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        self._on_beat(max(loop.time() - due, 0.0))
        self._schedule(loop)


class Limits:
    """Counts what is in flight. One for each review port; health has none."""

    def __init__(
        self,
        *,
        connections: int = MAX_CONNECTIONS,
        requests: int = MAX_REQUESTS,
        body_bytes: int = MAX_BODY_BYTES,
        lag: float = MAX_LAG,
        metrics: Metrics | None = None,
    ) -> None:
        self.requests_in_flight = 0
        self.bytes_in_flight = 0
        """Bytes that connections buffer: heads and bodies of requests, and unread answers."""
        self.lag = 0.0
        """Delay of the last heartbeat in seconds."""
        self.max_connections = connections
        self.max_requests = requests
        self.max_bytes = body_bytes
        self.max_lag = lag
        self._metrics = metrics
        self._heartbeat = Heartbeat(HEARTBEAT, self._note_lag)

    def start(self) -> None:
        """Begin to measure the running event loop's lag."""
        self._heartbeat.start()

    def stop(self) -> None:
        """Stop measuring."""
        self._heartbeat.stop()

    def admit(self, share: ConnectionShare | None = None) -> Admission:
        """Return the place of a request, which ``with`` takes and releases."""
        return Admission(self, share)

    def has_room(self) -> bool:
        """Whether a request would be admitted; nothing is counted."""
        return self.requests_in_flight < self.max_requests and self.lag <= self.max_lag

    def refuse(self, reason: str) -> Refusal:
        """Count a refusal, and return it to be raised."""
        if self._metrics is not None:
            self._metrics.requests_shed[reason].inc()
        # The connection stays: new handshakes would only add to the load.
        return Refusal(429, _TEXTS[reason], retry_after=_RETRY_AFTER, close=False)

    def count_eviction(self, reason: str) -> None:
        """Count a connection that ends for the sake of others: too many, or too many bytes."""
        if self._metrics is not None:
            self._metrics.connections_evicted[reason].inc()

    def _note_lag(self, seconds: float) -> None:
        self.lag = seconds
        if self._metrics is not None:
            self._metrics.event_loop_lag.set(seconds)


class Admission:
    """One request's share of the limits, held inside ``with``. Entering raises Refusal (429)."""

    __slots__ = ("_limits", "_share")

    def __init__(self, limits: Limits, share: ConnectionShare | None = None) -> None:
        self._limits = limits
        self._share = share

    def __enter__(self) -> Self:
        limits = self._limits
        if limits.requests_in_flight >= limits.max_requests:
            raise limits.refuse("requests")
        if limits.lag > limits.max_lag:
            raise limits.refuse("lag")
        limits.requests_in_flight += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._limits.requests_in_flight -= 1

    def check_bytes(self) -> None:
        """Go on only if there was room for what arrived so far. Raises Refusal (429)."""
        if self._share is not None and self._share.has_too_much:
            raise self._limits.refuse("bytes")
