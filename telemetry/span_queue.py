"""Spans on their way to a collector: a bounded queue, and a thread that empties it.

Whoever adds a span never waits. What can't be sent is counted and forgotten: a collector that is
away, slow or hanging costs spans and one log line, nothing else.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from harbourmaster.telemetry.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

EXPORTED: Final = "exported"
FAILED: Final = "failed"
QUEUE_FULL: Final = "queue_full"
SHUTDOWN: Final = "shutdown"
SPAN_OUTCOMES: Final = (EXPORTED, FAILED, QUEUE_FULL, SHUTDOWN)
"""What becomes of a span; all but the first are losses."""

CAPACITY: Final = 2048
BATCH: Final = 512
DELAY: Final = 1.0
"""Seconds that a span waits for company."""
FLUSH_TIMEOUT: Final = 2.0
"""Seconds in which what is left may still be sent at the end."""
QUIET: Final = 60.0
"""Seconds between two log lines about a collector that can't be reached."""


class Sender(Protocol[T_contra]):
    """Sends a batch; called in the queue's own thread, which it may keep waiting for long."""

    def send(self, batch: Sequence[T_contra], /) -> str | None:
        """None where it arrived, else why it did not, in a few words."""

    def close(self) -> None:
        """Let go of what it holds."""


class SpanQueue(Generic[T]):
    """Takes spans from one event loop. ``on_outcome`` gets what became of how many, in any thread.

    The thread is a daemon: a sender that hangs does not keep the process from ending.
    """

    def __init__(
        self,
        sender: Sender[T],
        on_outcome: Callable[[str, int], None],
        *,
        capacity: int = CAPACITY,
        delay: float = DELAY,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sender = sender
        self._on_outcome = on_outcome
        self._capacity = capacity
        self._delay = delay
        self._clock = clock
        self._waiting: deque[T] = deque()
        self._some = threading.Event()
        self._enough = threading.Event()
        self._closing = False
        self._abandoned = False
        self._under_way = 0
        self._lost = 0
        self._told = -QUIET
        self._told_of_fault = False
        self._log = get_logger("tracing")
        self._thread = threading.Thread(target=self._work, name="spans", daemon=True)
        self._thread.start()

    def put(self, span: T) -> None:
        """Have a span sent, or count it as lost. Never waits."""
        waiting = self._waiting
        if self._closing:
            self._on_outcome(SHUTDOWN, 1)
            return
        if len(waiting) >= self._capacity:
            self._on_outcome(QUEUE_FULL, 1)
            return
        waiting.append(span)
        if len(waiting) == 1:
            self._some.set()
        elif len(waiting) >= BATCH:
            self._enough.set()

    async def close(self) -> None:
        """Send what waits, for ``FLUSH_TIMEOUT`` seconds at most."""
        if self._closing:
            return
        self._closing = True
        self._enough.set()
        self._some.set()
        await asyncio.to_thread(self._thread.join, FLUSH_TIMEOUT)
        self._abandoned = self._thread.is_alive()
        left = len(self._waiting) + self._under_way
        if left:
            self._on_outcome(SHUTDOWN, left)
            self._log.warning("spans are lost at the end", spans=left)

    def _work(self) -> None:
        while not self._closing:
            self._some.wait()
            self._some.clear()
            self._enough.wait(self._delay)
            self._enough.clear()
            self._send_all()
        # One may have come between the last look and the end.
        self._send_all()
        self._sender.close()

    def _send_all(self) -> None:
        while self._waiting and not self._abandoned:
            batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), BATCH))]
            self._under_way = len(batch)
            try:
                fault = self._sender.send(batch)
            except Exception as error:  # noqa: BLE001 - whatever it is, reviews go on
                fault = f"{type(error).__name__}: {error}"
            if not self._abandoned:
                self._note(fault, len(batch))
            self._under_way = 0

    def _note(self, fault: str | None, spans: int) -> None:
        if fault is None:
            self._on_outcome(EXPORTED, spans)
            if self._told_of_fault:
                self._told_of_fault = False
                self._log.info("spans are sent again", lost=self._lost)
                self._lost = 0
            return
        self._on_outcome(FAILED, spans)
        self._lost += spans
        now = self._clock()
        if now - self._told >= QUIET:
            self._told, self._told_of_fault = now, True
            self._log.warning("spans can't be sent, and are dropped", error=fault, spans=self._lost)
