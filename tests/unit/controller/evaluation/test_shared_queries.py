"""KeptnMetrics with the same query: it is sent once, and a slow provider delays no other."""

from __future__ import annotations

import asyncio

from harbourmaster.api.metadata import Metadata
from harbourmaster.controller.evaluation import shared_queries
from harbourmaster.evaluation.model import Provider
from harbourmaster.providers.errors import UnreachableError
from harbourmaster.providers.model import Question
from helpers.evaluation import ScriptedQueries, answer, settle


async def test_one_provider_that_hangs_delays_no_other(metric_env):
    metric_env.queries.answers["hung"] = asyncio.get_running_loop().create_future()
    for number in range(1000):
        metric_env.put_metric(f"hung-{number}", query="hung" if number else "cpus")
    metric_env.put_metric(query="more")
    metric_env.sync()
    for number in range(1000):
        assert await metric_env.metrics.reconcile(f"prod/hung-{number}") is None
    await metric_env.reconcile()
    assert metric_env.status()["value"] == "4"


async def test_the_same_question_is_asked_once_for_all(metric_env):
    names = [f"cpus-{number}" for number in range(100)]
    for name in names:
        metric_env.put_metric(name)
    for name in names:
        await metric_env.reconcile(0, name)
    assert metric_env.query_count == 1
    assert {metric_env.status(name)["value"] for name in names} == {"4"}
    # In the next slot too, in which each has its own moment within a second.
    waits = {name: await metric_env.reconcile(2, name) + 2 for name in names[:1]} | {
        name: await metric_env.reconcile(0, name) + 2 for name in names[1:]
    }
    assert 0.5 < max(waits.values()) - min(waits.values()) <= 1
    passed = 2 - 0.001
    for name in sorted(names, key=waits.get):
        await metric_env.reconcile(waits[name] - passed, name)
        passed = waits[name]
    assert metric_env.query_count == 2
    assert len({metric_env.status(name)["lastUpdated"] for name in names}) == 1


async def test_an_answer_is_used_once(metric_env):
    metric_env.put_metric("other", fetchIntervalSeconds=3600)
    metric_env.put_metric(fetchIntervalSeconds=1)
    await metric_env.reconcile(0, "other")
    await metric_env.reconcile(0.5)
    assert metric_env.query_count == 1
    for number in range(1, 6):
        assert await metric_env.reconcile(1) <= 1
        assert metric_env.query_count == 1 + number


async def test_large_answers_are_kept_for_others_only_while_few_are(metric_env, monkeypatch):
    monkeypatch.setattr(shared_queries, "MAX_CACHED", 3000)
    metric_env.put_provider()
    for query in ("cpus", "more"):
        metric_env.queries.answers[query] = answer(4, raw=b"x" * 2000)
        for number in range(2):
            metric_env.put_metric(f"{query}-{number}", query=query)
            await metric_env.reconcile(name=f"{query}-{number}")
    assert [question.query for _, question in metric_env.queries.asked] == ["cpus", "more", "more"]
    assert metric_env.status("more-1")["value"] == "4"


async def test_what_is_kept_no_more_makes_room(monkeypatch):
    monkeypatch.setattr(shared_queries, "MAX_CACHED", 3000)
    service = ScriptedQueries(answer(4))
    service.answers["cpus"] = answer(4, raw=b"x" * 2000)
    delivered = []
    queries = shared_queries.SharedQueries(service, lambda key, _outcome: delivered.append(key))
    for key in "ab":
        query = queries.join("the query", key)
        provider = Provider(metadata=Metadata(name="p"))
        queries.ask(query, key, provider, Question("cpus"), now=0.0, keep=0.0)
        await query.task
        assert query.outcome is not None
        await settle()
        assert query.outcome is None
    assert delivered == ["a", "b"]


async def test_faults_are_shared_as_well(metric_env):
    metric_env.queries.answers["cpus"] = UnreachableError("refused")
    for number in range(10):
        metric_env.put_metric(f"cpus-{number}")
    for number in range(10):
        await metric_env.reconcile(0, f"cpus-{number}")
    assert metric_env.query_count == 1
    assert {metric_env.status(f"cpus-{number}")["errMsg"] for number in range(10)} == {"refused"}
