"""Virtual time and seeded chance for a whole process: the same seed gives the same run anywhere.

``install`` comes before anything of the product is imported, for defaults are bound then.
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
    """A task whose place in a set follows from its number and not from its address."""

    def __init__(self, *arguments, **options):
        self.serial = next(_serials)
        super().__init__(*arguments, **options)

    def __hash__(self):
        return self.serial


class SerialFuture(asyncio.Future):
    """The same of a future."""

    def __init__(self, **options):
        self.serial = next(_serials)
        super().__init__(**options)

    def __hash__(self):
        return self.serial


class SimulationLoop(LoopbackLoop):
    """A loop in virtual time; ``made`` is told of each task."""

    def __init__(self):
        super().__init__()
        self.made = lambda _task: None
        self.set_task_factory(self._task)
        _loop[:] = [self]

    def create_future(self):
        return SerialFuture(loop=self)

    @staticmethod
    def _task(loop, coroutine, **options):
        task = SerialTask(coroutine, loop=loop, **options)
        loop.made(task)
        return task


def elapsed():
    """Seconds since the beginning."""
    return _loop[0].time() if _loop else 0.0


def now(_zone=UTC):
    """The date."""
    return EPOCH + timedelta(seconds=elapsed())


class _Dates(type):
    """What a module finds as ``datetime`` that asks for the date."""

    def __getattr__(cls, name):
        return getattr(datetime, name)


class _Datetime(metaclass=_Dates):
    now = staticmethod(now)


def install():
    """Replace the clocks of the process."""
    time.time = lambda: EPOCH.timestamp() + elapsed()
    time.monotonic = time.perf_counter = elapsed
    time.clock_gettime = lambda _clock: elapsed()
    asyncio.to_thread = _in_this_thread


async def _in_this_thread(function, *arguments):
    """A thread of its own would end at a time of its own."""
    await asyncio.sleep(0)
    return function(*arguments)


def seed(number):
    """Begin anew with all that is chance in the product."""
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
    # That of a struct follows from the address of its class; it chooses who sends an event.
    importlib.import_module("harbourmaster.kube.events").hash = lambda obj: crc32(
        repr(obj).encode()
    )


class Watchdog:
    """Stands in for the thread that ends a process: ``stuck`` is called at that time."""

    def __init__(self, stuck):
        self._stuck = stuck
        self._timer = None

    def arm(self, end):
        self.disarm()
        self._timer = asyncio.get_running_loop().call_at(end, self._stuck)

    def disarm(self):
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    close = disarm
