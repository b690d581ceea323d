"""Waits between attempts."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbourmaster.kube.backoff import Backoff, Pace, PacedCall
from harbourmaster.kube.event_series import Allowance
from helpers.virtual_time import run_virtually


def test_waits_double_up_to_the_limit():
    backoff = Backoff(first=0.2, limit=30.0)
    waits = [backoff.delay(attempt, 0.0) for attempt in range(10)]
    assert waits == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0])


def test_chance_takes_away_up_to_the_jitter():
    assert Backoff(jitter=0.5).delay(9, 1.0) == 15.0
    assert Backoff(jitter=0.5).delay(9, 0.5) == 22.5
    assert Backoff(jitter=0.0).delay(9, 1.0) == 30.0


@given(st.integers(0, 10**9), st.floats(0, 1))
def test_no_wait_passes_the_limit_however_often_it_failed(attempt, chance):
    assert 0.1 <= Backoff().delay(attempt, chance) <= 30.0


@given(st.lists(st.floats(0, 3), max_size=60), st.integers(1, 4))
def test_a_pace_lets_no_more_starts_into_a_window(pauses, count):
    now = 0.0
    pace = Pace(count, 1.0, lambda: now)
    starts = []
    for pause in pauses:
        now += pause
        now += pace.wait()
        pace.start()
        starts.append(now)
    ahead = zip(starts, starts[count:], strict=False)
    assert min((later - first for first, later in ahead), default=1.0) >= 1 - 1e-9


def test_a_pace_lets_the_first_starts_pass_at_once():
    pace = Pace(2, 1.0, lambda: 5.0)
    for wait in (0.0, 0.0, 1.0):
        assert pace.wait() == wait
        pace.start()


@given(st.lists(st.floats(0, 8), max_size=60), st.integers(1, 4), st.floats(0.1, 7))
def test_paced_calls_have_a_pace_and_none_is_lost(pauses, burst, period):
    async def call_again_and_again():
        loop = asyncio.get_running_loop()
        calls, requests = [], []
        call = PacedCall(lambda: calls.append(loop.time()), Allowance(burst, period))
        for pause in pauses:
            await asyncio.sleep(pause)
            requests.append(loop.time())
            call()
            assert call.is_due or calls[-1] == loop.time()
        await asyncio.sleep(period + 0.01)
        return requests, calls

    requests, calls = run_virtually(call_again_and_again())
    # So many pass at once, and the last call is not before the last request.
    assert calls[:burst] == requests[:burst]
    assert calls[-1:] >= requests[-1:]
    for first, start in enumerate(calls):
        for number, later in enumerate(calls[first:]):
            assert number <= burst + (later - start) / period + 1e-3


def test_a_paced_call_after_a_quiet_time_is_at_once():
    async def call_twice():
        calls, loop = [], asyncio.get_running_loop()
        call = PacedCall(lambda: calls.append(loop.time()), Allowance(1, 5.0))
        for _ in range(3):
            call()
        assert calls == [0.0]
        await asyncio.sleep(20)
        call()
        return calls

    assert run_virtually(call_twice()) == [0.0, 5.0, 20.0]
