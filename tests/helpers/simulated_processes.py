"""Candidates for a Lease in several processes, each with its own event loop and clock.

Time is simulated. A process can stand still for a while, as by SIGSTOP: whatever became due
meanwhile runs in its order when it goes on. It can be killed at any moment.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import json
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from harbourmaster.kube.deadline import Watchdog
from harbourmaster.kube.election import LeaderElection
from harbourmaster.kube.errors import UnreachableError, error_from

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


PATH = "/apis/coordination.k8s.io/v1/namespaces/harbourmaster-system/leases"
EPOCH = datetime(2026, 3, 1, tzinfo=UTC)
TIMES = {"lease_duration": 4.0, "renew_deadline": 2.5, "retry_period": 0.5}
UNWINDS = 0.5
STEP = 0.1
# What those come to: an attempt each, the end of work, what it may take to unwind, a takeover.
PERIOD = 0.5625
DEADLINE = 2.5
GRACE = 1.2
LEASE = 4.0


class Call(NamedTuple):
    """A request that was sent; ``time`` is the true one."""

    time: float
    who: str
    method: str
    body: dict | None


class Fate(NamedTuple):
    """The fate of a request: when it reaches the server, if at all, and its answer us.

    ``refusal`` is an error in place of an answer, ``instead`` of doing it or after.
    """

    there: float | None = 0.005
    back: float | None = 0.005
    refusal: Exception | None = None
    instead: bool = True


class Step(NamedTuple):
    """One piece of work done, in which term of whom."""

    time: float
    who: str
    term: int


class LeaseServer:
    """One Lease, kept as an API server keeps it."""

    def __init__(self):
        self.stored: dict | None = None
        self.version = 100

    def put(self, **spec):
        """Write the Lease as another client would; None deletes a field."""
        stored = self.stored or {"metadata": {"name": "leader"}, "spec": {}}
        changed = {**stored["spec"], **spec}
        self._keep({**stored, "spec": {k: v for k, v in changed.items() if v is not None}})

    def delete(self):
        self.stored = None

    @property
    def spec(self):
        return self.stored["spec"]

    @property
    def holder(self):
        return "" if self.stored is None else self.spec.get("holderIdentity", "")

    def answer(self, method, path, body):
        """The body of the answer; raises the ApiError of any other."""
        if method == "POST":
            assert path == PATH
            if self.stored is not None:
                raise status_error(409, "AlreadyExists")
            assert not body["metadata"].get("resourceVersion")
            return self._keep(body)
        assert path == f"{PATH}/leader"
        if self.stored is None:
            raise status_error(404, "NotFound")
        if method == "PUT":
            assert body["metadata"]["resourceVersion"]
            if body["metadata"]["resourceVersion"] != self.stored["metadata"]["resourceVersion"]:
                raise status_error(409, "Conflict")
            return self._keep(body)
        assert method == "GET"
        return json.dumps(self.stored).encode()

    def _keep(self, body):
        self.version += 1
        metadata = {**body["metadata"], "resourceVersion": str(self.version)}
        self.stored = {**body, "metadata": metadata}
        return json.dumps(self.stored).encode()


def status_error(code, reason="", headers=None):
    body = {"kind": "Status", "message": "on demand", "reason": reason, "code": code}
    return error_from(code, json.dumps(body).encode(), headers, call="lease")


class Election:
    """The world of one election. ``fate_of(candidate, call)`` decides about each request."""

    def __init__(self, fate_of=lambda _candidate, _call: Fate()):
        self.world = Timeline()
        self.server = LeaseServer()
        self.fate_of = fate_of
        self.calls: list[Call] = []
        self.steps: list[Step] = []
        self.candidates: list[Candidate] = []

    def add(self, **options):
        candidate = Candidate(self, chr(ord("a") + len(self.candidates)), **options)
        self.candidates.append(candidate)
        return candidate

    def run(self, seconds):
        self.world.run(self.world.now + seconds)

    def working(self, within=1.0):
        """The candidates that have worked within the last seconds."""
        return {step.who for step in self.steps if step.time > self.world.now - within}

    def calls_of(self, who, since=0.0, method=None):
        return [
            call
            for call in self.calls
            if call.who == who and call.time >= since and method in {None, call.method}
        ]

    def overlaps(self):
        """Pairs of terms of which one began before the other had ended."""
        first: dict[int, Step] = {}
        last: dict[int, Step] = {}
        for step in self.steps:
            first.setdefault(step.term, step)
            last[step.term] = step
        spans, latest = [], None
        for term, begun in sorted(first.items()):
            if latest is not None and latest.time >= begun.time:
                spans.append((latest, begun))
            latest = last[term] if latest is None else max(latest, last[term])
        return spans

    def end(self):
        self.world.end()


class Candidate:
    """One candidate, started at once. ``skew`` is what its wall clock is wrong by, in hours.

    Its work does a step every 100 ms, ``fails`` times it fails after 1 s. Told to end, it takes
    ``unwinds`` seconds (None: for ever), and does a last step.
    """

    def __init__(  # noqa: PLR0913 - each is another way to be difficult
        self,
        election,
        name,
        *,
        offset=0.0,
        rate=1.0,
        skew=0.0,
        unwinds=0.0,
        fails=0,
        returns=False,
        chance=lambda: 0.5,
        times=None,
    ):
        self.name = name
        self.skew = skew
        self.slept = 0.0
        """Seconds for which its machine was asleep: timers do not count them."""
        self.states: list[tuple[float, bool]] = []
        self.stuck = False
        self._all = election
        self._unwinds, self._fails, self._returns = unwinds, fails, returns
        self.process = Process(election.world, offset=offset, rate=rate)
        self.election = LeaderElection(
            self,
            name="leader",
            namespace="harbourmaster-system",
            identity=name,
            on_state=lambda leading: self.states.append((election.world.now, leading)),
            watchdog=SimulatedWatchdog(self),
            clock=lambda: self.process.time() + self.slept,
            now=lambda: EPOCH + timedelta(seconds=election.world.now, hours=self.skew),
            chance=chance,
            **(times or TIMES),
        )
        self.process.start(self.election.run(self.work))

    async def work(self):
        world = self._all.world
        begun = world.now
        term = len(self._all.steps)
        try:
            while True:
                self._note_step(term)
                await asyncio.sleep(STEP)
                if world.now > begun + 1:
                    if self._returns:
                        return
                    if self._fails:
                        self._fails -= 1
                        raise RuntimeError("the work fails")
        except asyncio.CancelledError:
            await self._unwind(begun, term)
            raise

    async def _unwind(self, begun, term):
        if self._unwinds is None:
            while True:
                self._note_last(begun, term)
                await asyncio.sleep(STEP)
        await asyncio.sleep(self._unwinds)
        self._note_last(begun, term)

    def _note_last(self, begun, term):
        # A process that stood still can only end when it goes on, whoever leads by then.
        if self.process.woke <= begun:
            self._note_step(term)

    def _note_step(self, term):
        if self.process.alive:
            self._all.steps.append(Step(self._all.world.now, self.name, term))

    def sleep(self, seconds):
        """Let its machine sleep, in no time."""
        self.slept += seconds
        self.process.woke = self._all.world.now

    def cancel(self):
        """Stop the candidate as SIGTERM does."""
        self.process.call_soon(self.process.main.cancel)

    @property
    def holds(self):
        return self._all.server.holder == self.election.identity

    async def request(self, method, path, *, body=None, content_type=None, timeout=None, retries):  # noqa: ASYNC109 - the client's
        assert retries == 0
        assert timeout > 0
        assert (content_type == "application/json") == (body is not None)
        world, process = self._all.world, self.process
        content = None if body is None else json.loads(body)
        call = Call(world.now, self.name, method, content)
        self._all.calls.append(call)
        fate = self._all.fate_of(self, call)
        answered = process.create_future()

        def settle(result):
            if answered.done() or not process.alive:
                return
            if isinstance(result, Exception):
                answered.set_exception(result)
            else:
                answered.set_result(result)

        def reply(result):
            if fate.back is not None:
                world.after(fate.back, lambda: process.call_soon(settle, result))

        def arrive():
            if fate.refusal is not None and fate.instead:
                reply(fate.refusal)
                return
            try:
                result = self._all.server.answer(method, path, content)
            except Exception as error:  # noqa: BLE001 - it is the answer
                result = error
            reply(result if fate.refusal is None else fate.refusal)

        if fate.there is not None:
            world.after(fate.there, arrive)
        return await answered


class SimulatedWatchdog(Watchdog):
    """Kills the candidate's process in simulated time."""

    def __init__(self, candidate):
        super().__init__()
        self._candidate = candidate
        self._armed = 0

    def arm(self, end):
        self._armed += 1
        process = self._candidate.process
        self._look_at(process.true_time(end - self._candidate.slept), self._armed)

    def disarm(self):
        self._armed += 1

    def close(self):
        self.disarm()

    def _look_at(self, instant, armed):
        candidate, process = self._candidate, self._candidate.process

        def look():
            if armed != self._armed or not process.alive:
                return
            if process.stands:
                self._look_at(process.stands_until + UNWINDS, armed)
                return
            candidate.stuck = True
            process.kill()

        process.world.at(instant, look)


RESET = Fate(there=None, back=None)
HANG = Fate(back=None)


def refusal(code, retry_after=None):
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    return Fate(refusal=status_error(code, headers=headers))


def proxy_page():
    """A 502 of a proxy."""
    return Fate(refusal=error_from(502, b"<html>bad gateway</html>", call="lease"))


def connection_reset(*, instead=True):
    return Fate(refusal=UnreachableError("the connection broke"), instead=instead)


def leader_and_candidate(election, **options):
    """The leader ``a`` and the candidate ``b`` after five seconds; options are the leader's."""
    leader = election.add(**options)
    election.run(1)
    candidate = election.add()
    election.run(4)
    return leader, candidate


def last_step(election, who):
    return max(step.time for step in election.steps if step.who == who)


def first_step(election, who, since=0.0):
    return min(step.time for step in election.steps if step.who == who and step.time >= since)


def last_renewal(election, who):
    """The time at which the last renewal began that the server accepted."""
    return max(call.time for call in election.calls if call.who == who and call.method == "PUT")
