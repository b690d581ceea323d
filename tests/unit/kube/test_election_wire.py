"""Election through the real client against an API server that misbehaves, in real time."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from harbourmaster.api.resources import LEASES
from harbourmaster.kube import election
from harbourmaster.kube.deadline import Watchdog
from harbourmaster.kube.election import LeaderElection
from helpers.logs import captured_log
from helpers.patience import PATIENCE

# Together they take as long as a thousand others.
pytestmark = pytest.mark.slow

NAMESPACE = "harbourmaster-system"
TIMES = {"lease_duration": 0.9, "renew_deadline": 0.5, "retry_period": 0.1}
PATIENT = {"lease_duration": 90.0, "renew_deadline": 60.0, "retry_period": 0.1}
"""Times of an election in which no time ends."""
FAULTS = pytest.mark.parametrize(
    "fault",
    [
        {"kind": "reset"},
        {"kind": "hang"},
        {"kind": "html", "status": 502},
        {"kind": "garbage"},
        {"kind": "torn"},
        {"kind": "redirect"},
        {"status": 429, "headers": {"Retry-After": "30"}},
        {"status": 409},
        {"status": 500},
        {"status": 403},
    ],
    ids=lambda fault: f"{fault.get('kind', 'status')}-{fault.get('status', '')}",
)


class Worker:
    """A candidate, and when it worked."""

    def __init__(self, client, name="a", times=TIMES, marks=None):
        self.changed = asyncio.Condition()
        self.working = False
        self.spans: list[list[float]] = []
        self.stuck = threading.Event()
        self.election = LeaderElection(
            client,
            name="harbourmaster-controller",
            namespace=NAMESPACE,
            identity=name,
            watchdog=Watchdog(self.stuck.set),
            labels={"app.kubernetes.io/name": "harbourmaster"},
            marks=marks,
            **times,
        )
        self.task = asyncio.create_task(self.election.run(self.work))

    async def work(self):
        self.spans.append([time.monotonic(), 0.0])
        await self._set(working=True)
        try:
            await asyncio.Event().wait()
        finally:
            self.spans[-1][1] = time.monotonic()
            await self._set(working=False)

    async def _set(self, *, working):
        async with self.changed:
            self.working = working
            self.changed.notify_all()

    async def until(self, *, working):
        async with asyncio.timeout(PATIENCE), self.changed:
            await self.changed.wait_for(lambda: self.working == working)

    async def stop(self):
        self.task.cancel()
        await asyncio.wait([self.task])


@pytest.fixture
async def start(client):
    started = []

    def begin(name="a", times=TIMES, marks=None):
        started.append(Worker(client, name, times, marks))
        return started[-1]

    with captured_log():
        yield begin
        for candidate in started:
            await candidate.stop()


def stored_lease(api):
    return api.get(LEASES, "harbourmaster-controller", NAMESPACE)


async def test_a_lease_is_made_with_our_labels_and_given_back(api, start, monkeypatch):
    monkeypatch.setattr(election, "RELEASE_TIMEOUT", PATIENCE)
    a = start(times=PATIENT)
    await a.until(working=True)
    assert stored_lease(api)["spec"]["holderIdentity"] == a.election.identity
    assert stored_lease(api)["metadata"]["labels"] == {"app.kubernetes.io/name": "harbourmaster"}
    await a.stop()
    assert a.task.cancelled()
    assert stored_lease(api)["spec"]["holderIdentity"] == ""
    assert stored_lease(api)["spec"]["leaseDurationSeconds"] == 1


@FAULTS
async def test_work_ends_and_is_taken_up_again(api, start, fault):
    a = start()
    await a.until(working=True)
    api.fail_next(count=None, **fault)
    await a.until(working=False)
    api.heal()
    await a.until(working=True)
    assert a.spans[1][0] >= a.spans[0][1]


async def test_a_blocked_loop_ends_the_process_when_its_time_is_over(start):
    a = start()
    await a.until(working=True)
    # The loop is busy, as with a computation that never yields.
    assert a.stuck.wait(PATIENCE)
    await a.until(working=False)
    await a.until(working=True)
    assert a.spans[1][0] >= a.spans[0][1]


async def test_a_mark_of_the_lease_outlives_renewals_a_deletion_and_its_leader(api, start):
    a = start(times=PATIENT, marks={"example.com/since": True})
    await a.until(working=True)
    since = a.election.marks["example.com/since"]
    assert stored_lease(api)["metadata"]["annotations"] == {"example.com/since": since}
    await api.until_seen("update", count=len(api.seen("update")) + 2)
    api.remove(LEASES, "harbourmaster-controller", NAMESPACE)
    seen = len(api.seen("create"))
    await api.until_seen("create", count=seen + 1)
    await api.until_seen("update", count=len(api.seen("update")) + 1)
    assert stored_lease(api)["metadata"]["annotations"] == {"example.com/since": since}
    # Another value shows that it is not written again.
    early = "2026-03-01T12:00:00Z"
    await a.stop()
    changed = stored_lease(api)
    changed["metadata"]["annotations"] = {"example.com/since": early}
    api.put(LEASES, changed)
    b = start("b", times=PATIENT, marks={"example.com/since": True})
    await b.until(working=True)
    assert b.election.marks == {"example.com/since": early}
    await b.stop()
    c = start("c", times=PATIENT, marks={"example.com/since": False})
    await c.until(working=True)
    assert c.election.marks == {}
    assert stored_lease(api)["metadata"]["annotations"] == {}
