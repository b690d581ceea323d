"""The steps of analyses; the test advances the clock, fills the caches and answers the queries."""

from __future__ import annotations

import asyncio
import json

import pytest

from harbourmaster.api.resources import ANALYSES
from harbourmaster.kube.errors import ConflictError
from harbourmaster.providers.errors import NoValuesError, UnreachableError
from harbourmaster.providers.model import Answer, Question, Sample
from helpers.analysis_controller import END, FROZEN, answer, objective
from helpers.patience import PATIENCE


async def test_it_runs_to_its_verdict(ready):
    ready.analysis()
    assert await ready.look() is None
    assert ready.status == {"timeframe": FROZEN, "state": "Progressing"}
    assert ready.questions.asked == []
    assert await ready.settle(2) is None
    status = ready.status
    raw = json.loads(status.pop("raw"))
    assert status == {"timeframe": FROZEN, "state": "Completed", "pass": True}
    assert raw["objectiveResults"][0]["value"] == 4
    assert raw["objectiveResults"][0]["query"] == "sum(up)"
    assert ready.questions.asked == [("prom", Question("sum(up)", END - 300, END))]
    assert ready.writes == 2
    assert ready.events.sent == [
        (
            "Analysis",
            "release",
            "Normal",
            "AnalysisCompleted",
            "the analysis passed: 1 of 1 points, 100 %",
        )
    ]


async def test_a_verdict_is_never_touched_again(ready):
    ready.analysis()
    await ready.settle()
    before, writes = ready.status, ready.writes
    ready.definition(objective("other"))
    ready.questions.answers["sum(up)"] = "0"
    ready.sync()
    assert list(ready.analyses.map_changes(None)) == []
    assert await ready.settle(1000) is None
    ready.restart()
    assert await ready.settle(1000) is None
    assert (ready.status, ready.writes) == (before, writes)


async def test_without_its_definition_it_waits_with_the_time_frozen(ready):
    ready.analysis(definition={"name": "checks", "namespace": "other"})
    assert await ready.settle() is None
    assert ready.status == {"timeframe": FROZEN, "state": "Pending"}
    assert await ready.settle(100) is None
    assert ready.writes == 1
    assert ready.events.of("AnalysisDefinitionNotFound") == [
        "analysisdefinition other/checks not found"
    ]
    # Names are looked up where the definition is.
    ready.definition(objective("ready"), namespace="other")
    ready.template("ready", "sum(there)", namespace="other")
    ready.provider("prom", namespace="other")
    ready.questions.answers["sum(there)"] = "1"
    assert await ready.settle(100) is None
    assert (ready.status["state"], ready.status["timeframe"]) == ("Completed", FROZEN)


async def test_templates_and_providers_of_other_namespaces(life):
    life.provider("far", namespace="monitoring", allow="shared")
    provider = {"name": "far", "namespace": "monitoring"}
    life.template("ready", "a", namespace="shared", provider=provider)
    life.definition(("ready", {"namespace": "shared"}, {}))
    life.questions.answers["a"] = "1"
    life.analysis()
    await life.settle()
    assert life.status["state"] == "Completed"
    assert [name for name, _ in life.questions.asked] == ["far"]


async def test_a_provider_is_by_default_where_the_definition_is(life):
    life.provider("prom", kind="static")
    life.provider("prom", namespace="shared")
    life.template("ready", "a", namespace="shared")
    life.definition(("ready", {"namespace": "shared"}, {}))
    life.questions.answers["a"] = "1"
    life.analysis()
    await life.settle()
    assert life.status["state"] == "Completed"
    assert life.questions.providers == ["prod/prom"]


async def test_a_time_that_is_none_is_told_once(ready):
    ready.analysis(timeframe={"recent": "five minutes"})
    assert await ready.settle() is None
    assert await ready.settle() is None
    assert ready.status == {"timeframe": {}, "state": "Pending"}
    (text,) = ready.events.of("AnalysisTimeframeInvalid")
    assert text.startswith('timeframe.recent "five minutes" is not a duration')
    ready.analysis(timeframe={"recent": "5m"}, status=ready.status)
    await ready.settle()
    assert ready.status["state"] == "Completed"


async def test_another_process_goes_on_from_what_is_stored(life):
    life.provider()
    life.template("a")
    life.template("b")
    life.definition(objective("a"), objective("b"))
    life.questions.answers = {"a": "1", "b": [UnreachableError("no connection"), "2"]}
    life.analysis()
    await life.settle()
    life.restart()
    assert await life.settle(3) is None
    assert life.status["state"] == "Completed"
    assert life.questions.queries == ["a", "b", "b"]


async def test_a_restart_before_the_answer_asks_about_the_same_time(ready):
    ready.analysis()
    await ready.look()
    ready.questions.answers["sum(up)"] = asyncio.get_running_loop().create_future()
    assert await ready.look() is None
    await asyncio.sleep(0)
    ready.restart()
    ready.questions.answers["sum(up)"] = "4"
    await ready.settle(100)
    assert ready.status["state"] == "Completed"
    assert ready.questions.asked[0] == ready.questions.asked[1]


async def test_a_query_that_hangs_holds_up_no_worker(ready):
    hanging = ready.questions.answers["sum(up)"] = asyncio.get_running_loop().create_future()
    ready.analysis()
    await ready.look()
    async with asyncio.timeout(PATIENCE):
        assert await ready.look() is None
        await asyncio.sleep(0)
        assert await ready.look() is None
    assert len(ready.questions.asked) == 1
    ready.woken.clear()
    hanging.set_result("4")
    await ready.woken.wait()
    await ready.look()
    assert ready.status["state"] == "Completed"


async def test_a_template_that_changes_meanwhile_is_asked_anew(ready):
    ready.template("b")
    ready.definition(objective("ready"), objective("b"))
    ready.questions.answers |= {"b": [UnreachableError("x"), "1"], "sum(down)": "7"}
    ready.analysis()
    await ready.settle()
    ready.template("ready", "sum(down)")
    await ready.settle(10)
    raw = json.loads(ready.status["raw"])
    found = [(result["query"], result["value"]) for result in raw["objectiveResults"]]
    assert found == [("sum(down)", 7), ("b", 1)]


async def test_an_answer_that_comes_as_the_query_changes_is_ignored(ready):
    ready.questions.answers["sum(down)"] = asyncio.get_running_loop().create_future()
    ready.analysis()
    await ready.look()
    await ready.look()
    ready.template("ready", "sum(down)")
    ready.sync()
    (asked,) = ready.analyses._runs["prod/release"].running.values()
    await asyncio.sleep(0)
    assert asked[1].done()
    # Nobody has been told of the answer yet.
    await ready.analyses.reconcile("prod/release")
    ready.questions.answers["sum(down)"].set_result("7")
    await ready.settle()
    (result,) = json.loads(ready.status["raw"])["objectiveResults"]
    assert (result["query"], result["value"]) == ("sum(down)", 7)


async def test_an_answer_that_nobody_wants_any_more_is_ignored(ready):
    faults = []
    asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
    hanging = ready.questions.answers["sum(up)"] = asyncio.get_running_loop().create_future()
    ready.questions.answers["sum(down)"] = "7"
    ready.analysis()
    await ready.look()
    await ready.look()
    await asyncio.sleep(0)
    ready.template("ready", "sum(down)")
    await ready.settle()
    assert hanging.cancelled()
    assert faults == []
    assert json.loads(ready.status["raw"])["objectiveResults"][0]["query"] == "sum(down)"


async def test_an_analysis_that_is_deleted_is_forgotten(ready):
    hanging = ready.questions.answers["sum(up)"] = asyncio.get_running_loop().create_future()
    ready.analysis()
    await ready.look()
    await ready.look()
    await asyncio.sleep(0)
    ready.api.objects.delete(ANALYSES, "prod", "release")
    ready.sync()
    assert list(ready.analyses.map_changes(["prod/release"])) == ["prod/release"]
    assert await ready.look() is None
    await asyncio.sleep(0)
    assert hanging.cancelled()
    assert list(ready.analyses.map_changes(None)) == []


@pytest.mark.parametrize("first", [answer("9", END), NoValuesError("no values in query result")])
async def test_the_first_value_within_the_time_counts_with_prometheus(ready, first):
    # A series that begins later has its first value at some minute, as Keptn asks.
    ready.questions.answers["sum(up)"] = [
        first,
        Answer("4", (Sample(END - 60, 4.0), Sample(END, 9.0))),
    ]
    ready.analysis()
    await ready.settle()
    assert json.loads(ready.status["raw"])["objectiveResults"][0]["value"] == 4
    assert [question.step for _, question in ready.questions.asked] == [None, 60]


async def test_elastic_is_asked_for_the_number_at_a_path(ready):
    ready.provider(kind="elastic")
    ready.template("ready", '{"term": {"app": "{{.app}}"}}')
    query = '{"term": {"app": "sh\\"op"}}'
    ready.questions.answers[query] = "4.000000"
    ready.analysis(app='sh"op', metricPath="hits.total")
    await ready.settle()
    assert ready.questions.asked == [("prom", Question(query, END - 300, END, path="hits.total"))]
    assert json.loads(ready.status["raw"])["objectiveResults"][0]["value"] == 4


async def test_a_conflict_is_left_to_the_queue_and_nothing_is_lost(ready):
    ready.analysis()
    await ready.look()
    ready.sync()
    await ready.analyses.reconcile("prod/release")
    await ready.woken.wait()
    found = ready.api.get(ANALYSES, "release", "prod")
    ready.api.put(
        ANALYSES,
        {**found, "metadata": {"name": "release", "namespace": "prod", "labels": {"a": "b"}}},
    )
    with pytest.raises(ConflictError):
        await ready.analyses.reconcile("prod/release")
    await ready.settle()
    assert ready.status["state"] == "Completed"
    assert len(ready.questions.asked) == 1


async def test_what_it_has_just_written_is_not_done_twice(ready):
    ready.analysis()
    ready.sync()
    await ready.analyses.reconcile("prod/release")
    # The watch is behind.
    assert await ready.analyses.reconcile("prod/release") is None
    assert ready.writes == 1


async def test_who_leads_no_more_wants_no_answer_and_shows_no_result(ready):
    ready.analysis()
    await ready.settle()
    results = ready.analyses._context.results
    ready.sync()
    assert [len(family.samples) for family in results.collect()] == [1, 1]
    hanging = ready.questions.answers["sum(up)"] = asyncio.get_running_loop().create_future()
    ready.api.put(ANALYSES, {**ready.api.get(ANALYSES, "release", "prod"), "status": {}})
    await ready.look()
    await ready.look()
    await asyncio.sleep(0)
    await ready.analyses.close()
    await asyncio.sleep(0)
    assert hanging.cancelled()
    assert [len(family.samples) for family in results.collect()] == [0, 0]


async def test_another_analysis_of_that_name_asks_for_itself(ready):
    hanging = ready.questions.answers["sum(up)"] = asyncio.get_running_loop().create_future()
    ready.analysis()
    await ready.look()
    await ready.look()
    await asyncio.sleep(0)
    ready.api.objects.delete(ANALYSES, "prod", "release")
    ready.analysis()
    ready.questions.answers["sum(up)"] = "5"
    await ready.look(60)
    await asyncio.sleep(0)
    assert hanging.cancelled()
    await ready.settle()
    assert json.loads(ready.status["raw"])["objectiveResults"][0]["value"] == 5
    assert [question.end for _, question in ready.questions.asked] == [END, END + 60]
