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
from helpers.evaluation import NAME, START, answer, cpus


async def test_the_first_fetch_is_at_once_and_the_next_in_the_first_slot(cpus_env):
    wait = await cpus_env.reconcile()
    assert cpus_env.status() == {
        "value": "4",
        "rawValue": base64.b64encode(b'"4"').decode(),
        "lastUpdated": format_rfc3339(START),
        "question": question_hash(MetricSpec(provider=ProviderName(name=NAME), query="cpus")),
    }
    assert 0 < wait <= 60
    assert wait == pytest.approx(cpus().next(START.timestamp()) - START.timestamp(), abs=1e-3)
    assert cpus_env.events.sent == []


async def test_it_is_asked_once_in_each_slot_and_never_between(cpus_env):
    wait = await cpus_env.reconcile()
    assert await cpus_env.reconcile(wait / 2) == pytest.approx(wait / 2, abs=1e-3)
    assert cpus_env.query_count == 1
    # The answer is late, and no slot is for that.
    assert await cpus_env.reconcile(wait / 2 + 7) == pytest.approx(53, abs=1e-3)
    assert await cpus_env.reconcile(53.001) == pytest.approx(60, abs=1e-2)
    assert (cpus_env.query_count, cpus_env.writes) == (3, 3)
    assert cpus_env.status()["lastUpdated"] == format_rfc3339(cpus_env.now)


async def test_lateness_is_counted_from_the_slot(cpus_env):
    wait = await cpus_env.reconcile()
    assert cpus_env.sample(f"{METRIC_LATENESS}_count") == 0
    await cpus_env.reconcile(wait + 0.5)
    assert cpus_env.sample(f"{METRIC_LATENESS}_count") == 1
    assert cpus_env.sample(f"{METRIC_LATENESS}_sum") == pytest.approx(0.5, abs=1e-3)


async def test_what_was_missed_while_nobody_led_is_no_lateness(cpus_env):
    await cpus_env.reconcile()
    await cpus_env.metrics.close()
    cpus_env.restart()
    await cpus_env.reconcile(180)
    assert cpus_env.query_count == 2
    assert cpus_env.sample(f"{METRIC_LATENESS}_count") == 0


@pytest.mark.parametrize("error", [UnreachableError("refused"), NoValuesError("no values")])
async def test_what_may_pass_is_tried_again_ever_later(metric_env, error):
    # Slots that are far apart.
    metric_env.put_metric(fetchIntervalSeconds=3600)
    await metric_env.reconcile()
    metric_env.edit(query="flaky")
    metric_env.queries.answers["flaky"] = error
    waits = [await metric_env.reconcile(0)]
    for _ in range(4):
        waits.append(await metric_env.reconcile(waits[-1]))
    assert waits == pytest.approx([5, 10, 20, 40, 80], abs=1e-2)
    assert metric_env.writes == 2
    assert metric_env.events.of("MetricFetchFailed") == [str(error)]
    metric_env.queries.answers["flaky"] = answer(7)
    wait = await metric_env.reconcile(waits[-1])
    assert metric_env.status()["value"] == "7"
    assert len(metric_env.events.of("MetricFetched")) == 1
    # The next fault is a first one.
    metric_env.queries.answers["flaky"] = error
    assert await metric_env.reconcile(wait) == pytest.approx(5, abs=1e-2)
    metric_env.queries.answers["other"] = error
    await metric_env.reconcile(5)
    metric_env.edit(query="other")
    assert await metric_env.reconcile() == pytest.approx(5, abs=1e-2)


async def test_a_slot_is_used_though_the_next_try_would_come_later(metric_env):
    metric_env.put_metric(fetchIntervalSeconds=2)
    metric_env.queries.answers["cpus"] = UnreachableError("refused")
    for _ in range(5):
        assert 0 < await metric_env.reconcile(2) <= 2


async def test_the_wait_that_a_provider_asks_for_is_kept_beyond_the_slot(cpus_env):
    cpus_env.queries.answers["cpus"] = ThrottledError("asked too often", 300.0)
    assert await cpus_env.reconcile() == pytest.approx(300, abs=1e-3)
    assert await cpus_env.reconcile(299) == pytest.approx(1, abs=1e-3)
    assert cpus_env.query_count == 1


async def test_what_does_not_pass_waits_for_the_slot(metric_env):
    metric_env.put_metric(fetchIntervalSeconds=3600)
    await metric_env.reconcile()
    metric_env.edit(query="wrong(")
    metric_env.queries.answers["wrong("] = BadQueryError("parse error")
    wait = await metric_env.reconcile(0)
    expected = cpus(3600.0, ("prod/prometheus", "wrong(", "", "")).next(metric_env.now.timestamp())
    assert wait == pytest.approx(expected - metric_env.now.timestamp(), abs=1e-2)


async def test_credentials_are_tried_again_within_a_minute(metric_env):
    metric_env.put_metric(fetchIntervalSeconds=3600)
    metric_env.queries.answers["cpus"] = BadCredentialsError("secret token not found")
    waits = [await metric_env.reconcile(), await metric_env.reconcile(60)]
    assert max(waits) <= 60
    assert metric_env.query_count == 2
    assert metric_env.writes == 1


async def test_after_a_restart_only_what_was_missed_is_asked(metric_env):
    for number in range(30):
        metric_env.put_metric(f"m-{number}", query=f"query {number}")
    waits = {}
    for number in range(30):
        waits[number] = await metric_env.reconcile(0, f"m-{number}")
    await metric_env.metrics.close()
    metric_env.restart()
    metric_env.now += timedelta(seconds=20)
    missed = {number for number, wait in waits.items() if wait <= 20}
    assert 0 < len(missed) < 30
    for number in range(30):
        wait = await metric_env.reconcile(0, f"m-{number}")
        assert 0 < wait <= 60
        expected = waits[number] + (60 if number in missed else 0) - 20
        assert wait == pytest.approx(expected, abs=1e-2)
    assert metric_env.query_count == 30 + len(missed)


async def test_failed_queries_are_spread_after_a_restart_and_not_reported_again(metric_env):
    metric_env.queries.answers["cpus"] = UnreachableError("refused")
    for number in range(50):
        metric_env.put_metric(f"cpus-{number}")
        await metric_env.reconcile(0, f"cpus-{number}")
    await metric_env.metrics.close()
    metric_env.restart()
    waits = [await metric_env.reconcile(0, f"cpus-{number}") for number in range(50)]
    assert min(waits) < 2
    assert 10 < max(waits) <= 15
    told = len(metric_env.events.sent)
    for number in range(50):
        await metric_env.reconcile(20 if number == 0 else 0, f"cpus-{number}")
    assert len(metric_env.events.sent) == told
    metric_env.queries.answers["cpus"] = answer(4)
    await metric_env.reconcile(60, "cpus-0")
    assert metric_env.events.sent[-1][3] == "MetricFetched"


async def test_another_interval_counts_from_the_last_fetch(metric_env):
    metric_env.put_metric(fetchIntervalSeconds=3600)
    await metric_env.reconcile()
    metric_env.edit(fetchIntervalSeconds=10)
    wait = await metric_env.reconcile(1)
    assert 0 < wait <= 9
    assert metric_env.query_count == 1


async def test_an_interval_that_changes_while_an_answer_is_awaited(cpus_env):
    first = cpus_env.queries.answers["cpus"] = asyncio.get_running_loop().create_future()
    await cpus_env.reconcile()
    cpus_env.edit(fetchIntervalSeconds=3)
    assert await cpus_env.reconcile() is None
    first.set_result(answer(4))
    assert 0 < await cpus_env.take_answers() <= 3
    assert cpus_env.status()["value"] == "4"


async def test_a_clock_that_is_put_back_delays_nothing(cpus_env):
    await cpus_env.reconcile()
    await cpus_env.reconcile(60)
    assert cpus_env.query_count == 2
    assert await cpus_env.reconcile(-3600) <= 60
    assert cpus_env.query_count == 3
