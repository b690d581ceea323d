"""The steps of KeptnMetrics; the test advances the clock, fills the caches and answers queries.

These tests prove keptn-spec 4.2.
"""

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
from helpers.evaluation import NAME, START, answer, settle


async def test_our_own_writes_wake_nobody(cpus_env):
    await cpus_env.reconcile()
    assert list(cpus_env.metrics.map_changes(["prod/cpus"])) == []
    cpus_env.put_metric(labels={"a": "b"})
    cpus_env.sync()
    assert list(cpus_env.metrics.map_changes(["prod/cpus"])) == []
    cpus_env.edit(query="more")
    cpus_env.sync()
    assert list(cpus_env.metrics.map_changes(["prod/cpus"])) == ["prod/cpus"]


async def test_nothing_is_asked_any_more_when_the_term_is_over(cpus_env):
    hanging = cpus_env.queries.answers["cpus"] = asyncio.get_running_loop().create_future()
    await cpus_env.reconcile()
    await cpus_env.metrics.close()
    assert hanging.cancelled()


async def test_a_cache_that_is_behind_loses_no_stored_result(metric_env):
    metric_env.put_metric(range={"interval": "3m", "storedResults": 3}, fetchIntervalSeconds=1)
    metric_env.sync()
    for _ in range(2):
        assert await metric_env.metrics.reconcile("prod/cpus") is None
        await settle()
        # The write does not come back.
        wait = await metric_env.metrics.reconcile("prod/cpus")
        metric_env.now += timedelta(seconds=wait + 0.001)
    assert len(metric_env.status()["intervalResults"]) == 2


async def test_c94_percentiles_are_of_sorted_values(metric_env):
    metric_env.queries.answers["cpus"] = answer(5.0, 1.0, 4.0, 2.0, 3.0, raw=b"[...]")
    metric_env.put_metric(range={"interval": "5m", "step": "1m", "aggregation": "p90"})
    await metric_env.reconcile()
    assert metric_env.status()["value"] == "5"
    question = metric_env.queries.asked[0][1]
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
async def test_what_can_not_be_asked_is_said_once_and_waits_for_a_change(metric_env, spec, text):
    metric_env.put_provider("other", namespace="test")
    metric_env.put_metric(**spec)
    assert await metric_env.reconcile() is None
    assert metric_env.status()["errMsg"].startswith(text)
    assert metric_env.query_count == 0
    assert await metric_env.reconcile(600) is None
    assert metric_env.writes == 1
    assert len(metric_env.events.of("MetricFetchFailed")) == 1
    metric_env.edit(fetchIntervalSeconds=60, range=None, provider={"name": NAME})
    await metric_env.reconcile()
    assert metric_env.status()["value"] == "4"
    assert "errMsg" not in metric_env.status()
    assert len(metric_env.events.of("MetricFetched")) == 1


async def test_a_provider_that_comes_is_asked_at_once(cpus_env):
    cpus_env.api.remove(METRICS_PROVIDERS, NAME, "prod")
    assert await cpus_env.reconcile() is None
    assert cpus_env.status()["errMsg"] == "KeptnMetricsProvider prod/prometheus not found"
    cpus_env.put_provider()
    cpus_env.sync()
    assert list(cpus_env.metrics.map_changes(["prod/cpus"])) == ["prod/cpus"]
    await cpus_env.reconcile(1)
    assert cpus_env.status()["value"] == "4"


async def test_a_provider_that_goes_leaves_the_value(cpus_env):
    await cpus_env.reconcile()
    cpus_env.api.remove(METRICS_PROVIDERS, NAME, "prod")
    assert await cpus_env.reconcile(1) is None
    assert cpus_env.status()["errMsg"] == "KeptnMetricsProvider prod/prometheus not found"
    assert cpus_env.status()["value"] == "4"


@pytest.mark.parametrize(
    "change",
    [
        {"query": "more"},
        {"provider": {"name": "other"}},
        {"range": {"interval": "5m"}},
        {"range": {"interval": "5m", "step": "1m", "aggregation": "max"}},
    ],
)
async def test_another_question_is_asked_at_once(metric_env, change):
    metric_env.put_provider("other")
    metric_env.put_metric()
    await metric_env.reconcile()
    metric_env.queries.answers["more"] = answer(5)
    metric_env.edit(**change)
    assert await metric_env.reconcile(1) <= 60
    assert metric_env.query_count == 2
    assert metric_env.status()["lastUpdated"] == format_rfc3339(START + timedelta(seconds=1))


async def test_another_provider_is_asked_at_once(cpus_env):
    await cpus_env.reconcile()
    cpus_env.put_provider(server="http://other.example.com")
    await cpus_env.reconcile(1)
    assert cpus_env.query_count == 2


async def test_the_answer_to_an_old_question_is_not_written(cpus_env):
    first = cpus_env.queries.answers["cpus"] = asyncio.get_running_loop().create_future()
    assert await cpus_env.reconcile() is None
    cpus_env.edit(query="more")
    cpus_env.queries.answers["more"] = answer(5)
    await cpus_env.reconcile()
    # Nobody waits for it any more.
    assert first.cancelled()
    assert cpus_env.status()["value"] == "5"
    assert cpus_env.writes == 1


@pytest.mark.parametrize("is_recreated", [False, True])
async def test_the_answer_to_an_old_question_is_not_written_where_the_cache_is_behind(
    cpus_env, is_recreated
):
    first = cpus_env.queries.answers["cpus"] = asyncio.get_running_loop().create_future()
    await cpus_env.reconcile()
    if is_recreated:
        cpus_env.api.remove(KEPTN_METRICS, "cpus", "prod")
        cpus_env.put_metric()
    else:
        cpus_env.edit(query="more")
    first.set_result(answer(4))
    await settle()
    with pytest.raises(ConflictError):
        await cpus_env.metrics.reconcile("prod/cpus")
    assert cpus_env.status() == {}


async def test_a_label_set_meanwhile_costs_no_conflict(cpus_env):
    first = cpus_env.queries.answers["cpus"] = asyncio.get_running_loop().create_future()
    await cpus_env.reconcile()
    cpus_env.put_metric(labels={"a": "b"})
    first.set_result(answer(4))
    await cpus_env.take_answers()
    assert cpus_env.status()["value"] == "4"
    assert cpus_env.api.get(KEPTN_METRICS, "cpus", "prod")["metadata"]["labels"] == {"a": "b"}


async def test_a_value_is_not_kept_as_one_of_another_query(cpus_env):
    await cpus_env.reconcile()
    cpus_env.queries.answers["wrong("] = BadQueryError("parse error")
    cpus_env.edit(query="wrong(")
    await cpus_env.reconcile(1)
    assert cpus_env.status() == {"errMsg": "parse error"}


@pytest.mark.parametrize("text", ["parse error", "connection refused"])
async def test_nor_is_one_whose_last_fetch_failed(cpus_env, text):
    await cpus_env.reconcile()
    cpus_env.queries.answers["cpus"] = UnreachableError("connection refused")
    await cpus_env.reconcile(61)
    cpus_env.queries.answers["wrong("] = BadQueryError(text)
    cpus_env.edit(query="wrong(")
    await cpus_env.reconcile(1)
    assert cpus_env.status() == {"errMsg": text}


async def test_nor_are_stored_results(metric_env):
    span = {"interval": "3m", "storedResults": 3}
    metric_env.put_metric(range=span)
    await metric_env.reconcile()
    metric_env.queries.answers["wrong("] = UnreachableError("connection refused")
    metric_env.edit(query="wrong(")
    await metric_env.reconcile(1)
    (fault,) = metric_env.status()["intervalResults"]
    assert (fault["value"], fault["errMsg"]) == ("", "connection refused")
    writes = metric_env.writes
    await metric_env.reconcile(20)
    assert metric_env.writes == writes


async def test_a_metric_that_is_gone_is_forgotten(cpus_env):
    hanging = cpus_env.queries.answers["cpus"] = asyncio.get_running_loop().create_future()
    await cpus_env.reconcile()
    cpus_env.api.remove(KEPTN_METRICS, "cpus", "prod")
    cpus_env.sync()
    assert list(cpus_env.metrics.map_changes(["prod/cpus"])) == ["prod/cpus"]
    assert await cpus_env.reconcile() is None
    await settle()
    assert hanging.cancelled()
    assert list(cpus_env.metrics.map_changes(["prod/cpus"])) == []
    assert cpus_env.writes == 0


async def test_a_metric_that_went_before_its_answer_harms_nothing(cpus_env):
    first = cpus_env.queries.answers["cpus"] = asyncio.get_running_loop().create_future()
    await cpus_env.reconcile()
    cpus_env.api.remove(KEPTN_METRICS, "cpus", "prod")
    first.set_result(answer(4))
    await settle()
    # The watch has not told yet; should it be there after all, it is looked at again.
    assert await cpus_env.metrics.reconcile("prod/cpus") == 5.0
    assert cpus_env.events.sent == []


async def test_a_provider_that_is_away_in_several_ways_is_one_event(cpus_env):
    for error in (TimedOutError("late"), UnreachableError("refused"), TimedOutError("late")):
        cpus_env.queries.answers["cpus"] = error
        await cpus_env.reconcile(61)
        assert cpus_env.status()["errMsg"] == str(error)
    assert cpus_env.events.of("MetricFetchFailed") == ["late"]
    cpus_env.queries.answers["cpus"] = NotFiniteError("the value is NaN")
    await cpus_env.reconcile(61)
    assert cpus_env.events.of("MetricFetchFailed") == ["late", "the value is NaN"]


async def test_who_is_turned_away_while_a_provider_hangs_has_nothing_new_to_say(cpus_env):
    cpus_env.queries.answers["cpus"] = TimedOutError("late")
    await cpus_env.reconcile()
    cpus_env.queries.answers["cpus"] = ThrottledError("16 queries are unanswered")
    await cpus_env.reconcile(61)
    assert cpus_env.status() == {"errMsg": "late"}
    assert cpus_env.writes == 1


async def test_a_question_that_breaks_is_a_fault_and_nothing_of_it_is_shown(cpus_env, capfd):
    cpus_env.queries.answers["cpus"] = ValueError("token 8c1f")
    assert await cpus_env.reconcile() == pytest.approx(5, abs=1e-3)
    assert cpus_env.status() == {"errMsg": "the query failed: see the log of the controller"}


async def test_what_could_not_be_written_is_written_later_without_a_further_question(cpus_env):
    cpus_env.api.fail_next("patch", "keptnmetrics", status=500)
    with pytest.raises(ServerError):
        await cpus_env.reconcile()
    await cpus_env.reconcile(3)
    assert cpus_env.query_count == 1
    assert cpus_env.status()["lastUpdated"] == format_rfc3339(START)


async def test_a_large_answer_is_no_burden_for_the_cache(metric_env):
    metric_env.queries.answers["cpus"] = answer(4, raw=b"x" * 2_000_000)
    metric_env.put_metric()
    await metric_env.reconcile()
    stored = metric_env.api.get(KEPTN_METRICS, "cpus", "prod")
    assert len(base64.b64decode(stored["status"]["rawValue"])) == 1024 * 1024
    kept = metric_env.caches.metrics._reader._decode(msgspec.Raw(msgspec.json.encode(stored)))
    assert len(kept.status.raw_value) < 100
    # A fault then leaves all of it.
    metric_env.queries.answers["cpus"] = UnreachableError("refused")
    await metric_env.reconcile(61)
    stored = metric_env.api.get(KEPTN_METRICS, "cpus", "prod")
    assert stored["status"]["errMsg"] == "refused"
    assert len(base64.b64decode(stored["status"]["rawValue"])) == 1024 * 1024


async def test_a_query_that_was_edited_while_nobody_led_is_asked_at_once(metric_env):
    metric_env.queries.answers["cpus"] = answer(4)
    metric_env.queries.answers["other"] = answer(9)
    metric_env.put_metric(fetchIntervalSeconds=3600)
    await metric_env.reconcile()
    metric_env.restart()
    metric_env.edit(query="other")
    assert await metric_env.reconcile(1) is not None
    assert metric_env.status()["value"] == "9"


async def test_an_old_sample_has_its_own_time(metric_env):
    old = START - timedelta(hours=1)
    metric_env.queries.answers["cpus"] = Answer("4", (Sample(old.timestamp(), 4.0),), b'"4"')
    metric_env.put_metric()
    await metric_env.reconcile()
    assert metric_env.status()["lastUpdated"] == format_rfc3339(old)
