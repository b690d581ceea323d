"""Metrics are asked for once in an interval, and nobody who decides waits for who hangs."""

from __future__ import annotations

import asyncio

import pytest

from harbourmaster.api.resources import CLUSTERS, GLOBAL_METRICS, GLOBAL_PROVIDERS
from harbourmaster.controller.placement.samples import FIRST_WAIT, Query, as_asked
from harbourmaster.placement.snapshot import MetricFault
from harbourmaster.providers.errors import NoValuesError, TimedOutError, UnreachableError
from helpers.choosing import HOME
from helpers.staging import Stage, weights

GREEN = ("prom", "green")


@pytest.fixture
async def stage():
    found = Stage(sample_interval_seconds=10, sample_max_age_seconds=30)
    yield found
    await found.sampler.close()
    assert found.answers.hanging == 0


def one_metric(stage, value=0.5):
    stage.prometheus()
    stage.metric("green", "prom")
    stage.berth("one", metrics=weights(green=1))
    stage.answers.values[GREEN] = value


def reading(stage, name="green"):
    return stage.controller._samples.readings()[0].get(("", name))


async def test_a_value_is_asked_for_once_in_an_interval(stage):
    one_metric(stage)
    for moment in (0, 3, 9, 10, 19.5, 20):
        stage.time = moment
        await stage.sample()
    assert stage.answers.asked == [GREEN] * 3
    assert reading(stage) == 0.5


async def test_a_look_that_comes_late_puts_off_no_other(stage):
    one_metric(stage)
    for moment in (0, 10.5, 20, 45, 54.9):
        stage.time = moment
        await stage.sample()
    assert stage.answers.asked == [GREEN] * 4


async def test_metrics_that_ask_the_same_share_the_answer(stage):
    one_metric(stage)
    stage.metric("verdant", "prom", query="green")
    stage.berth("two", metrics=weights(verdant=1))
    await stage.sample()
    assert stage.answers.asked == [GREEN]
    assert reading(stage) == reading(stage, "verdant") == 0.5


async def test_what_nobody_names_is_not_asked_for(stage):
    one_metric(stage)
    stage.metric("idle", "prom")
    stage.static(fixed=0.5)
    stage.berth("two", metrics=weights(fixed=1))
    await stage.sample()
    assert stage.answers.asked == [GREEN]
    stage.change(CLUSTERS, "one", metrics=weights(idle=1))
    stage.answers.values["prom", "idle"] = 0.1
    stage.time = 10
    await stage.sample()
    assert stage.answers.asked == [GREEN, ("prom", "idle")]
    assert reading(stage) is None
    assert list(stage.controller._samples.held) == [Query(("", "prom"), "idle")]


async def test_a_decision_waits_a_moment_for_the_first_value_and_never_again(stage):
    one_metric(stage)
    stage.ship()
    assert await stage.look() == FIRST_WAIT
    await stage.sample()
    assert stage.told == [{"ns"}]
    await stage.look()
    assert stage.on() == "one"


async def test_one_provider_that_hangs_delays_no_decision_of_others(stage):
    one_metric(stage)
    stage.prometheus("hung")
    stage.metric("slow", "hung")
    stage.berth("two", metrics=weights(slow=1))
    stage.ship()
    await stage.sample()
    # It may be about to answer.
    assert await stage.look() == FIRST_WAIT
    stage.time = FIRST_WAIT
    await stage.look()
    assert stage.on() == "one"
    out = stage.status()["lastDecision"]["candidates"][1]
    assert out["reason"].startswith("UnreachableMetricsProvider")
    # From now on nobody waits, and the other one is asked in its time.
    stage.ship("next")
    stage.time = 12
    await stage.sample()
    await stage.look("next")
    assert stage.on("next") == "one"
    assert stage.answers.asked.count(GREEN) == 2
    assert stage.answers.asked.count(("hung", "slow")) == 1


async def test_a_value_counts_until_it_is_too_old(stage):
    one_metric(stage)
    await stage.sample()
    stage.answers.values[GREEN] = None
    stage.time = 10
    await stage.sample()
    stage.time = 29
    assert reading(stage) == 0.5
    stage.told.clear()
    stage.time = 30
    assert reading(stage) == MetricFault("UnreachableMetricsProvider", "no answer for 30 s")
    await stage.sample()
    # Whom it concerns is told, once.
    await stage.sample()
    assert stage.told == [{"ns"}]


async def test_the_look_at_which_a_value_gets_too_old_comes_by_itself(stage):
    one_metric(stage)
    (key,) = stage.sampler.due(None)
    await stage.sampler.reconcile(key)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert await stage.sampler.reconcile(key) == pytest.approx(10, abs=0.1)
    stage.answers.values[GREEN] = None
    stage.time = 10
    assert await stage.sampler.reconcile(key) == pytest.approx(20, abs=0.1)


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        (UnreachableError("no connection"), True),
        (TimedOutError("no answer"), True),
        (NoValuesError("no values in query result"), False),
    ],
)
async def test_a_provider_that_says_there_is_none_is_believed_at_once(stage, error, kept):
    one_metric(stage)
    await stage.sample()
    stage.answers.values[GREEN] = error
    stage.time = 10
    await stage.sample()
    found = reading(stage)
    if kept:
        assert found == 0.5
        stage.time = 30
        assert reading(stage).reason == "UnreachableMetricsProvider"
        assert str(error) in reading(stage).message
    else:
        assert found == MetricFault("InvalidMetric", f"'prom' has no value 'green': {error}")
    stage.answers.values[GREEN] = 0.7
    stage.time = 40
    await stage.sample()
    assert reading(stage) == 0.7


async def test_an_error_on_the_first_question_is_no_value(stage):
    one_metric(stage, UnreachableError("no connection"))
    stage.ship()
    await stage.sample()
    await stage.look()
    assert stage.condition()["reason"] == "NoSuitableTarget"
    assert "UnreachableMetricsProvider" in stage.condition()["message"]


async def test_a_bug_in_a_provider_is_a_fault_of_that_metric_alone(stage):
    one_metric(stage, ValueError("a bug"))
    await stage.sample()
    assert reading(stage).reason == "InvalidMetric"
    stage.answers.values[GREEN] = 0.5
    stage.time = 10
    await stage.sample()
    assert reading(stage) == 0.5


async def test_another_provider_under_the_name_is_asked_anew(stage):
    one_metric(stage)
    await stage.sample()
    stage.change(GLOBAL_PROVIDERS, "prom", prometheus={"url": "http://other.example.com"})
    stage.answers.values[GREEN] = 0.9
    stage.time = 1
    await stage.sample()
    assert reading(stage) == 0.9
    stage.remove(GLOBAL_PROVIDERS, "prom")
    await stage.sample()
    assert stage.controller._samples.held == {}
    stage.ship()
    await stage.look()
    assert "UnknownMetricsProvider" in stage.condition()["message"]


async def test_only_another_reading_wakes_anybody(stage):
    one_metric(stage)
    for moment in (0, 10, 20):
        stage.time = moment
        await stage.sample()
    assert stage.told == [{"ns"}]
    stage.answers.values[GREEN] = 0.6
    stage.time = 30
    await stage.sample()
    assert stage.told == [{"ns"}, {"ns"}]


async def test_the_end_of_a_term_leaves_nothing(stage):
    one_metric(stage, None)
    stage.berth("two", metrics=weights(green=1))
    await stage.sample()
    assert stage.answers.hanging == 1
    await stage.sampler.close()
    assert stage.answers.hanging == 0
    assert stage.controller._samples.held == {}


async def test_secrets_of_global_providers_are_at_home(stage):
    stage.prometheus(secretKeyRef={"name": "login", "key": "token"})
    found = as_asked(stage.caches.global_providers.store.get("prom"), HOME)
    assert found.metadata.namespace == HOME
    assert found.type == "prometheus"
    assert found.spec.target_server == "http://prom.example.com"
    assert (found.spec.secret_key_ref.name, found.spec.secret_key_ref.key) == ("login", "token")


async def test_kafka_has_its_table(stage):
    spec = {
        "url": "http://k.example.com",
        "table": "t",
        "comparisonColumn": "name",
        "valueColumn": "value",
    }
    stage.put(GLOBAL_PROVIDERS, "kafka", {"type": "kafka", "kafka": spec})
    found = as_asked(stage.caches.global_providers.store.get("kafka"), HOME)
    assert found.spec.target_server == "http://k.example.com"
    assert found.spec.kafka.table == "t"
    assert found.spec.kafka.value_column == "value"


async def test_a_thousand_metrics_of_one_that_hangs_hold_up_nobody(stage):
    stage.prometheus("hung")
    for number in range(200):
        stage.metric(f"slow-{number}", "hung")
    stage.berth("two", metrics=weights(**{f"slow-{number}": 1 for number in range(200)}))
    one_metric(stage)
    await stage.sample()
    assert reading(stage) == 0.5
    assert stage.answers.hanging == 200
    stage.remove(GLOBAL_METRICS, "slow-0")
    await stage.sample()
    assert stage.answers.hanging == 199
