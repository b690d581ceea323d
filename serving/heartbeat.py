"""How late the event loop is: a timer that should come at a known time, and when it came."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Heartbeat:
    """Measures every ``period`` seconds; ``on_beat`` gets the seconds that it was late."""

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
