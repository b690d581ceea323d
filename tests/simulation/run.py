"""A simulation: the cluster, our processes, their users and faults, all from one seed."""

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
"""Seconds without a change after which no more changes are expected."""
LONGEST = 4 * 3600.0
"""Seconds within which all changes must end."""
TAIL = 60
ROUTINE = (
    "update /apis/coordination.k8s.io/",
    "patch /apis/metrics.keptn.sh/",
)
"""Prefixes of trace lines that are too frequent for the tail."""
UNCOUNTED = {"Event", "KeptnMetric", "Lease"}
"""Kinds that change forever."""


class ViolationError(AssertionError):
    """An invariant is broken."""


class Outcome(msgspec.Struct):
    """The outcome of a simulation; ``digest`` is a hash of its trace."""

    seed: int
    violation: str
    digest: str
    requests: int
    released: int
    staged: int
    """The pods that stages released."""
    seconds: float
    tail: list[str]


class Simulation:
    """A cluster with our processes, users and faults; see ``run``."""

    server_type = SimulatedServer
    nodes = 5

    def __init__(self, seed, steps, trace=None):
        self.seed = seed
        self._steps = steps
        self._trace = trace
        self.excluded = {"harbourmaster-system", "keptn-system"}
        uids = self.dice("uids")
        self.server = self.server_type(
            now=clock.now, uid=lambda: str(uuid.UUID(int=uids.getrandbits(128)))
        )
        self._background = {}
        self._tail = deque(maxlen=TAIL)
        self._digest = hashlib.sha256()
        self._requests = 0
        self._failed = asyncio.Event()
        self._violation = ""
        self._last_change = 0.0
        self.cluster = Cluster(self, self.server, self.dice("cluster"), self.nodes)
        self.invariants = Invariants(self, self.server, self.cluster)
        self.faults = Faults(self, self.dice("faults"))
        self.users = Users(self, self.server, self.dice("users"))
        self.network = Network(self.server, self.faults, self._note_answer)
        self.controllers = [ControllerReplica(self, f"controller-{n}") for n in range(2)]
        self.webhook = WebhookReplica(self, "webhook-0")
        self.replicas = [*self.controllers, self.webhook]
        self._pauses = self.dice("pauses")
        self._rate = 1 / self._pauses.choice((2, 5, 15))
        self.server.listeners.append(self._note_change)

    def dice(self, purpose):
        """Return random numbers for one purpose, which do not depend on those of others."""
        return random.Random(f"{self.seed}/{purpose}")  # noqa: S311 - no secret

    async def run(self):
        """Run to the end. Raises ViolationError."""
        asyncio.get_running_loop().on_task = _adopt
        self.background(self._bookmarks())
        self.users.prepare()
        for replica in self.replicas:
            replica.start()
        acting = asyncio.ensure_future(self._act())
        failing = asyncio.ensure_future(self._failed.wait())
        await asyncio.wait({acting, failing}, return_when=asyncio.FIRST_COMPLETED)
        for task in (acting, failing):
            task.cancel()
        await asyncio.gather(acting, failing, return_exceptions=True)
        for replica in self.replicas:
            replica.is_dead = True
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
        start = self._last_change = self.now()
        while self.now() - self._last_change < QUIET:
            if self.now() - start > LONGEST:
                self.violation("objects change for ever")
                return
            await asyncio.sleep(20)
        self.invariants.check_quiet(self.controllers)

    async def _bookmarks(self):
        while True:
            await asyncio.sleep(55)
            self.server.bookmark()

    # For the parts of the simulation

    def now(self):
        """Return the seconds since the beginning."""
        return clock.elapsed_seconds()

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
        """Report a broken invariant, and end the simulation."""
        if not self._violation:
            self._violation = text
            self._tail.append(f"{self.now():12.6f} INVARIANT      {text}")
        self._failed.set()

    def background(self, coroutine):
        """Run a coroutine of the simulation itself."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._background[task] = None
        task.add_done_callback(self._note_end)

    def later(self, seconds, act, *arguments):
        """Call a function after some seconds."""
        asyncio.get_running_loop().call_later(seconds, act, *arguments)

    def restart(self, replica):
        """Start a process again after some seconds, as its Deployment does."""
        self.later(self._pauses.uniform(0.5, 30), replica.start)

    def outcome(self):
        """Return the outcome."""
        return Outcome(
            self.seed,
            self._violation,
            self._digest.hexdigest()[:16],
            self._requests,
            self.invariants.released,
            self.invariants.stages.released,
            self.now(),
            list(self._tail),
        )

    def log(self, line):
        """Add a line of our processes' logs to the trace; a traceback is a violation."""
        entry = json.loads(line)
        replica = REPLICA.get()
        who = replica.identity if replica is not None else "?"
        text = {key: value for key, value in entry.items() if key not in {"timestamp", "exception"}}
        self.note(who, "logs", json.dumps(text, sort_keys=True))
        if "exception" in entry and (replica is None or not replica.is_dead):
            self._tail.extend(entry["exception"].splitlines()[-12:])
            self.violation(f"{who} logs a traceback: {entry['event']}")

    def _note_answer(self, replica, seen, code, more):
        self._requests += 1
        if "/leases/" in seen.path and code == 200:
            replica.has_seen_lease = True
        if seen.verb in WRITES and "/events" not in seen.path:
            body_digest = digest(seen.body)
            self.note(replica.identity, f"{seen.verb} {seen.path} {body_digest}", f"{code} {more}")
        elif more or code >= 400:
            self.note(replica.identity, f"{seen.verb} {seen.path}", f"{code} {more}")

    def _note_change(self, change):
        if change.resource.kind not in UNCOUNTED:
            self._last_change = self.now()

    def _note_end(self, task):
        del self._background[task]
        if not task.cancelled() and task.exception() is not None:
            self._tail.append(repr(task.exception()))
            self.violation(f"the simulation itself fails: {task.exception()!r}")


class _Log(io.RawIOBase):
    """Passes the log lines of the product to the simulation."""

    def __init__(self, simulation):
        self._simulation = simulation

    def write(self, line):
        self._simulation.log(line)
        return len(line)

    def flush(self):
        """Do nothing: no line is buffered."""


def digest(body):
    """Return a short hash of a body."""
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
        outcome = made[0].outcome()
        _end(loop)
    return outcome


def _end(loop):
    """Cancel all tasks, and close the loop."""
    tasks = sorted(asyncio.all_tasks(loop), key=hash)

    async def end():
        while alive := [task for task in tasks if not task.done()]:
            for task in alive:
                task.cancel()
            await asyncio.sleep(0)

    loop.run_until_complete(end())
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
