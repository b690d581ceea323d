"""Work that is stopped before its next step, and a process that ends when it can't be."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time

import pytest

from harbourmaster.kube.deadline import Watchdog, read_boottime, run_while
from helpers.logs import captured_log
from helpers.patience import PATIENCE

STUCK = """
import time
from harbourmaster.kube.deadline import Watchdog, read_boottime
Watchdog().arm(read_boottime() + 0.1)
time.sleep(600)
"""


class Gate:
    """Steps are allowed until it is shut."""

    def __init__(self):
        self.shut = False

    def __call__(self):
        return not self.shut


@pytest.fixture
def gate():
    return Gate()


async def test_an_allowed_coroutine_runs_as_ever(gate):
    async def work():
        await asyncio.sleep(0)
        return await asyncio.wait_for(asyncio.sleep(0, "value"), 5)

    assert await run_while(gate, work()) == "value"


async def test_its_error_comes_through(gate):
    async def work():
        await asyncio.sleep(0)
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await run_while(gate, work())


async def test_what_it_waits_for_may_fail(gate):
    async def work():
        try:
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        except TimeoutError:
            return "late"

    assert await run_while(gate, work()) == "late"


async def test_a_cancellation_reaches_it(gate):
    ended = []

    async def work():
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(True)

    task = asyncio.create_task(run_it(gate, work()))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert ended == [True]


async def run_it(gate, coroutine):
    return await run_while(gate, coroutine)


async def test_no_step_is_done_that_is_not_allowed(gate):
    steps = []
    event = asyncio.Event()

    async def work():
        steps.append("first")
        try:
            await event.wait()
            steps.append("second")
        finally:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            steps.append("end")

    task = asyncio.create_task(run_it(gate, work()))
    await asyncio.sleep(0)
    gate.shut = True
    event.set()
    await asyncio.wait([task])
    assert task.cancelled()
    assert steps == ["first", "end"]


async def test_not_even_the_first_step_is_done(gate):
    steps = []

    async def work():
        steps.append("first")

    gate.shut = True
    task = asyncio.create_task(run_it(gate, work()))
    await asyncio.wait([task])
    assert task.cancelled()
    assert steps == []


async def test_a_timeout_of_its_own_that_is_due_at_once_does_not_keep_it_alive(gate):
    steps = []

    async def work():
        try:
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        except TimeoutError:
            steps.append("went on")

    task = asyncio.create_task(run_it(gate, work()))
    await asyncio.sleep(0)
    gate.shut = True
    await asyncio.wait([task])
    assert task.cancelled()
    assert steps == []


@pytest.fixture
def call():
    return threading.Event()


@pytest.fixture
def watchdog(call):
    with captured_log():
        watchdog = Watchdog(call.set)
        yield watchdog
        watchdog.close()


def test_stuck_work_is_told_of_while_the_loop_is_blocked(watchdog, call):
    began = read_boottime()
    watchdog.arm(began + 0.1)
    assert call.wait(PATIENCE)
    assert read_boottime() - began >= 0.1


def test_it_is_told_of_once(watchdog, call):
    watchdog.arm(read_boottime())
    assert call.wait(PATIENCE)
    call.clear()
    assert not call.wait(0.1)


@pytest.mark.parametrize("how", ["disarm", "arm", "close"])
def test_work_that_ends_or_goes_on_in_time_is_left_alone(call, how):
    now = [0.0]
    watchdog = Watchdog(call.set, clock=lambda: now[0])
    watchdog.arm(0.1)
    if how == "arm":
        watchdog.arm(60)
    else:
        getattr(watchdog, how)()
    now[0] = 0.1
    assert not call.wait(0.3)
    watchdog.close()


def test_it_can_be_armed_after_it_was_closed(watchdog, call):
    watchdog.arm(read_boottime() + 60)
    watchdog.close()
    watchdog.arm(read_boottime())
    assert call.wait(PATIENCE)


def test_closing_ends_the_thread(watchdog):
    before = threading.active_count()
    watchdog.arm(read_boottime() + 60)
    assert threading.active_count() == before + 1
    watchdog.close()
    assert threading.active_count() == before
    watchdog.close()


def test_a_process_that_stood_still_gets_a_moment_to_end_its_work(call):
    looks = iter([0.0])
    # After the first look at the clock an hour passes.
    watchdog = Watchdog(call.set, clock=lambda: read_boottime() + next(looks, 3600.0))
    with captured_log():
        began = time.monotonic()
        watchdog.arm(read_boottime() + 0.05)
        assert call.wait(PATIENCE)
        assert time.monotonic() - began > 0.4
        watchdog.close()


def test_the_process_ends_with_code_1_and_says_why():
    result = subprocess.run(
        [sys.executable, "-c", STUCK], capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert result.returncode == 1
    assert "did not stop in time, ending the process" in result.stdout + result.stderr
