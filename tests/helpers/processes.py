"""Several processes in one test, each with its own event loop and clock, in simulated time.

A process can stand still for a while, as by SIGSTOP: whatever became due meanwhile runs in its
order when it goes on. It can be killed at any moment.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools

TINY = 1e-6


class Timeline:
    """The true time, and what happens when."""

    def __init__(self):
        self.now = 0.0
        self.processes: list[Process] = []
        self._agenda: list[tuple[float, int, object]] = []
        self._numbers = itertools.count()

    def at(self, instant, act):
        """Let something happen that is no process's doing."""
        heapq.heappush(self._agenda, (max(instant, self.now), next(self._numbers), act))

    def after(self, seconds, act):
        self.at(self.now + seconds, act)

    def run(self, until):
        """Let time pass."""
        while True:
            due = [(process.due(), n) for n, process in enumerate(self.processes) if process.alive]
            instant, number = min(due, default=(float("inf"), 0))
            if self._agenda and self._agenda[0][0] <= instant:
                instant = self._agenda[0][0]
                if instant > until:
                    break
                self.now = max(self.now, instant)
                heapq.heappop(self._agenda)[2]()
                continue
            if instant > until:
                break
            self.now = max(self.now, instant)
            self.processes[number].turn()
        self.now = until

    def end(self):
        """Unwind whatever still runs, so that nothing is left of it."""
        for process in self.processes:
            process.bury()


class Process(asyncio.BaseEventLoop):
    """One process. Its clock shows ``offset`` at the beginning and runs ``rate`` times as fast."""

    def __init__(self, world, *, offset=0.0, rate=1.0):
        super().__init__()
        self.set_exception_handler(lambda *_: None)
        self._selector = self
        self.world = world
        self.offset, self.rate = offset, rate
        self.alive = True
        self.stands_until = 0.0
        self.woke = -1.0
        """The time at which it last resumed after standing still."""
        self.main: asyncio.Task | None = None
        world.processes.append(self)

    def time(self):
        return self.world.now * self.rate + self.offset

    def true_time(self, clock):
        """The true time at which our clock shows ``clock``."""
        return (clock - self.offset) / self.rate

    def start(self, coroutine):
        self.main = self.create_task(coroutine)

    def stop_for(self, seconds):
        """Stand still."""
        self.stands_until = max(self.stands_until, self.world.now + seconds)
        self.woke = self.stands_until

    def kill(self):
        self.alive = False

    @property
    def stands(self):
        return self.world.now < self.stands_until

    def due(self):
        """The time at which the next step is due."""
        if self._ready:
            return max(self.world.now, self.stands_until)
        if not self._scheduled:
            return float("inf")
        return max(self.true_time(self._scheduled[0].when()) + TINY, self.stands_until)

    def turn(self):
        """Do what is due, once around the loop."""
        asyncio._set_running_loop(self)
        try:
            self._run_once()
        finally:
            asyncio._set_running_loop(None)

    def bury(self):
        self.alive = False
        while tasks := asyncio.all_tasks(self):
            for task in tasks:
                task.cancel()
            self.turn()
        self.close()

    def select(self, _timeout):
        return []

    def _process_events(self, _events):
        pass

    def _write_to_self(self):
        pass
