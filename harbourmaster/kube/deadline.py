"""Work that ends at a deadline: before its next step, or at the latest with the process."""

from __future__ import annotations

import asyncio
import os
import threading
import time
import types
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from harbourmaster.telemetry.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

_T = TypeVar("_T")

_LATE: Final = 0.25
"""Seconds; a thread wakes later than this only if the whole process was stopped."""
_UNWIND: Final = 0.5
"""Seconds for work to end if the process was stopped past the deadline."""


def read_boottime() -> float:
    """Return the seconds of a clock that is never set and runs while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@types.coroutine
def run_while(
    allowed: Callable[[], bool], coroutine: Coroutine[Any, Any, _T]
) -> Generator[Any, Any, _T]:
    """Await ``coroutine`` as a task does, and check before each of its steps.

    Instead of the first step that is not ``allowed``, the current task is cancelled, once. After
    the process was stopped, the loop runs what is due before any timer could end it; this check
    comes earlier.
    """
    step: Callable[[], Any] = partial(coroutine.send, None)
    stopped = False
    while True:
        waits_for = None
        if not stopped and not allowed():
            stopped = True
            task = asyncio.current_task()
            if task is not None:
                # The cancellation arrives at the bare yield below.
                task.cancel()
        else:
            try:
                waits_for = step()
            except StopIteration as end:
                result: _T = end.value
                return result
        try:
            yield waits_for
        except BaseException as error:  # noqa: BLE001 - all of it is the coroutine's
            step = partial(coroutine.throw, error)
        else:
            step = partial(coroutine.send, None)


def end_process() -> None:
    """End the process now, with exit code 1 and nothing flushed."""
    os._exit(1)


class Watchdog:
    """Calls ``on_stuck`` unless the work ends in time.

    From a thread of its own, because the event loop may be stuck.
    """

    def __init__(
        self,
        on_stuck: Callable[[], None] = end_process,
        *,
        clock: Callable[[], float] = read_boottime,
    ) -> None:
        self._on_stuck = on_stuck
        self._clock = clock
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._end: float | None = None
        self._forgiven = False
        self._closed = False

    def arm(self, end: float) -> None:
        """Expect the end of the work, or the next call, by the time ``end``."""
        with self._changed:
            self._end, self._forgiven = end, False
            self._changed.notify()
            if self._thread is None:
                self._closed = False
                self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
                self._thread.start()

    def disarm(self) -> None:
        """Stop expecting the end of work, because it has ended."""
        with self._changed:
            self._end = None

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            thread, self._thread = self._thread, None
            self._end, self._closed = None, True
            self._changed.notify()
        if thread is not None:
            thread.join()

    def _watch(self) -> None:
        while True:
            with self._changed:
                left = None if self._end is None else self._end - self._clock()
                if self._closed:
                    return
                if left is None or left > 0:
                    self._changed.wait(left)
                    continue
                if left < -_LATE and not self._forgiven:
                    self._end, self._forgiven = self._clock() + _UNWIND, True
                    continue
                self._end = None
            get_logger("watchdog").error("leader work did not stop in time, ending the process")
            self._on_stuck()
