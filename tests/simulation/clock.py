"""Virtual time and seeded randomness of a process, so that a seed always gives the same run.

``install`` must run before the import of the product, which binds defaults.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import itertools
import random
import secrets
import sys
import time
from datetime import UTC, datetime, timedelta
from zlib import crc32

from helpers.virtual_time import LoopbackLoop

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
_serials = itertools.count()
_loop: list[SimulationLoop] = []


class SerialTask(asyncio.Task):
    """A task whose place in a set depends on its number instead of its address."""

    def __init__(self, *arguments, **options):
        self.serial = next(_serials)
        super().__init__(*arguments, **options)

    def __hash__(self):
        return self.serial


class SerialFuture(asyncio.Future):
    """A future whose place in a set depends on its number instead of its address."""

    def __init__(self, **options):
        self.serial = next(_serials)
        super().__init__(**options)

    def __hash__(self):
        return self.serial


class SimulationLoop(LoopbackLoop):
    """A loop in virtual time; ``on_task`` is called with each new task."""

    def __init__(self):
        super().__init__()
        # There is no socket.
        self._select = lambda _timeout: []
        self.on_task = lambda _task: None
        self.set_task_factory(self._task)
        _loop[:] = [self]

    def create_future(self):
        return SerialFuture(loop=self)

    @staticmethod
    def _task(loop, coroutine, **options):
        task = SerialTask(coroutine, loop=loop, **options)
        loop.on_task(task)
        return task


def elapsed_seconds():
    """Return the seconds since the beginning."""
    return _loop[0].time() if _loop else 0.0


def now(_zone=UTC):
    """Return the simulated date."""
    return EPOCH + timedelta(seconds=elapsed_seconds())


class _Dates(type):
    """The type of the replacement for ``datetime`` in modules of the product."""

    def __getattr__(cls, name):
        return getattr(datetime, name)


class _Datetime(metaclass=_Dates):
    now = staticmethod(now)


def install():
    """Replace the clocks of the process."""
    time.time = lambda: EPOCH.timestamp() + elapsed_seconds()
    time.monotonic = time.perf_counter = elapsed_seconds
    time.clock_gettime = lambda _clock: elapsed_seconds()
    asyncio.to_thread = _in_this_thread


async def _in_this_thread(function, *arguments):
    """Run without a thread, whose end would not be deterministic."""
    await asyncio.sleep(0)
    return function(*arguments)


def seed(number):
    """Seed all randomness of the product."""
    global _serials  # noqa: PLW0603 - it is that of the process
    _serials = itertools.count()
    _loop.clear()
    random.seed(number)
    tokens = random.Random(f"{number}/tokens")  # noqa: S311 - no secret
    secrets.token_hex = lambda size: tokens.randbytes(size).hex()
    for name, module in sorted(sys.modules.items()):
        is_ours = name.startswith("harbourmaster.") and hasattr(module, "datetime")
        if is_ours and "datetime.now(" in inspect.getsource(module):
            module.datetime = _Datetime
    # The hash of a struct depends on the address of its class, and selects the sender of an event.
    importlib.import_module("harbourmaster.kube.events").hash = lambda obj: crc32(
        repr(obj).encode()
    )


class Watchdog:
    """Replaces the thread that ends a process: calls ``end_process`` at that time."""

    def __init__(self, end_process):
        self._end_process = end_process
        self._timer = None

    def arm(self, end):
        self.disarm()
        self._timer = asyncio.get_running_loop().call_at(end, self._end_process)

    def disarm(self):
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    close = disarm
