"""Metrics are queried once in an interval, and a provider that hangs delays no decision.

These tests prove krake-spec 3.9, 7.4.
"""

from __future__ import annotations

import asyncio

import pytest

from harbourmaster.api.resources import (
    CLOUDS,
    CLUSTERS,
    GLOBAL_CLOUDS,
    GLOBAL_METRICS,
    GLOBAL_PROVIDERS,
)
from harbourmaster.controller.placement.snapshots import FIRST_WAIT, MetricQuery, as_asked
from harbourmaster.placement.snapshot import MetricFault
from harbourmaster.providers.errors import NoValuesError, TimedOutError, UnreachableError
from helpers.placement_environment import HOME, PlacementEnv, weights

GREEN = ("prom", "green")


@pytest.fixture
async def env():
    environment = PlacementEnv(sample_interval_seconds=10, sample_max_age_seconds=30)
    yield environment
    await environment.sampler.close()
    assert environment.answers.hanging == 0


def one_metric(env, value=0.5):
    env.prometheus()
    env.metric("green", "prom")
    env.add_cluster("one", metrics=weights(green=1))
    env.answers.values[GREEN] = value


@pytest.fixture
def measured_env(env):
    one_metric(env)
    return env


def reading(env, name="green"):
    return env.controller._samples.readings()[0].get(("", name))


async def test_a_value_is_asked_for_once_in_an_interval(measured_env):
    for moment in (0, 3, 9, 10, 19.5, 20):
        measured_env.time = moment
        await measured_env.sample()
    assert measured_env.answers.asked == [GREEN] * 3
    assert reading(measured_env) == 0.5


async def test_a_look_that_comes_late_puts_off_no_other(measured_env):
    for moment in (0, 10.5, 20, 45, 54.9):
        measured_env.time = moment
        await measured_env.sample()
    assert measured_env.answers.asked == [GREEN] * 4


async def test_metrics_that_ask_the_same_share_the_answer(measured_env):
    measured_env.metric("verdant", "prom", query="green")
    measured_env.add_cluster("two", metrics=weights(verdant=1))
    await measured_env.sample()
    assert measured_env.answers.asked == [GREEN]
    assert reading(measured_env) == reading(measured_env, "verdant") == 0.5


async def test_what_nobody_names_is_not_asked_for(measured_env):
    measured_env.metric("idle", "prom")
    measured_env.static(fixed=0.5)
    measured_env.add_cluster("two", metrics=weights(fixed=1))
    await measured_env.sample()
    assert measured_env.answers.asked == [GREEN]
    measured_env.change(CLUSTERS, "one", metrics=weights(idle=1))
    measured_env.answers.values["prom", "idle"] = 0.1
    measured_env.time = 10
    await measured_env.sample()
    assert measured_env.answers.asked == [GREEN, ("prom", "idle")]
    assert reading(measured_env) is None
    assert list(measured_env.controller._samples.held) == [MetricQuery(("", "prom"), "idle")]


async def test_a_decision_waits_a_moment_for_the_first_value_and_never_again(measured_env):
    measured_env.add_application()
    assert await measured_env.reconcile() == FIRST_WAIT
    await measured_env.sample()
    assert measured_env.told == [{"ns"}]
    await measured_env.reconcile()
    assert measured_env.on() == "one"


async def test_one_provider_that_hangs_delays_no_decision_of_others(measured_env):
    measured_env.prometheus("hung")
    measured_env.metric("slow", "hung")
    measured_env.add_cluster("two", metrics=weights(slow=1))
    measured_env.add_application()
    await measured_env.sample()
    # It may be about to answer.
    assert await measured_env.reconcile() == FIRST_WAIT
    measured_env.time = FIRST_WAIT
    await measured_env.reconcile()
    assert measured_env.on() == "one"
    out = measured_env.status()["lastDecision"]["candidates"][1]
    assert out["reason"].startswith("UnreachableMetricsProvider")
    # From now on no decision waits, and the other provider is queried at its time.
    measured_env.add_application("next")
    measured_env.time = 12
    await measured_env.sample()
    await measured_env.reconcile("next")
    assert measured_env.on("next") == "one"
    assert measured_env.answers.asked.count(GREEN) == 2
    assert measured_env.answers.asked.count(("hung", "slow")) == 1


async def test_a_value_counts_until_it_is_too_old(measured_env):
    await measured_env.sample()
    measured_env.answers.values[GREEN] = None
    measured_env.time = 10
    await measured_env.sample()
    measured_env.time = 29
    assert reading(measured_env) == 0.5
    measured_env.told.clear()
    measured_env.time = 30
    assert reading(measured_env) == MetricFault("UnreachableMetricsProvider", "no answer for 30 s")
    await measured_env.sample()
    # Whom it concerns is told, once.
    await measured_env.sample()
    assert measured_env.told == [{"ns"}]


async def test_the_look_at_which_a_value_gets_too_old_comes_by_itself(measured_env):
    (key,) = measured_env.sampler.map_changes(None)
    await measured_env.sampler.reconcile(key)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert await measured_env.sampler.reconcile(key) == pytest.approx(10, abs=0.1)
    measured_env.answers.values[GREEN] = None
    measured_env.time = 10
    assert await measured_env.sampler.reconcile(key) == pytest.approx(20, abs=0.1)


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        (UnreachableError("no connection"), True),
        (TimedOutError("no answer"), True),
        (NoValuesError("no values in query result"), False),
    ],
)
async def test_a_provider_that_says_there_is_none_is_believed_at_once(measured_env, error, kept):
    await measured_env.sample()
    measured_env.answers.values[GREEN] = error
    measured_env.time = 10
    await measured_env.sample()
    value = reading(measured_env)
    if kept:
        assert value == 0.5
        measured_env.time = 30
        assert reading(measured_env).reason == "UnreachableMetricsProvider"
        assert str(error) in reading(measured_env).message
    else:
        assert value == MetricFault("InvalidMetric", f"'prom' has no value 'green': {error}")
    measured_env.answers.values[GREEN] = 0.7
    measured_env.time = 40
    await measured_env.sample()
    assert reading(measured_env) == 0.7


async def test_an_error_on_the_first_question_is_no_value(env):
    one_metric(env, UnreachableError("no connection"))
    env.add_application()
    await env.sample()
    await env.reconcile()
    assert env.condition()["reason"] == "NoSuitableTarget"
    assert "UnreachableMetricsProvider" in env.condition()["message"]


async def test_a_bug_in_a_provider_is_a_fault_of_that_metric_alone(env):
    one_metric(env, ValueError("a bug"))
    await env.sample()
    assert reading(env).reason == "InvalidMetric"
    env.answers.values[GREEN] = 0.5
    env.time = 10
    await env.sample()
    assert reading(env) == 0.5


async def test_another_provider_under_the_name_is_asked_anew(measured_env):
    await measured_env.sample()
    measured_env.change(GLOBAL_PROVIDERS, "prom", prometheus={"url": "http://other.example.com"})
    measured_env.answers.values[GREEN] = 0.9
    measured_env.time = 1
    await measured_env.sample()
    assert reading(measured_env) == 0.9
    measured_env.remove(GLOBAL_PROVIDERS, "prom")
    await measured_env.sample()
    assert measured_env.controller._samples.held == {}
    measured_env.add_application()
    await measured_env.reconcile()
    assert "UnknownMetricsProvider" in measured_env.condition()["message"]


async def test_only_another_reading_wakes_anybody(measured_env):
    for moment in (0, 10, 20):
        measured_env.time = moment
        await measured_env.sample()
    assert measured_env.told == [{"ns"}]
    measured_env.answers.values[GREEN] = 0.6
    measured_env.time = 30
    await measured_env.sample()
    assert measured_env.told == [{"ns"}, {"ns"}]


async def test_the_end_of_a_term_leaves_nothing(env):
    one_metric(env, None)
    env.add_cluster("two", metrics=weights(green=1))
    await env.sample()
    assert env.answers.hanging == 1
    await env.sampler.close()
    assert env.answers.hanging == 0
    assert env.controller._samples.held == {}


BY = "sum by (cluster) (load)"
LOAD = 'load{cluster="$(cluster.name)"}'


def one_of_each(env, query, by_label="", names=("one", "two"), **spec):
    """Add clusters, and a metric that has a value for each of them."""
    env.prometheus()
    env.metric("load", "prom", query, by_label)
    for name in names:
        env.add_cluster(name, metrics=weights(load=1), **spec)


def of(env, name, metric="load"):
    return env.controller._samples.readings()[0].get(("", metric, "ns", name))


async def test_one_query_by_a_label_serves_all_clusters(env):
    one_of_each(env, BY, "cluster")
    env.answers.values["prom", BY] = {"one": 0.2, "two": 0.9, "other": 5.0}
    env.add_application()
    for moment in (0, 3, 9, 10):
        env.time = moment
        await env.sample()
    assert env.answers.asked == [("prom", BY)] * 2
    assert (of(env, "one"), of(env, "two"), of(env, "other")) == (0.2, 0.9, None)
    await env.reconcile()
    assert env.on() == "two"
    terms = {
        candidate["cluster"]: candidate["terms"][0]["value"]
        for candidate in env.status()["lastDecision"]["candidates"]
    }
    assert terms == {"one": 0.2, "two": 0.9}


async def test_values_by_a_label_that_swap_move_the_application(env):
    one_of_each(env, BY, "cluster")
    env.answers.values["prom", BY] = {"one": 0.2, "two": 0.9}
    env.add_application(on="two")
    await env.sample()
    assert env.told == [{"ns"}]
    env.answers.values["prom", BY] = {"one": 0.9, "two": 0.2}
    env.time = 10
    await env.sample()
    assert env.told == [{"ns"}, {"ns"}]
    await env.reconcile()
    assert env.on() == "one"


async def test_a_cluster_that_an_answer_lacks_has_a_fault_of_its_own(env):
    one_of_each(env, BY, "cluster")
    env.answers.values["prom", BY] = {"one": 0.2}
    await env.sample()
    assert of(env, "one") == 0.2
    text = f"'prom' has no value '{BY}' with cluster=\"two\": no series has it"
    assert of(env, "two") == MetricFault("InvalidMetric", text)
    assert env.controller._samples.count_without_value() == 1
    # A query without the label says how to get one.
    env.answers.values["prom", BY] = {}
    env.time = 10
    await env.sample()
    assert of(env, "one").message.endswith("no series has it: add by (cluster) to the query")
    assert env.controller._samples.count_without_value() == 2


async def test_a_query_with_the_name_is_one_for_each_cluster(env):
    one_of_each(env, LOAD)
    values = {'load{cluster="one"}': 0.2, 'load{cluster="two"}': 0.9}
    env.answers.values.update({("prom", query): value for query, value in values.items()})
    for moment in (0, 9, 10):
        env.time = moment
        await env.sample()
    assert sorted(env.answers.asked) == sorted([("prom", query) for query in values] * 2)
    assert (of(env, "one"), of(env, "two")) == (0.2, 0.9)
    # A cluster that goes is asked for no longer.
    env.remove(CLUSTERS, "one")
    await env.sample()
    (query,) = env.controller._samples.held
    assert query.metric == 'load{cluster="two"}'


async def test_clusters_with_the_same_label_share_a_query(env):
    query = 'load{zone="$(cluster.labels.zone)"}'
    one_of_each(env, query, names=("bare",))
    for name, zone in (("one", "north"), ("two", "north"), ("three", "south")):
        env.add_cluster(name, labels={"zone": zone}, metrics=weights(load=1))
    for zone, value in (("north", 0.2), ("south", 0.9)):
        env.answers.values["prom", f'load{{zone="{zone}"}}'] = value
    await env.sample()
    assert len(env.answers.asked) == 2
    assert [of(env, name) for name in ("one", "two", "three")] == [0.2, 0.2, 0.9]
    # One without the label is not asked for; the decision says why.
    assert of(env, "bare") is None
    env.add_application()
    await env.reconcile()
    assert env.on() == "three"
    reasons = {
        candidate["cluster"]: candidate.get("reason")
        for candidate in env.status()["lastDecision"]["candidates"]
    }
    assert "no valid $(cluster.labels.zone)" in reasons["bare"]


async def test_a_metric_and_a_label_that_are_inherited_are_those_of_the_cluster(env):
    query = 'load{a="$(cluster.name)",b="$(cluster.labels.zone)"}'
    env.prometheus()
    env.metric("load", "prom", query)
    for resource, kind in ((GLOBAL_CLOUDS, "GlobalCloud"), (CLOUDS, "Cloud")):
        env.put(resource, kind.lower(), {"metrics": weights(load=1)}, labels={"zone": kind})
        cloud = {"kind": kind, "name": kind.lower()}
        env.add_cluster(
            f"in-{kind.lower()}", cloudRef=cloud, inheritMetrics=True, inheritLabels=True
        )
    queries = ['load{a="in-cloud",b="Cloud"}', 'load{a="in-globalcloud",b="GlobalCloud"}']
    env.answers.values.update({("prom", text): 0.5 for text in queries})
    await env.sample()
    assert sorted(env.answers.asked) == [("prom", text) for text in queries]
    assert (of(env, "in-cloud"), of(env, "in-globalcloud")) == (0.5, 0.5)


async def test_queries_with_names_in_a_label_are_still_by_it(env):
    query = 'sum by (cluster) (load{zone="$(cluster.labels.zone)"})'
    one_of_each(env, query, "cluster", names=())
    for name in ("one", "two"):
        env.add_cluster(name, labels={"zone": "north"}, metrics=weights(load=1))
    north = query.replace("$(cluster.labels.zone)", "north")
    env.answers.values["prom", north] = {"one": 0.2, "two": 0.9}
    await env.sample()
    assert env.answers.asked == [("prom", north)]
    assert (of(env, "one"), of(env, "two")) == (0.2, 0.9)


async def test_secrets_of_global_providers_are_at_home(env):
    env.prometheus(secretKeyRef={"name": "login", "key": "token"})
    provider = as_asked(env.caches.global_providers.store.get("prom"), HOME)
    assert provider.metadata.namespace == HOME
    assert provider.type == "prometheus"
    assert provider.spec.target_server == "http://prom.example.com"
    assert (provider.spec.secret_key_ref.name, provider.spec.secret_key_ref.key) == (
        "login",
        "token",
    )


async def test_kafka_has_its_table(env):
    spec = {
        "url": "http://k.example.com",
        "table": "t",
        "comparisonColumn": "name",
        "valueColumn": "value",
    }
    env.put(GLOBAL_PROVIDERS, "kafka", {"type": "kafka", "kafka": spec})
    provider = as_asked(env.caches.global_providers.store.get("kafka"), HOME)
    assert provider.spec.target_server == "http://k.example.com"
    assert provider.spec.kafka.table == "t"
    assert provider.spec.kafka.value_column == "value"


async def test_a_thousand_metrics_of_one_that_hangs_hold_up_nobody(env):
    env.prometheus("hung")
    for number in range(200):
        env.metric(f"slow-{number}", "hung")
    env.add_cluster("two", metrics=weights(**{f"slow-{number}": 1 for number in range(200)}))
    one_metric(env)
    await env.sample()
    assert reading(env) == 0.5
    assert env.answers.hanging == 200
    env.remove(GLOBAL_METRICS, "slow-0")
    await env.sample()
    assert env.answers.hanging == 199
