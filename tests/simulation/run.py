"""One simulation: the cluster, our processes and what befalls them, all from one seed."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import random
import uuid
from collections import deque

import msgspec

from harbourmaster.telemetry.logging import configure_logging
from simulation import clock
from simulation.cluster import Cluster
from simulation.connection import WRITES, Network
from simulation.faults import Faults
from simulation.invariants import Invariants
from simulation.replicas import REPLICA, ControllerReplica, WebhookReplica
from simulation.server import SimulatedServer
from simulation.users import Users

QUIET = 300.0
"""Seconds without a change after which nothing more is to come."""
LONGEST = 4 * 3600.0
"""Seconds for all to come to an end."""
TAIL = 60
ROUTINE = (
    "update /apis/coordination.k8s.io/",
    "patch /apis/metrics.keptn.sh/",
)
"""How lines begin of what goes on all the time."""
UNCOUNTED = {"Event", "KeptnMetric", "Lease"}
"""Kinds that change for ever."""


class ViolationError(AssertionError):
    """What must hold does not."""


class Outcome(msgspec.Struct):
    """How a simulation ended; ``digest`` is the same for the same trace."""

    seed: int
    violation: str
    digest: str
    requests: int
    released: int
    seconds: float
    tail: list[str]


class Simulation:
    """See ``run``."""

    def __init__(self, seed, steps, trace=None):
        self.seed = seed
        self._steps = steps
        self._trace = trace
        self.excluded = {"harbourmaster-system", "keptn-system"}
        uids = self.dice("uids")
        self.server = SimulatedServer(
            now=clock.now, uid=lambda: str(uuid.UUID(int=uids.getrandbits(128)))
        )
        self._background = []
        self._tail = deque(maxlen=TAIL)
        self._digest = hashlib.sha256()
        self._requests = 0
        self._failed = asyncio.Event()
        self._violation = ""
        self._last_change = 0.0
        self.cluster = Cluster(self, self.server, self.dice("cluster"))
        self.invariants = Invariants(self, self.server, self.cluster)
        self.faults = Faults(self, self.dice("faults"))
        self.users = Users(self, self.server, self.dice("users"))
        self.network = Network(self.server, self.faults, self._answered)
        self.controllers = [ControllerReplica(self, f"controller-{n}") for n in range(2)]
        self.webhook = WebhookReplica(self, "webhook-0")
        self.replicas = [*self.controllers, self.webhook]
        self._pauses = self.dice("pauses")
        self._rate = 1 / self._pauses.choice((2, 5, 15))
        self.server.listeners.append(self._changed)

    def dice(self, purpose):
        """Chance for one purpose, so that a change in one leaves the others as they are."""
        return random.Random(f"{self.seed}/{purpose}")  # noqa: S311 - no secret

    async def run(self):
        """Run to the end; raises ViolationError."""
        asyncio.get_running_loop().made = _adopt
        self.background(self._bookmarks())
        self.users.prepare()
        for replica in self.replicas:
            replica.start()
        acting = asyncio.ensure_future(self._act())
        failing = asyncio.ensure_future(self._failed.wait())
        await asyncio.wait({acting, failing}, return_when=asyncio.FIRST_COMPLETED)
        for each in (acting, failing):
            each.cancel()
        await asyncio.gather(acting, failing, return_exceptions=True)
        for each in self.replicas:
            each.is_dead = True
        if self._violation:
            raise ViolationError(self._violation)
        acting.result()

    async def _act(self):
        for _ in range(self._steps):
            await asyncio.sleep(self._pauses.expovariate(self._rate))
            self.users.act()
            self.faults.strike()
        await asyncio.sleep(30)
        self.faults.end()
        self.note("server", "is well from now on")
        self.users.finish()
        begun = self._last_change = self.now()
        while self.now() - self._last_change < QUIET:
            if self.now() - begun > LONGEST:
                self.violation("objects change for ever")
                return
            await asyncio.sleep(20)
        self.invariants.check_quiet(self.controllers)

    async def _bookmarks(self):
        while True:
            await asyncio.sleep(55)
            self.server.bookmark()

    # What the parts need

    def now(self):
        """Seconds since the beginning."""
        return clock.elapsed()

    def note(self, who, what, more=""):
        """Write a line of the trace."""
        if self._violation:
            return
        line = f"{self.now():12.6f} {who:14} {what} {more}".rstrip()
        if not what.startswith(ROUTINE):
            self._tail.append(line)
        self._digest.update(line.encode())
        if self._trace is not None:
            self._trace.write(f"{line}\n")

    def violation(self, text):
        """Note what is broken, and end."""
        if not self._violation:
            self._violation = text
            self._tail.append(f"{self.now():12.6f} INVARIANT      {text}")
        self._failed.set()

    def background(self, coroutine):
        """Run something of the simulation itself."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._background = [each for each in self._background if not each.done()]
        self._background.append(task)
        task.add_done_callback(self._note_end)

    def later(self, seconds, act, *arguments):
        """Do something later."""
        asyncio.get_running_loop().call_later(seconds, act, *arguments)

    def restart(self, replica):
        """Have a process come back, as its Deployment does."""
        self.later(self._pauses.uniform(0.5, 30), replica.start)

    def outcome(self):
        """How it ended."""
        return Outcome(
            self.seed,
            self._violation,
            self._digest.hexdigest()[:16],
            self._requests,
            self.invariants.released,
            self.now(),
            list(self._tail),
        )

    def log(self, line):
        """A line of our processes' logs."""
        found = json.loads(line)
        replica = REPLICA.get()
        who = replica.identity if replica is not None else "?"
        text = {key: value for key, value in found.items() if key not in {"timestamp", "exception"}}
        self.note(who, "logs", json.dumps(text, sort_keys=True))
        if "exception" in found and (replica is None or not replica.is_dead):
            self._tail.extend(found["exception"].splitlines()[-12:])
            self.violation(f"{who} logs a traceback: {found['event']}")

    def _answered(self, replica, seen, code, more):
        self._requests += 1
        if "/leases/" in seen.path and code == 200:
            replica.has_seen_lease = True
        if seen.verb in WRITES and "/events" not in seen.path:
            said = digest(seen.body)
            self.note(replica.identity, f"{seen.verb} {seen.path} {said}", f"{code} {more}")
        elif more or code >= 400:
            self.note(replica.identity, f"{seen.verb} {seen.path}", f"{code} {more}")

    def _changed(self, change):
        if change.resource.kind not in UNCOUNTED:
            self._last_change = self.now()

    def _note_end(self, task):
        if not task.cancelled() and task.exception() is not None:
            self._tail.append(repr(task.exception()))
            self.violation(f"the simulation itself fails: {task.exception()!r}")


class _Log(io.RawIOBase):
    """Takes the product's log lines."""

    def __init__(self, simulation):
        self._simulation = simulation

    def write(self, line):
        self._simulation.log(line)
        return len(line)

    def flush(self):
        """Nothing is held."""


def digest(body):
    """A few digits of a body."""
    return hashlib.sha256(body).hexdigest()[:6]


def _adopt(task):
    replica = REPLICA.get()
    if replica is not None:
        replica.adopt(task)


def run(seed, steps, trace=None):
    """Simulate; returns the Outcome."""
    clock.seed(seed)
    made = []

    async def begin():
        simulation = Simulation(seed, steps, trace)
        made.append(simulation)
        configure_logging("warning", "json", stream=_Log(simulation))
        await simulation.run()

    loop = clock.SimulationLoop()
    try:
        loop.run_until_complete(begin())
    except ViolationError:
        pass
    finally:
        found = made[0].outcome()
        _end(loop)
    return found


def _end(loop):
    """End what still runs; nothing of it counts."""
    tasks = sorted(asyncio.all_tasks(loop), key=hash)

    async def end():
        while alive := [task for task in tasks if not task.done()]:
            for each in alive:
                each.cancel()
            await asyncio.sleep(0)

    loop.run_until_complete(end())
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
