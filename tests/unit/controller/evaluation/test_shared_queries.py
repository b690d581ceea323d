"""KeptnMetrics with the same query: it is sent once, and a slow provider delays no other."""

from __future__ import annotations

import asyncio

from harbourmaster.api.metadata import Metadata
from harbourmaster.controller.evaluation import shared_queries
from harbourmaster.evaluation.model import Provider
from harbourmaster.providers.errors import UnreachableError
from harbourmaster.providers.model import Question
from helpers.metric_controller import Asked, answer, settle


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
    monkeypatch.setattr(shared_queries, "MAX_CACHED", 3000)
    world.provider()
    for query in ("cpus", "more"):
        world.questions.said[query] = answer(4, raw=b"x" * 2000)
        for number in range(2):
            world.metric(f"{query}-{number}", query=query)
            await world.look(name=f"{query}-{number}")
    assert [each.query for _, each in world.questions.seen] == ["cpus", "more", "more"]
    assert world.status("more-1")["value"] == "4"


async def test_what_is_kept_no_more_makes_room(monkeypatch):
    monkeypatch.setattr(shared_queries, "MAX_CACHED", 3000)
    said = Asked()
    said.said["cpus"] = answer(4, raw=b"x" * 2000)
    delivered = []
    one = shared_queries.SharedQueries(said, lambda key, _outcome: delivered.append(key))
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
