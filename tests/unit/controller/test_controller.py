from __future__ import annotations

import asyncio
import json

import pytest

from harbourmaster.api.resources import SECRETS
from harbourmaster.controller.controller import Controller
from harbourmaster.kube.backoff import RESTARTS, supervise
from harbourmaster.kube.errors import ApiError, ConflictError
from harbourmaster.kube.reflector import Reflector


class Recorder:
    """A reconciler that notes its keys, and fails as it is told."""

    def __init__(self):
        self.seen = []
        self.faults = []
        self.came = asyncio.Event()

    def map_changes(self, keys):
        return ["all"] if keys is None else [f"due {key}" for key in keys]

    async def reconcile(self, key):
        self.seen.append(key)
        self.came.set()
        if self.faults:
            raise self.faults.pop(0)

    async def until(self, count):
        while len(self.seen) < count:
            self.came.clear()
            await self.came.wait()
        return self.seen


@pytest.fixture
def recorder():
    return Recorder()


@pytest.fixture
def job(recorder, metrics):
    return Controller("tested", lambda _queue: recorder, metrics)


@pytest.fixture
def reflector(client, job):
    reflector = Reflector(client, SECRETS, json_of, on_change=job.enqueue)
    job.reflectors = (reflector,)
    return reflector


def json_of(raw):
    return json.loads(bytes(raw))


async def test_a_leader_begins_with_everything(job, recorder, background):
    background(job.lead())
    assert await recorder.until(1) == ["all"]


async def test_a_change_is_looked_at_while_leading_only(job, recorder, background):
    job.enqueue(["before"])
    leading = background(job.lead())
    await recorder.until(1)
    job.enqueue(["a"])
    assert await recorder.until(2) == ["all", "due a"]
    leading.cancel()
    await asyncio.wait([leading])
    job.enqueue(["after"])
    assert recorder.seen == ["all", "due a"]


async def test_each_term_has_a_reconciler_of_its_own(metrics, background):
    terms = []

    def start(_queue):
        terms.append(Recorder())
        return terms[-1]

    job = Controller("tested", start, metrics)
    for term in range(2):
        leading = background(job.lead())
        await asyncio.sleep(0)
        await terms[term].until(1)
        leading.cancel()
        await asyncio.wait([leading])
    assert terms[0] is not terms[1]


async def test_what_a_reconciler_has_under_way_ends_with_its_term(metrics, background):
    class Closing(Recorder):
        closed = False

        async def close(self):
            await asyncio.sleep(0)
            self.closed = True

    reconciler = Closing()
    leading = background(Controller("tested", lambda _queue: reconciler, metrics).lead())
    await reconciler.until(1)
    assert not reconciler.closed
    leading.cancel()
    await asyncio.wait([leading])
    assert reconciler.closed


async def test_nothing_is_reconciled_before_the_caches_are_filled(
    api, job, recorder, reflector, background
):
    api.fail_next("list", "secrets", None, status=403)
    background(reflector.run())
    background(job.lead())
    await api.until_seen("list", "secrets")
    await asyncio.sleep(0.05)
    assert recorder.seen == []
    assert job.unfilled_caches().startswith("waiting for secrets (list ")
    api.heal()
    reflector.wake()
    await recorder.until(1)
    assert job.unfilled_caches() is None


async def test_a_fault_is_counted_and_tried_again(job, recorder, metrics, background, capfd):
    recorder.faults = [ApiError("first"), ValueError("second"), ConflictError("third")]
    background(job.lead())
    assert await recorder.until(4) == ["all"] * 4
    (family,) = metrics.reconcile_errors.collect()
    assert {tuple(sample.labels.values()): sample.value for sample in family.samples} == {
        ("tested", "ApiError"): 1,
        ("tested", "ValueError"): 1,
        ("tested", "ConflictError"): 1,
    }


async def test_a_reconcile_runs_under_the_guard(job, recorder, background):
    guarded = []

    async def guard(coroutine):
        guarded.append(True)
        return await coroutine

    background(job.lead(guard))
    await recorder.until(1)
    assert guarded == [True]


async def test_a_crash_is_counted_and_started_again_ever_more_slowly():
    waits, crashes = [], []
    faults = [ValueError("first"), ValueError("second"), None]

    async def run():
        fault = faults.pop(0)
        if fault:
            raise fault

    async def sleep(seconds):
        waits.append(seconds)

    await supervise("tested", run, crashes.append, chance=lambda: 0, sleep=sleep)
    assert crashes == ["tested", "tested"]
    assert waits == [RESTARTS.delay(0, 0), RESTARTS.delay(1, 0)]
    assert waits[0] < waits[1]


async def test_a_cancellation_is_no_crash():
    crashes = []
    task = asyncio.create_task(supervise("tested", asyncio.Event().wait, crashes.append))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert crashes == []
