"""KeptnMetrics one look after the other: the test moves the clock, fills the caches and answers."""

from __future__ import annotations

import asyncio
import base64
from collections import Counter
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from harbourmaster.api.metadata import Metadata
from harbourmaster.api.resources import KEPTN_METRICS, METRICS_PROVIDERS
from harbourmaster.api.times import stamp
from harbourmaster.controller.evaluation import rounds
from harbourmaster.controller.evaluation.caches import MetricCaches, MetricContext
from harbourmaster.controller.evaluation.metrics import MetricReconciler
from harbourmaster.controller.evaluation.settings import MetricsSettings
from harbourmaster.controller.evaluation.telemetry import METRIC_LATENESS, MetricSchedule
from harbourmaster.evaluation.metric_status import question_of
from harbourmaster.evaluation.model import Metric, MetricSpec, Provider, ProviderName
from harbourmaster.evaluation.schedule import slots, stable_hash
from harbourmaster.kube.errors import ConflictError, ServerError
from harbourmaster.providers.errors import (
    BadCredentialsError,
    BadQueryError,
    NotFiniteError,
    NoValuesError,
    ThrottledError,
    TimedOutError,
    TooManyValuesError,
    UnreachableError,
)
from harbourmaster.providers.model import Answer, Question, Sample
from helpers.stored import sync

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
NAME = "prometheus"


def answer(*values, shown=None, raw=None):
    text = str(values[0]) if shown is None else shown
    samples = tuple(Sample(START.timestamp() + time, value) for time, value in enumerate(values))
    return Answer(text, samples, f'"{text}"'.encode() if raw is None else raw)


class Asked:
    """In place of Questions: answers by query are given, raised, or waited for."""

    def __init__(self):
        self.said = {}
        self.seen = []

    async def ask(self, provider, question, shared=None):
        self.seen.append((provider.metadata.name, question))
        found = self.said.get(question.query, answer(4))
        if isinstance(found, asyncio.Future):
            found = await found
        if isinstance(found, Exception):
            raise found
        return found


class World:
    """One controller, at a time that only the test moves."""

    def __init__(self, api, client, events):
        self.api = api
        self.client = client
        self.events = events
        self.now = START
        self.questions = Asked()
        self.registry = CollectorRegistry()
        self.schedule = MetricSchedule(self.registry)
        self.restart()

    def restart(self):
        """Forget all that a process knows."""
        self.caches = MetricCaches(self.client)
        self.woken = []
        context = MetricContext(
            client=self.client,
            caches=self.caches,
            settings=MetricsSettings(),
            questions=self.questions,
            events=self.events,
            now=lambda: self.now,
            schedule=self.schedule,
        )
        self.metrics = MetricReconciler(context, self.woken.append)
        self.sync()

    def sync(self):
        """Bring the caches to what is stored."""
        sync(
            self.api,
            (self.caches.metrics, KEPTN_METRICS, Metric),
            (self.caches.providers, METRICS_PROVIDERS, Provider),
        )

    def provider(self, name=NAME, namespace="prod", server="http://prometheus.example.com"):
        metadata = {"name": name, "namespace": namespace}
        spec = {"type": "prometheus", "targetServer": server}
        self.api.put(METRICS_PROVIDERS, {"metadata": metadata, "spec": spec})

    def metric(self, name="cpus", *, status=None, labels=None, namespace="prod", **spec):
        metadata = {"name": name, "namespace": namespace, "labels": labels or {}}
        spec = {"provider": {"name": NAME}, "query": "cpus", "fetchIntervalSeconds": 60, **spec}
        obj = {"metadata": metadata, "spec": spec}
        if status is None and (namespace, name) in self.api.objects.all(KEPTN_METRICS):
            status = self.api.get(KEPTN_METRICS, name, namespace).get("status")
        self.api.put(KEPTN_METRICS, obj if status is None else {**obj, "status": status})

    def edit(self, name="cpus", **spec):
        obj = self.api.get(KEPTN_METRICS, name, "prod")
        metadata = {"name": name, "namespace": "prod"}
        self.api.put(KEPTN_METRICS, {**obj, "metadata": metadata, "spec": {**obj["spec"], **spec}})

    async def look(self, seconds=0.0, name="cpus"):
        """Reconcile so many seconds later, and again where an answer came; the wait afterwards."""
        self.now += timedelta(seconds=seconds)
        self.sync()
        list(self.metrics.due(None))
        key = f"prod/{name}"
        wait = await self.metrics.reconcile(key)
        return await self.answered(name) if wait is None else wait

    async def answered(self, name="cpus"):
        """Let answers come, and have them written."""
        await settle()
        wait = None
        while (key := f"prod/{name}") in self.woken:
            self.woken.remove(key)
            wait = await self.metrics.reconcile(key)
            self.sync()
            list(self.metrics.due([key]))
        return wait

    def status(self, name="cpus"):
        return self.api.get(KEPTN_METRICS, name, "prod").get("status", {})

    @property
    def writes(self):
        return len([each for each in self.api.requests if each.verb == "patch"])

    @property
    def asked(self):
        return len(self.questions.seen)

    def sample(self, name):
        return self.registry.get_sample_value(name)


async def settle():
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture
async def world(api, client, events):
    found = World(api, client, events)
    found.provider()
    yield found
    await found.metrics.close()


@pytest.fixture
def metered(world):
    world.metric()
    return world


def cpus(interval=60.0, question=("prod/prometheus", "cpus", "", ""), name="cpus", count=1):
    """The slots of a metric here."""
    return slots(interval, stable_hash(*question), stable_hash(f"prod/{name}"), count)


async def test_the_first_fetch_is_at_once_and_the_next_in_the_first_slot(metered):
    wait = await metered.look()
    assert metered.status() == {
        "value": "4",
        "rawValue": base64.b64encode(b'"4"').decode(),
        "lastUpdated": stamp(START),
        "question": question_of(MetricSpec(provider=ProviderName(name=NAME), query="cpus")),
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
    assert metered.status()["lastUpdated"] == stamp(metered.now)


async def test_our_own_writes_wake_nobody(metered):
    await metered.look()
    assert list(metered.metrics.due(["prod/cpus"])) == []
    metered.metric(labels={"a": "b"})
    metered.sync()
    assert list(metered.metrics.due(["prod/cpus"])) == []
    metered.edit(query="more")
    metered.sync()
    assert list(metered.metrics.due(["prod/cpus"])) == ["prod/cpus"]


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


async def test_nothing_is_asked_any_more_when_the_term_is_over(metered):
    hanging = metered.questions.said["cpus"] = asyncio.get_running_loop().create_future()
    await metered.look()
    await metered.metrics.close()
    assert hanging.cancelled()


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (NoValuesError("no values in query result"), "no values in query result"),
        (TooManyValuesError("too many values in query result"), "too many values in query result"),
        (NotFiniteError("the value is NaN, expected a finite number"), "the value is NaN"),
    ],
)
async def test_c92_a_fault_leaves_the_value(metered, error, text):
    wait = await metered.look()
    before = metered.status()
    metered.questions.said["cpus"] = error
    await metered.look(wait)
    assert metered.status()["errMsg"].startswith(text)
    assert metered.status() == {**before, "errMsg": str(error)}


async def test_c93_of_five_fetches_three_results_are_kept(world):
    span = {"interval": "3m", "storedResults": 3}
    world.metric(range=span)
    wait = 0
    for value in range(5):
        world.questions.said["cpus"] = answer(value)
        wait = await world.look(wait)
    assert list(world.status()) == ["intervalResults", "question"]
    results = world.status()["intervalResults"]
    assert [each["value"] for each in results] == ["2", "3", "4"]
    assert results[-1] == {"value": "4", "range": span, "lastUpdated": stamp(world.now)}
    assert world.questions.seen[-1][1].step is None


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
        ({"fetchIntervalSeconds": 0}, "fetchIntervalSeconds is 0, and must be at least 1"),
        ({"fetchIntervalSeconds": -60}, "fetchIntervalSeconds is -60, and must be at least 1"),
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
        ({"provider": {"name": "other"}}, "provider other not found"),
        ({"provider": {"name": ""}}, "provider  not found"),
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
    assert metered.status()["errMsg"] == "provider prometheus not found"
    metered.provider()
    metered.sync()
    assert list(metered.metrics.due(["prod/cpus"])) == ["prod/cpus"]
    await metered.look(1)
    assert metered.status()["value"] == "4"


async def test_a_provider_that_goes_leaves_the_value(metered):
    await metered.look()
    metered.api.remove(METRICS_PROVIDERS, NAME, "prod")
    assert await metered.look(1) is None
    assert metered.status()["errMsg"] == "provider prometheus not found"
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
    assert world.status()["lastUpdated"] == stamp(START + timedelta(seconds=1))


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
    assert list(metered.metrics.due(["prod/cpus"])) == ["prod/cpus"]
    assert await metered.look() is None
    await settle()
    assert hanging.cancelled()
    assert list(metered.metrics.due(["prod/cpus"])) == []
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


async def test_one_provider_that_hangs_delays_no_other(world):
    world.questions.said["hung"] = asyncio.get_running_loop().create_future()
    for number in range(1000):
        world.metric(f"hung-{number}", query="hung" if number else "cpus")
    world.metric(query="more")
    world.sync()
    for number in range(1000):
        assert await world.metrics.reconcile(f"prod/hung-{number}") is None
    await world.look()
    assert world.status()["value"] == "4"


async def test_the_same_question_is_asked_once_for_all(world):
    names = [f"cpus-{number}" for number in range(100)]
    for name in names:
        world.metric(name)
    for name in names:
        await world.look(0, name)
    assert world.asked == 1
    assert {world.status(name)["value"] for name in names} == {"4"}
    # In the next slot too, in which each has its own moment within a second.
    waits = {name: await world.look(2, name) + 2 for name in names[:1]} | {
        name: await world.look(0, name) + 2 for name in names[1:]
    }
    assert 0.5 < max(waits.values()) - min(waits.values()) <= 1
    passed = 2 - 0.001
    for name in sorted(names, key=waits.get):
        await world.look(waits[name] - passed, name)
        passed = waits[name]
    assert world.asked == 2
    assert len({world.status(name)["lastUpdated"] for name in names}) == 1


async def test_an_answer_is_used_once(world):
    world.metric("other", fetchIntervalSeconds=3600)
    world.metric(fetchIntervalSeconds=1)
    await world.look(0, "other")
    await world.look(0.5)
    assert world.asked == 1
    for number in range(1, 6):
        assert await world.look(1) <= 1
        assert world.asked == 1 + number


async def test_large_answers_are_kept_for_others_only_while_few_are(world, monkeypatch):
    monkeypatch.setattr(rounds, "MOST_HELD", 3000)
    world.provider()
    for query in ("cpus", "more"):
        world.questions.said[query] = answer(4, raw=b"x" * 2000)
        for number in range(2):
            world.metric(f"{query}-{number}", query=query)
            await world.look(name=f"{query}-{number}")
    assert [each.query for _, each in world.questions.seen] == ["cpus", "more", "more"]
    assert world.status("more-1")["value"] == "4"


async def test_what_is_kept_no_more_makes_room(monkeypatch):
    monkeypatch.setattr(rounds, "MOST_HELD", 3000)
    said = Asked()
    said.said["cpus"] = answer(4, raw=b"x" * 2000)
    delivered = []
    one = rounds.Rounds(said, lambda key, _outcome: delivered.append(key))
    for key in "ab":
        found = one.join("the question", key)
        provider = Provider(metadata=Metadata(name="p"))
        one.ask(found, key, provider, Question("cpus"), now=0.0, keep=0.0)
        await found.task
        assert found.outcome is not None
        await settle()
        assert found.outcome is None
    assert delivered == ["a", "b"]


async def test_faults_are_shared_as_well(world):
    world.questions.said["cpus"] = UnreachableError("refused")
    for number in range(10):
        world.metric(f"cpus-{number}")
    for number in range(10):
        await world.look(0, f"cpus-{number}")
    assert world.asked == 1
    assert {world.status(f"cpus-{number}")["errMsg"] for number in range(10)} == {"refused"}


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
    world.edit(fetchIntervalSeconds=0)
    assert await world.look(1) is None
    assert world.status()["errMsg"].startswith("fetchIntervalSeconds is 0")
    world.edit(fetchIntervalSeconds=10)
    await world.look(1)
    assert world.asked == 2


async def test_an_interval_that_changes_while_an_answer_is_awaited(metered):
    first = metered.questions.said["cpus"] = asyncio.get_running_loop().create_future()
    await metered.look()
    metered.edit(fetchIntervalSeconds=0)
    assert await metered.look() is None
    first.set_result(answer(4))
    wait = await metered.answered()
    assert wait == 0
    assert await metered.look() is None
    assert metered.status()["value"] == "4"
    assert metered.status()["errMsg"].startswith("fetchIntervalSeconds is 0")


async def test_a_clock_that_is_put_back_delays_nothing(metered):
    await metered.look()
    await metered.look(60)
    assert metered.asked == 2
    assert await metered.look(-3600) <= 60
    assert metered.asked == 3


async def test_what_could_not_be_written_is_written_later_without_a_further_question(metered):
    metered.api.fail_next("patch", "keptnmetrics", status=500)
    with pytest.raises(ServerError):
        await metered.look()
    await metered.look(3)
    assert metered.asked == 1
    assert metered.status()["lastUpdated"] == stamp(START)


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


async def test_slots_of_many_questions_are_spread_over_the_interval(world):
    seconds = Counter()
    for number in range(300):
        world.metric(f"m-{number}", query=f"query {number}")
        seconds[int(await world.look(0, f"m-{number}") // 6)] += 1
    assert len(seconds) == 10
    assert max(seconds.values()) < 60


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
    assert world.status()["lastUpdated"] == stamp(old)
