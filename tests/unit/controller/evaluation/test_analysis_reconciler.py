"""The steps of analyses; the test advances the clock, fills the caches and answers the queries."""

from __future__ import annotations

import asyncio
import json

import pytest

from harbourmaster.api.resources import ANALYSES
from harbourmaster.kube.errors import ConflictError
from harbourmaster.providers.errors import NoValuesError, UnreachableError
from harbourmaster.providers.model import Answer, Question, Sample
from helpers.evaluation import END, FROZEN, answer_at, objective
from helpers.patience import PATIENCE


async def test_it_runs_to_its_verdict(ready_env):
    ready_env.put_analysis()
    assert await ready_env.reconcile() is None
    assert ready_env.status == {"timeframe": FROZEN, "state": "Progressing"}
    assert ready_env.queries.asked == []
    assert await ready_env.settle(2) is None
    status = ready_env.status
    raw = json.loads(status.pop("raw"))
    assert status == {"timeframe": FROZEN, "state": "Completed", "pass": True}
    assert raw["objectiveResults"][0]["value"] == 4
    assert raw["objectiveResults"][0]["query"] == "sum(up)"
    assert ready_env.queries.asked == [("prom", Question("sum(up)", END - 300, END))]
    assert ready_env.writes == 2
    assert ready_env.events.sent == [
        (
            "Analysis",
            "release",
            "Normal",
            "AnalysisCompleted",
            "the analysis passed: 1 of 1 points, 100 %",
        )
    ]


async def test_a_verdict_is_never_touched_again(ready_env):
    ready_env.put_analysis()
    await ready_env.settle()
    before, writes = ready_env.status, ready_env.writes
    ready_env.put_definition(objective("other"))
    ready_env.queries.answers["sum(up)"] = "0"
    ready_env.sync()
    assert list(ready_env.analyses.map_changes(None)) == []
    assert await ready_env.settle(1000) is None
    ready_env.restart()
    assert await ready_env.settle(1000) is None
    assert (ready_env.status, ready_env.writes) == (before, writes)


async def test_without_its_definition_it_waits_with_the_time_frozen(ready_env):
    ready_env.put_analysis(definition={"name": "checks", "namespace": "other"})
    assert await ready_env.settle() is None
    assert ready_env.status == {"timeframe": FROZEN, "state": "Pending"}
    assert await ready_env.settle(100) is None
    assert ready_env.writes == 1
    assert ready_env.events.of("AnalysisDefinitionNotFound") == [
        "analysisdefinition other/checks not found"
    ]
    # Names are looked up where the definition is.
    ready_env.put_definition(objective("ready"), namespace="other")
    ready_env.put_template("ready", "sum(there)", namespace="other")
    ready_env.put_provider("prom", namespace="other")
    ready_env.queries.answers["sum(there)"] = "1"
    assert await ready_env.settle(100) is None
    assert (ready_env.status["state"], ready_env.status["timeframe"]) == ("Completed", FROZEN)


async def test_templates_and_providers_of_other_namespaces(analysis_env):
    analysis_env.put_provider("far", namespace="monitoring", allow="shared")
    provider = {"name": "far", "namespace": "monitoring"}
    analysis_env.put_template("ready", "a", namespace="shared", provider=provider)
    analysis_env.put_definition(("ready", {"namespace": "shared"}, {}))
    analysis_env.queries.answers["a"] = "1"
    analysis_env.put_analysis()
    await analysis_env.settle()
    assert analysis_env.status["state"] == "Completed"
    assert [name for name, _ in analysis_env.queries.asked] == ["far"]


async def test_a_provider_is_by_default_where_the_definition_is(analysis_env):
    analysis_env.put_provider("prom", kind="static")
    analysis_env.put_provider("prom", namespace="shared")
    analysis_env.put_template("ready", "a", namespace="shared")
    analysis_env.put_definition(("ready", {"namespace": "shared"}, {}))
    analysis_env.queries.answers["a"] = "1"
    analysis_env.put_analysis()
    await analysis_env.settle()
    assert analysis_env.status["state"] == "Completed"
    assert analysis_env.queries.providers == ["prod/prom"]


async def test_a_time_that_is_none_is_told_once(ready_env):
    ready_env.put_analysis(timeframe={"recent": "five minutes"})
    assert await ready_env.settle() is None
    assert await ready_env.settle() is None
    assert ready_env.status == {"timeframe": {}, "state": "Pending"}
    (text,) = ready_env.events.of("AnalysisTimeframeInvalid")
    assert text.startswith('timeframe.recent "five minutes" is not a duration')
    ready_env.put_analysis(timeframe={"recent": "5m"}, status=ready_env.status)
    await ready_env.settle()
    assert ready_env.status["state"] == "Completed"


async def test_another_process_goes_on_from_what_is_stored(analysis_env):
    analysis_env.put_provider()
    analysis_env.put_template("a")
    analysis_env.put_template("b")
    analysis_env.put_definition(objective("a"), objective("b"))
    analysis_env.queries.answers = {"a": "1", "b": [UnreachableError("no connection"), "2"]}
    analysis_env.put_analysis()
    await analysis_env.settle()
    analysis_env.restart()
    assert await analysis_env.settle(3) is None
    assert analysis_env.status["state"] == "Completed"
    assert analysis_env.queries.texts == ["a", "b", "b"]


async def test_a_restart_before_the_answer_asks_about_the_same_time(ready_env):
    ready_env.put_analysis()
    await ready_env.reconcile()
    ready_env.queries.answers["sum(up)"] = asyncio.get_running_loop().create_future()
    assert await ready_env.reconcile() is None
    await asyncio.sleep(0)
    ready_env.restart()
    ready_env.queries.answers["sum(up)"] = "4"
    await ready_env.settle(100)
    assert ready_env.status["state"] == "Completed"
    assert ready_env.queries.asked[0] == ready_env.queries.asked[1]


async def test_a_query_that_hangs_holds_up_no_worker(ready_env):
    hanging = ready_env.queries.answers["sum(up)"] = asyncio.get_running_loop().create_future()
    ready_env.put_analysis()
    await ready_env.reconcile()
    async with asyncio.timeout(PATIENCE):
        assert await ready_env.reconcile() is None
        await asyncio.sleep(0)
        assert await ready_env.reconcile() is None
    assert len(ready_env.queries.asked) == 1
    ready_env.woken.clear()
    hanging.set_result("4")
    await ready_env.woken.wait()
    await ready_env.reconcile()
    assert ready_env.status["state"] == "Completed"


async def test_a_template_that_changes_meanwhile_is_asked_anew(ready_env):
    ready_env.put_template("b")
    ready_env.put_definition(objective("ready"), objective("b"))
    ready_env.queries.answers |= {"b": [UnreachableError("x"), "1"], "sum(down)": "7"}
    ready_env.put_analysis()
    await ready_env.settle()
    ready_env.put_template("ready", "sum(down)")
    await ready_env.settle(10)
    raw = json.loads(ready_env.status["raw"])
    values = [(result["query"], result["value"]) for result in raw["objectiveResults"]]
    assert values == [("sum(down)", 7), ("b", 1)]


async def test_an_answer_that_comes_as_the_query_changes_is_ignored(ready_env):
    ready_env.queries.answers["sum(down)"] = asyncio.get_running_loop().create_future()
    ready_env.put_analysis()
    await ready_env.reconcile()
    await ready_env.reconcile()
    ready_env.put_template("ready", "sum(down)")
    ready_env.sync()
    (asked,) = ready_env.analyses._runs["prod/release"].running.values()
    await asyncio.sleep(0)
    assert asked[1].done()
    # Nobody has been told of the answer yet.
    await ready_env.analyses.reconcile("prod/release")
    ready_env.queries.answers["sum(down)"].set_result("7")
    await ready_env.settle()
    (result,) = json.loads(ready_env.status["raw"])["objectiveResults"]
    assert (result["query"], result["value"]) == ("sum(down)", 7)


async def test_an_answer_that_nobody_wants_any_more_is_ignored(ready_env):
    faults = []
    asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
    hanging = ready_env.queries.answers["sum(up)"] = asyncio.get_running_loop().create_future()
    ready_env.queries.answers["sum(down)"] = "7"
    ready_env.put_analysis()
    await ready_env.reconcile()
    await ready_env.reconcile()
    await asyncio.sleep(0)
    ready_env.put_template("ready", "sum(down)")
    await ready_env.settle()
    assert hanging.cancelled()
    assert faults == []
    assert json.loads(ready_env.status["raw"])["objectiveResults"][0]["query"] == "sum(down)"


async def test_an_analysis_that_is_deleted_is_forgotten(ready_env):
    hanging = ready_env.queries.answers["sum(up)"] = asyncio.get_running_loop().create_future()
    ready_env.put_analysis()
    await ready_env.reconcile()
    await ready_env.reconcile()
    await asyncio.sleep(0)
    ready_env.api.objects.delete(ANALYSES, "prod", "release")
    ready_env.sync()
    assert list(ready_env.analyses.map_changes(["prod/release"])) == ["prod/release"]
    assert await ready_env.reconcile() is None
    await asyncio.sleep(0)
    assert hanging.cancelled()
    assert list(ready_env.analyses.map_changes(None)) == []


@pytest.mark.parametrize("first", [answer_at("9", END), NoValuesError("no values in query result")])
async def test_the_first_value_within_the_time_counts_with_prometheus(ready_env, first):
    # A series that begins later has its first value at some minute, as Keptn asks.
    ready_env.queries.answers["sum(up)"] = [
        first,
        Answer("4", (Sample(END - 60, 4.0), Sample(END, 9.0))),
    ]
    ready_env.put_analysis()
    await ready_env.settle()
    assert json.loads(ready_env.status["raw"])["objectiveResults"][0]["value"] == 4
    assert [question.step for _, question in ready_env.queries.asked] == [None, 60]


async def test_elastic_is_asked_for_the_number_at_a_path(ready_env):
    ready_env.put_provider(kind="elastic")
    ready_env.put_template("ready", '{"term": {"app": "{{.app}}"}}')
    query = '{"term": {"app": "sh\\"op"}}'
    ready_env.queries.answers[query] = "4.000000"
    ready_env.put_analysis(app='sh"op', metricPath="hits.total")
    await ready_env.settle()
    assert ready_env.queries.asked == [("prom", Question(query, END - 300, END, path="hits.total"))]
    assert json.loads(ready_env.status["raw"])["objectiveResults"][0]["value"] == 4


async def test_a_conflict_is_left_to_the_queue_and_nothing_is_lost(ready_env):
    ready_env.put_analysis()
    await ready_env.reconcile()
    ready_env.sync()
    await ready_env.analyses.reconcile("prod/release")
    await ready_env.woken.wait()
    analysis = ready_env.api.get(ANALYSES, "release", "prod")
    ready_env.api.put(
        ANALYSES,
        {**analysis, "metadata": {"name": "release", "namespace": "prod", "labels": {"a": "b"}}},
    )
    with pytest.raises(ConflictError):
        await ready_env.analyses.reconcile("prod/release")
    await ready_env.settle()
    assert ready_env.status["state"] == "Completed"
    assert len(ready_env.queries.asked) == 1


async def test_what_it_has_just_written_is_not_done_twice(ready_env):
    ready_env.put_analysis()
    ready_env.sync()
    await ready_env.analyses.reconcile("prod/release")
    # The watch is behind.
    assert await ready_env.analyses.reconcile("prod/release") is None
    assert ready_env.writes == 1


async def test_who_leads_no_more_wants_no_answer_and_shows_no_result(ready_env):
    ready_env.put_analysis()
    await ready_env.settle()
    results = ready_env.analyses._context.results
    ready_env.sync()
    assert [len(family.samples) for family in results.collect()] == [1, 1]
    hanging = ready_env.queries.answers["sum(up)"] = asyncio.get_running_loop().create_future()
    ready_env.api.put(ANALYSES, {**ready_env.api.get(ANALYSES, "release", "prod"), "status": {}})
    await ready_env.reconcile()
    await ready_env.reconcile()
    await asyncio.sleep(0)
    await ready_env.analyses.close()
    await asyncio.sleep(0)
    assert hanging.cancelled()
    assert [len(family.samples) for family in results.collect()] == [0, 0]


async def test_another_analysis_of_that_name_asks_for_itself(ready_env):
    hanging = ready_env.queries.answers["sum(up)"] = asyncio.get_running_loop().create_future()
    ready_env.put_analysis()
    await ready_env.reconcile()
    await ready_env.reconcile()
    await asyncio.sleep(0)
    ready_env.api.objects.delete(ANALYSES, "prod", "release")
    ready_env.put_analysis()
    ready_env.queries.answers["sum(up)"] = "5"
    await ready_env.reconcile(60)
    await asyncio.sleep(0)
    assert hanging.cancelled()
    await ready_env.settle()
    assert json.loads(ready_env.status["raw"])["objectiveResults"][0]["value"] == 5
    assert [question.end for _, question in ready_env.queries.asked] == [END, END + 60]
