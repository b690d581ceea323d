"""Time that passes only when nothing else is left to do, and counts of work: no machine matters."""

from __future__ import annotations

import asyncio
import functools
import sys
from time import monotonic

LONGEST = 100
"""Seconds of real time until a loop gives up. A timeout raised in a callback would be lost."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose clock jumps to the next timer. For code that waits for nothing outside it."""

    turn = 0.0
    """Seconds that a turn takes."""

    def __init__(self):
        super().__init__()
        self._now = 0.0
        self._threads = 0
        self._deadline = monotonic() + LONGEST
        self._select = self._selector.select
        self._selector.select = self._jump

    def time(self):
        return self._now

    def run_in_executor(self, executor, func, *args):
        self._threads += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._end_thread)
        return future

    async def shutdown_default_executor(self, *args):
        self._threads += 1
        await super().shutdown_default_executor(*args)

    def _end_thread(self, _future):
        self._threads -= 1

    def _jump(self, timeout):
        if self._threads and timeout != 0:
            # Time stands while a thread works, however slow the machine is.
            return self._select(None)
        if monotonic() > self._deadline:
            # Cancelling what is left takes a moment of its own.
            self._deadline += LONGEST
            raise TimeoutError(f"the test still runs after {LONGEST} seconds")
        if timeout is None:
            raise RuntimeError("everything waits, and no timer is set")
        ready = self._select(0)
        self._now += self.turn
        if not ready:
            self._now += max(timeout, 0)
        return ready


class LoopbackLoop(VirtualLoop):
    """A virtual loop for a client and a server that are both in it, on a loopback socket.

    Its turns take time, as they really do: whoever looks again when a time has come may find that
    a moment is missing, and look again at once.
    """

    turn = 1e-6


def loop_factories(item, modules):
    """Virtual time for tests of these modules that are not marked with another loop."""
    real = item.path.stem not in modules or item.get_closest_marker("asyncio").kwargs
    return {"asyncio": asyncio.new_event_loop} if real else {"virtual": LoopbackLoop}


def run_virtually(coroutine):
    """Run a coroutine in virtual time; return its result."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(coroutine)


def skip(seconds):
    """Let time pass at once in the running loop, which must be one of asyncio's own."""
    loop = asyncio.get_running_loop()
    before = loop.time
    loop.time = lambda: before() + seconds


def virtual(test):
    """Run an async test in virtual time."""

    @functools.wraps(test)
    def run(*args, **kwargs):
        return run_virtually(test(*args, **kwargs))

    return run


def lines(run):
    """The lines of Python that ``run`` executes in this thread; what C does is not among them."""
    count = 0

    def trace(_frame, event, _argument):
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)
    return count
