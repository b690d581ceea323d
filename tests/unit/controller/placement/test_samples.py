"""Metrics are asked for once in an interval, and nobody who decides waits for who hangs."""

from __future__ import annotations

import asyncio

import pytest

from harbourmaster.api.resources import CLUSTERS, GLOBAL_METRICS, GLOBAL_PROVIDERS
from harbourmaster.controller.placement.samples import FIRST_WAIT, MetricQuery, as_asked
from harbourmaster.placement.snapshot import MetricFault
from harbourmaster.providers.errors import NoValuesError, TimedOutError, UnreachableError
from helpers.staging import HOME, Stage, weights

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


@pytest.fixture
def measured(stage):
    one_metric(stage)
    return stage


def reading(stage, name="green"):
    return stage.controller._samples.readings()[0].get(("", name))


async def test_a_value_is_asked_for_once_in_an_interval(measured):
    for moment in (0, 3, 9, 10, 19.5, 20):
        measured.time = moment
        await measured.sample()
    assert measured.answers.asked == [GREEN] * 3
    assert reading(measured) == 0.5


async def test_a_look_that_comes_late_puts_off_no_other(measured):
    for moment in (0, 10.5, 20, 45, 54.9):
        measured.time = moment
        await measured.sample()
    assert measured.answers.asked == [GREEN] * 4


async def test_metrics_that_ask_the_same_share_the_answer(measured):
    measured.metric("verdant", "prom", query="green")
    measured.berth("two", metrics=weights(verdant=1))
    await measured.sample()
    assert measured.answers.asked == [GREEN]
    assert reading(measured) == reading(measured, "verdant") == 0.5


async def test_what_nobody_names_is_not_asked_for(measured):
    measured.metric("idle", "prom")
    measured.static(fixed=0.5)
    measured.berth("two", metrics=weights(fixed=1))
    await measured.sample()
    assert measured.answers.asked == [GREEN]
    measured.change(CLUSTERS, "one", metrics=weights(idle=1))
    measured.answers.values["prom", "idle"] = 0.1
    measured.time = 10
    await measured.sample()
    assert measured.answers.asked == [GREEN, ("prom", "idle")]
    assert reading(measured) is None
    assert list(measured.controller._samples.held) == [MetricQuery(("", "prom"), "idle")]


async def test_a_decision_waits_a_moment_for_the_first_value_and_never_again(measured):
    measured.ship()
    assert await measured.look() == FIRST_WAIT
    await measured.sample()
    assert measured.told == [{"ns"}]
    await measured.look()
    assert measured.on() == "one"


async def test_one_provider_that_hangs_delays_no_decision_of_others(measured):
    measured.prometheus("hung")
    measured.metric("slow", "hung")
    measured.berth("two", metrics=weights(slow=1))
    measured.ship()
    await measured.sample()
    # It may be about to answer.
    assert await measured.look() == FIRST_WAIT
    measured.time = FIRST_WAIT
    await measured.look()
    assert measured.on() == "one"
    out = measured.status()["lastDecision"]["candidates"][1]
    assert out["reason"].startswith("UnreachableMetricsProvider")
    # From now on nobody waits, and the other one is asked in its time.
    measured.ship("next")
    measured.time = 12
    await measured.sample()
    await measured.look("next")
    assert measured.on("next") == "one"
    assert measured.answers.asked.count(GREEN) == 2
    assert measured.answers.asked.count(("hung", "slow")) == 1


async def test_a_value_counts_until_it_is_too_old(measured):
    await measured.sample()
    measured.answers.values[GREEN] = None
    measured.time = 10
    await measured.sample()
    measured.time = 29
    assert reading(measured) == 0.5
    measured.told.clear()
    measured.time = 30
    assert reading(measured) == MetricFault("UnreachableMetricsProvider", "no answer for 30 s")
    await measured.sample()
    # Whom it concerns is told, once.
    await measured.sample()
    assert measured.told == [{"ns"}]


async def test_the_look_at_which_a_value_gets_too_old_comes_by_itself(measured):
    (key,) = measured.sampler.due(None)
    await measured.sampler.reconcile(key)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert await measured.sampler.reconcile(key) == pytest.approx(10, abs=0.1)
    measured.answers.values[GREEN] = None
    measured.time = 10
    assert await measured.sampler.reconcile(key) == pytest.approx(20, abs=0.1)


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        (UnreachableError("no connection"), True),
        (TimedOutError("no answer"), True),
        (NoValuesError("no values in query result"), False),
    ],
)
async def test_a_provider_that_says_there_is_none_is_believed_at_once(measured, error, kept):
    await measured.sample()
    measured.answers.values[GREEN] = error
    measured.time = 10
    await measured.sample()
    found = reading(measured)
    if kept:
        assert found == 0.5
        measured.time = 30
        assert reading(measured).reason == "UnreachableMetricsProvider"
        assert str(error) in reading(measured).message
    else:
        assert found == MetricFault("InvalidMetric", f"'prom' has no value 'green': {error}")
    measured.answers.values[GREEN] = 0.7
    measured.time = 40
    await measured.sample()
    assert reading(measured) == 0.7


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


async def test_another_provider_under_the_name_is_asked_anew(measured):
    await measured.sample()
    measured.change(GLOBAL_PROVIDERS, "prom", prometheus={"url": "http://other.example.com"})
    measured.answers.values[GREEN] = 0.9
    measured.time = 1
    await measured.sample()
    assert reading(measured) == 0.9
    measured.remove(GLOBAL_PROVIDERS, "prom")
    await measured.sample()
    assert measured.controller._samples.held == {}
    measured.ship()
    await measured.look()
    assert "UnknownMetricsProvider" in measured.condition()["message"]


async def test_only_another_reading_wakes_anybody(measured):
    for moment in (0, 10, 20):
        measured.time = moment
        await measured.sample()
    assert measured.told == [{"ns"}]
    measured.answers.values[GREEN] = 0.6
    measured.time = 30
    await measured.sample()
    assert measured.told == [{"ns"}, {"ns"}]


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
