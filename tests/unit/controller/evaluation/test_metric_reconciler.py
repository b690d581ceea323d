"""The steps of KeptnMetrics; the test advances the clock, fills the caches and answers queries."""

from __future__ import annotations

import asyncio
import base64
from datetime import timedelta

import msgspec
import pytest

from harbourmaster.api.resources import KEPTN_METRICS, METRICS_PROVIDERS
from harbourmaster.api.times import format_rfc3339
from harbourmaster.kube.errors import ConflictError, ServerError
from harbourmaster.providers.errors import (
    BadQueryError,
    NotFiniteError,
    ThrottledError,
    TimedOutError,
    UnreachableError,
)
from harbourmaster.providers.model import Answer, Sample
from helpers.metric_controller import NAME, START, answer, settle


async def test_our_own_writes_wake_nobody(metered):
    await metered.look()
    assert list(metered.metrics.map_changes(["prod/cpus"])) == []
    metered.metric(labels={"a": "b"})
    metered.sync()
    assert list(metered.metrics.map_changes(["prod/cpus"])) == []
    metered.edit(query="more")
    metered.sync()
    assert list(metered.metrics.map_changes(["prod/cpus"])) == ["prod/cpus"]


async def test_nothing_is_asked_any_more_when_the_term_is_over(metered):
    hanging = metered.questions.said["cpus"] = asyncio.get_running_loop().create_future()
    await metered.look()
    await metered.metrics.close()
    assert hanging.cancelled()


async def test_a_cache_that_is_behind_loses_no_stored_result(world):
    world.metric(range={"interval": "3m", "storedResults": 3}, fetchIntervalSeconds=1)
    world.sync()
    for _ in range(2):
        assert await world.metrics.reconcile("prod/cpus") is None
        await settle()
        # The write does not come back.
        wait = await world.metrics.reconcile("prod/cpus")
        world.now += timedelta(seconds=wait + 0.001)
    assert len(world.status()["intervalResults"]) == 2


async def test_c94_percentiles_are_of_sorted_values(world):
    world.questions.said["cpus"] = answer(5.0, 1.0, 4.0, 2.0, 3.0, raw=b"[...]")
    world.metric(range={"interval": "5m", "step": "1m", "aggregation": "p90"})
    await world.look()
    assert world.status()["value"] == "5"
    question = world.questions.seen[0][1]
    assert (question.end - question.start, question.step) == (300, 60)
    assert question.end == START.timestamp()


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"range": {"interval": "5mins"}}, 'range.interval "5mins" is not a duration: write'),
        ({"range": {"interval": "0s"}}, "range.interval is 0s, and must be longer than nothing"),
        ({"range": {"interval": "-5m"}}, "range.interval is -5m, and must be longer"),
        ({"range": {"step": "1m"}}, "range.step and range.aggregation belong together"),
        ({"range": {"aggregation": "p90"}}, "range.step and range.aggregation belong together"),
        (
            {"range": {"step": "1m", "aggregation": "p91"}},
            "range.aggregation 'p91' is not one of max",
        ),
        ({"range": {"step": "x", "aggregation": "p90"}}, 'range.step "x" is not a duration'),
        ({"provider": {"name": "other"}}, "KeptnMetricsProvider prod/other not found"),
        ({"provider": {"name": ""}}, "KeptnMetricsProvider prod/ not found"),
    ],
)
async def test_what_can_not_be_asked_is_said_once_and_waits_for_a_change(world, spec, text):
    world.provider("other", namespace="test")
    world.metric(**spec)
    assert await world.look() is None
    assert world.status()["errMsg"].startswith(text)
    assert world.asked == 0
    assert await world.look(600) is None
    assert world.writes == 1
    assert len(world.events.of("MetricFetchFailed")) == 1
    world.edit(fetchIntervalSeconds=60, range=None, provider={"name": NAME})
    await world.look()
    assert world.status()["value"] == "4"
    assert "errMsg" not in world.status()
    assert len(world.events.of("MetricFetched")) == 1


async def test_a_provider_that_comes_is_asked_at_once(metered):
    metered.api.remove(METRICS_PROVIDERS, NAME, "prod")
    assert await metered.look() is None
    assert metered.status()["errMsg"] == "KeptnMetricsProvider prod/prometheus not found"
    metered.provider()
    metered.sync()
    assert list(metered.metrics.map_changes(["prod/cpus"])) == ["prod/cpus"]
    await metered.look(1)
    assert metered.status()["value"] == "4"


async def test_a_provider_that_goes_leaves_the_value(metered):
    await metered.look()
    metered.api.remove(METRICS_PROVIDERS, NAME, "prod")
    assert await metered.look(1) is None
    assert metered.status()["errMsg"] == "KeptnMetricsProvider prod/prometheus not found"
    assert metered.status()["value"] == "4"


@pytest.mark.parametrize(
    "change",
    [
        {"query": "more"},
        {"provider": {"name": "other"}},
        {"range": {"interval": "5m"}},
        {"range": {"interval": "5m", "step": "1m", "aggregation": "max"}},
    ],
)
async def test_another_question_is_asked_at_once(world, change):
    world.provider("other")
    world.metric()
    await world.look()
    world.questions.said["more"] = answer(5)
    world.edit(**change)
    assert await world.look(1) <= 60
    assert world.asked == 2
    assert world.status()["lastUpdated"] == format_rfc3339(START + timedelta(seconds=1))


async def test_another_provider_is_asked_at_once(metered):
    await metered.look()
    metered.provider(server="http://other.example.com")
    await metered.look(1)
    assert metered.asked == 2


async def test_a_label_is_no_question(metered):
    await metered.look()
    metered.metric(labels={"a": "b"})
    await metered.look(1)
    assert metered.asked == 1


async def test_the_answer_to_an_old_question_is_not_written(metered):
    first = metered.questions.said["cpus"] = asyncio.get_running_loop().create_future()
    assert await metered.look() is None
    metered.edit(query="more")
    metered.questions.said["more"] = answer(5)
    await metered.look()
    # Nobody waits for it any more.
    assert first.cancelled()
    assert metered.status()["value"] == "5"
    assert metered.writes == 1


async def test_the_answer_to_an_old_question_is_not_written_where_the_cache_is_behind(metered):
    first = metered.questions.said["cpus"] = asyncio.get_running_loop().create_future()
    await metered.look()
    metered.edit(query="more")
    first.set_result(answer(4))
    await settle()
    with pytest.raises(ConflictError):
        await metered.metrics.reconcile("prod/cpus")
    assert metered.status() == {}


async def test_the_answer_for_an_object_of_the_same_name_is_not_written(metered):
    first = metered.questions.said["cpus"] = asyncio.get_running_loop().create_future()
    await metered.look()
    metered.api.remove(KEPTN_METRICS, "cpus", "prod")
    metered.metric()
    first.set_result(answer(4))
    await settle()
    with pytest.raises(ConflictError):
        await metered.metrics.reconcile("prod/cpus")
    assert metered.status() == {}


async def test_a_label_set_meanwhile_costs_no_conflict(metered):
    first = metered.questions.said["cpus"] = asyncio.get_running_loop().create_future()
    await metered.look()
    metered.metric(labels={"a": "b"})
    first.set_result(answer(4))
    await metered.answered()
    assert metered.status()["value"] == "4"
    assert metered.api.get(KEPTN_METRICS, "cpus", "prod")["metadata"]["labels"] == {"a": "b"}


async def test_a_value_is_not_kept_as_one_of_another_query(metered):
    await metered.look()
    metered.questions.said["wrong("] = BadQueryError("parse error")
    metered.edit(query="wrong(")
    await metered.look(1)
    assert metered.status() == {"errMsg": "parse error"}


@pytest.mark.parametrize("text", ["parse error", "connection refused"])
async def test_nor_is_one_whose_last_fetch_failed(metered, text):
    await metered.look()
    metered.questions.said["cpus"] = UnreachableError("connection refused")
    await metered.look(61)
    metered.questions.said["wrong("] = BadQueryError(text)
    metered.edit(query="wrong(")
    await metered.look(1)
    assert metered.status() == {"errMsg": text}


async def test_nor_are_stored_results(world):
    span = {"interval": "3m", "storedResults": 3}
    world.metric(range=span)
    await world.look()
    world.questions.said["wrong("] = UnreachableError("connection refused")
    world.edit(query="wrong(")
    await world.look(1)
    (fault,) = world.status()["intervalResults"]
    assert (fault["value"], fault["errMsg"]) == ("", "connection refused")
    writes = world.writes
    await world.look(20)
    assert world.writes == writes


async def test_a_metric_that_is_gone_is_forgotten(metered):
    hanging = metered.questions.said["cpus"] = asyncio.get_running_loop().create_future()
    await metered.look()
    metered.api.remove(KEPTN_METRICS, "cpus", "prod")
    metered.sync()
    assert list(metered.metrics.map_changes(["prod/cpus"])) == ["prod/cpus"]
    assert await metered.look() is None
    await settle()
    assert hanging.cancelled()
    assert list(metered.metrics.map_changes(["prod/cpus"])) == []
    assert metered.writes == 0


async def test_a_metric_that_went_before_its_answer_harms_nothing(metered):
    first = metered.questions.said["cpus"] = asyncio.get_running_loop().create_future()
    await metered.look()
    metered.api.remove(KEPTN_METRICS, "cpus", "prod")
    first.set_result(answer(4))
    await settle()
    # The watch has not told yet; should it be there after all, it is looked at again.
    assert await metered.metrics.reconcile("prod/cpus") == 5.0
    assert metered.events.sent == []


async def test_a_provider_that_is_away_in_several_ways_is_one_event(metered):
    for error in (TimedOutError("late"), UnreachableError("refused"), TimedOutError("late")):
        metered.questions.said["cpus"] = error
        await metered.look(61)
        assert metered.status()["errMsg"] == str(error)
    assert metered.events.of("MetricFetchFailed") == ["late"]
    metered.questions.said["cpus"] = NotFiniteError("the value is NaN")
    await metered.look(61)
    assert metered.events.of("MetricFetchFailed") == ["late", "the value is NaN"]


async def test_who_is_turned_away_while_a_provider_hangs_has_nothing_new_to_say(metered):
    metered.questions.said["cpus"] = TimedOutError("late")
    await metered.look()
    metered.questions.said["cpus"] = ThrottledError("16 queries are unanswered")
    await metered.look(61)
    assert metered.status() == {"errMsg": "late"}
    assert metered.writes == 1


async def test_a_question_that_breaks_is_a_fault_and_nothing_of_it_is_shown(metered, capfd):
    metered.questions.said["cpus"] = ValueError("token 8c1f")
    assert await metered.look() == pytest.approx(5, abs=1e-3)
    assert metered.status() == {"errMsg": "the query failed: see the log of the controller"}


async def test_what_could_not_be_written_is_written_later_without_a_further_question(metered):
    metered.api.fail_next("patch", "keptnmetrics", status=500)
    with pytest.raises(ServerError):
        await metered.look()
    await metered.look(3)
    assert metered.asked == 1
    assert metered.status()["lastUpdated"] == format_rfc3339(START)


async def test_a_large_answer_is_no_burden_for_the_cache(world):
    world.questions.said["cpus"] = answer(4, raw=b"x" * 2_000_000)
    world.metric()
    await world.look()
    stored = world.api.get(KEPTN_METRICS, "cpus", "prod")
    assert len(base64.b64decode(stored["status"]["rawValue"])) == 1024 * 1024
    kept = world.caches.metrics._reader._decode(msgspec.Raw(msgspec.json.encode(stored)))
    assert len(kept.status.raw_value) < 100
    # A fault then leaves all of it.
    world.questions.said["cpus"] = UnreachableError("refused")
    await world.look(61)
    stored = world.api.get(KEPTN_METRICS, "cpus", "prod")
    assert stored["status"]["errMsg"] == "refused"
    assert len(base64.b64decode(stored["status"]["rawValue"])) == 1024 * 1024


async def test_a_query_that_was_edited_while_nobody_led_is_asked_at_once(world):
    world.questions.said["cpus"] = answer(4)
    world.questions.said["other"] = answer(9)
    world.metric(fetchIntervalSeconds=3600)
    await world.look()
    world.restart()
    world.edit(query="other")
    assert await world.look(1) is not None
    assert world.status()["value"] == "9"


async def test_an_old_sample_has_its_own_time(world):
    old = START - timedelta(hours=1)
    world.questions.said["cpus"] = Answer("4", (Sample(old.timestamp(), 4.0),), b'"4"')
    world.metric()
    await world.look()
    assert world.status()["lastUpdated"] == format_rfc3339(old)
