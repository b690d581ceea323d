"""The due times of KeptnMetrics: slots, retries after faults, restarts and clocks."""

from __future__ import annotations

import asyncio
import base64
from datetime import timedelta

import pytest

from harbourmaster.api.times import format_rfc3339
from harbourmaster.controller.evaluation.collectors import METRIC_LATENESS
from harbourmaster.evaluation.metric_status import question_hash
from harbourmaster.evaluation.model import MetricSpec, ProviderName
from harbourmaster.providers.errors import (
    BadCredentialsError,
    BadQueryError,
    NoValuesError,
    ThrottledError,
    UnreachableError,
)
from helpers.metric_controller import NAME, START, answer, cpus


async def test_the_first_fetch_is_at_once_and_the_next_in_the_first_slot(metered):
    wait = await metered.look()
    assert metered.status() == {
        "value": "4",
        "rawValue": base64.b64encode(b'"4"').decode(),
        "lastUpdated": format_rfc3339(START),
        "question": question_hash(MetricSpec(provider=ProviderName(name=NAME), query="cpus")),
    }
    assert 0 < wait <= 60
    assert wait == pytest.approx(cpus().next(START.timestamp()) - START.timestamp(), abs=1e-3)
    assert metered.events.sent == []


async def test_it_is_asked_once_in_each_slot_and_never_between(metered):
    wait = await metered.look()
    assert await metered.look(wait / 2) == pytest.approx(wait / 2, abs=1e-3)
    assert metered.asked == 1
    # The answer is late, and no slot is for that.
    assert await metered.look(wait / 2 + 7) == pytest.approx(53, abs=1e-3)
    assert await metered.look(53.001) == pytest.approx(60, abs=1e-2)
    assert (metered.asked, metered.writes) == (3, 3)
    assert metered.status()["lastUpdated"] == format_rfc3339(metered.now)


async def test_lateness_is_counted_from_the_slot(metered):
    wait = await metered.look()
    assert metered.sample(f"{METRIC_LATENESS}_count") == 0
    await metered.look(wait + 0.5)
    assert metered.sample(f"{METRIC_LATENESS}_count") == 1
    assert metered.sample(f"{METRIC_LATENESS}_sum") == pytest.approx(0.5, abs=1e-3)


async def test_what_was_missed_while_nobody_led_is_no_lateness(metered):
    await metered.look()
    await metered.metrics.close()
    metered.restart()
    await metered.look(180)
    assert metered.asked == 2
    assert metered.sample(f"{METRIC_LATENESS}_count") == 0


@pytest.mark.parametrize("error", [UnreachableError("refused"), NoValuesError("no values")])
async def test_what_may_pass_is_tried_again_ever_later(world, error):
    # Slots that are far apart.
    world.metric(fetchIntervalSeconds=3600)
    await world.look()
    world.edit(query="flaky")
    world.questions.said["flaky"] = error
    waits = [await world.look(0)]
    for _ in range(4):
        waits.append(await world.look(waits[-1]))
    assert waits == pytest.approx([5, 10, 20, 40, 80], abs=1e-2)
    assert world.writes == 2
    assert world.events.of("MetricFetchFailed") == [str(error)]
    world.questions.said["flaky"] = answer(7)
    wait = await world.look(waits[-1])
    assert world.status()["value"] == "7"
    assert len(world.events.of("MetricFetched")) == 1
    # The next fault is a first one.
    world.questions.said["flaky"] = error
    assert await world.look(wait) == pytest.approx(5, abs=1e-2)
    world.questions.said["other"] = error
    await world.look(5)
    world.edit(query="other")
    assert await world.look() == pytest.approx(5, abs=1e-2)


async def test_a_slot_is_used_though_the_next_try_would_come_later(world):
    world.metric(fetchIntervalSeconds=2)
    world.questions.said["cpus"] = UnreachableError("refused")
    for _ in range(5):
        assert 0 < await world.look(2) <= 2


async def test_the_wait_that_a_provider_asks_for_is_kept_beyond_the_slot(metered):
    metered.questions.said["cpus"] = ThrottledError("asked too often", 300.0)
    assert await metered.look() == pytest.approx(300, abs=1e-3)
    assert await metered.look(299) == pytest.approx(1, abs=1e-3)
    assert metered.asked == 1


async def test_what_does_not_pass_waits_for_the_slot(world):
    world.metric(fetchIntervalSeconds=3600)
    await world.look()
    world.edit(query="wrong(")
    world.questions.said["wrong("] = BadQueryError("parse error")
    wait = await world.look(0)
    expected = cpus(3600.0, ("prod/prometheus", "wrong(", "", "")).next(world.now.timestamp())
    assert wait == pytest.approx(expected - world.now.timestamp(), abs=1e-2)


async def test_credentials_are_tried_again_within_a_minute(world):
    world.metric(fetchIntervalSeconds=3600)
    world.questions.said["cpus"] = BadCredentialsError("secret token not found")
    waits = [await world.look(), await world.look(60)]
    assert max(waits) <= 60
    assert world.asked == 2
    assert world.writes == 1


async def test_after_a_restart_only_what_was_missed_is_asked(world):
    for number in range(30):
        world.metric(f"m-{number}", query=f"query {number}")
    waits = {}
    for number in range(30):
        waits[number] = await world.look(0, f"m-{number}")
    await world.metrics.close()
    world.restart()
    world.now += timedelta(seconds=20)
    missed = {number for number, wait in waits.items() if wait <= 20}
    assert 0 < len(missed) < 30
    for number in range(30):
        wait = await world.look(0, f"m-{number}")
        assert 0 < wait <= 60
        expected = waits[number] + (60 if number in missed else 0) - 20
        assert wait == pytest.approx(expected, abs=1e-2)
    assert world.asked == 30 + len(missed)


async def test_faults_are_asked_again_after_a_restart_not_all_at_once_and_not_told_again(world):
    world.questions.said["cpus"] = UnreachableError("refused")
    for number in range(50):
        world.metric(f"cpus-{number}")
        await world.look(0, f"cpus-{number}")
    await world.metrics.close()
    world.restart()
    waits = [await world.look(0, f"cpus-{number}") for number in range(50)]
    assert min(waits) < 2
    assert 10 < max(waits) <= 15
    told = len(world.events.sent)
    for number in range(50):
        await world.look(20 if number == 0 else 0, f"cpus-{number}")
    assert len(world.events.sent) == told
    world.questions.said["cpus"] = answer(4)
    await world.look(60, "cpus-0")
    assert world.events.sent[-1][3] == "MetricFetched"


async def test_another_interval_counts_from_the_last_fetch(world):
    world.metric(fetchIntervalSeconds=3600)
    await world.look()
    world.edit(fetchIntervalSeconds=10)
    wait = await world.look(1)
    assert 0 < wait <= 9
    assert world.asked == 1


async def test_an_interval_that_changes_while_an_answer_is_awaited(metered):
    first = metered.questions.said["cpus"] = asyncio.get_running_loop().create_future()
    await metered.look()
    metered.edit(fetchIntervalSeconds=3)
    assert await metered.look() is None
    first.set_result(answer(4))
    assert 0 < await metered.answered() <= 3
    assert metered.status()["value"] == "4"


async def test_a_clock_that_is_put_back_delays_nothing(metered):
    await metered.look()
    await metered.look(60)
    assert metered.asked == 2
    assert await metered.look(-3600) <= 60
    assert metered.asked == 3
