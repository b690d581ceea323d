"""Analyses with missing values: their events, and when their queries are sent again."""

from __future__ import annotations

import json

import pytest

from harbourmaster.providers.errors import (
    BadCredentialsError,
    BadQueryError,
    NotFiniteError,
    NoValuesError,
    UnreachableError,
)
from helpers.evaluation import FROZEN, objective


async def test_what_is_missing_is_asked_again_and_what_is_known_is_kept(analysis_env):
    analysis_env.put_provider()
    for name in ("a", "b", "c"):
        analysis_env.put_template(name)
    analysis_env.put_definition(objective("a"), objective("b"), objective("c"))
    analysis_env.queries.answers = {
        "a": "1",
        "b": [UnreachableError("no connection"), UnreachableError("no connection"), "2"],
        "c": [NoValuesError("no values in query result")] * 2 + ["3"],
    }
    analysis_env.put_analysis()
    assert await analysis_env.settle() == 10
    assert analysis_env.status == {
        "timeframe": FROZEN,
        "state": "Progressing",
        "storedValues": {
            "a": {"objectiveReference": {"name": "a"}, "query": "a", "value": "1"},
            "b": {"objectiveReference": {"name": "b"}, "query": "b", "errMsg": "no connection"},
            "c": {
                "objectiveReference": {"name": "c"},
                "query": "c",
                "errMsg": "no values in query result",
            },
        },
    }
    asked = len(analysis_env.queries.asked)
    assert await analysis_env.settle(9) == 1
    assert len(analysis_env.queries.asked) == asked
    analysis_env.queries.answers["c"] = "3"
    assert await analysis_env.settle(1) == 20
    stored = analysis_env.status["storedValues"]
    assert (stored["a"]["value"], stored["c"]["value"]) == ("1", "3")
    assert await analysis_env.settle(20) is None
    status = analysis_env.status
    assert (status["state"], status["pass"], "storedValues" in status) == ("Completed", True, False)
    assert analysis_env.queries.texts.count("a") == 1
    # Nobody needs to do anything about those.
    assert analysis_env.events.of("AnalysisValueMissing") == []


@pytest.mark.parametrize(
    ("error", "wait"),
    [(BadQueryError("parse error"), 300), (BadCredentialsError("secret x not found"), 300)],
)
async def test_a_fault_that_waiting_does_not_mend_is_told_once(ready_env, error, wait):
    ready_env.queries.answers["sum(up)"] = error
    ready_env.put_analysis()
    assert await ready_env.settle() == wait
    assert await ready_env.settle(wait) == wait
    assert ready_env.status["state"] == "Progressing"
    assert ready_env.status["storedValues"]["ready"]["errMsg"] == str(error)
    assert ready_env.events.of("AnalysisValueMissing") == [f"ready: {error}"]
    # Nobody watches Secrets, so it is tried from time to time.
    ready_env.queries.answers["sum(up)"] = "4"
    await ready_env.settle(wait)
    assert ready_env.status["state"] == "Completed"


@pytest.mark.parametrize(
    ("template", "provider", "text"),
    [
        ("up{{.x}}", {}, "the query needs the argument 'x', which is not among the args"),
        ("up", {"kind": "nagios"}, "unsupported provider: nagios"),
        ("{}", {"kind": "elastic"}, "a provider of type elastic needs the argument metricPath"),
    ],
)
async def test_what_can_not_be_asked_waits_for_objects_to_change(
    ready_env, template, provider, text
):
    ready_env.put_template("ready", template)
    ready_env.put_provider(**provider)
    ready_env.put_analysis()
    assert await ready_env.settle() is None
    assert await ready_env.settle(1000) is None
    assert ready_env.queries.asked == []
    (stored,) = ready_env.status["storedValues"].values()
    assert stored["errMsg"].startswith(text)
    assert "value" not in stored
    (told,) = ready_env.events.of("AnalysisValueMissing")
    assert told.startswith(f"ready: {text}")
    ready_env.put_template("ready", "sum(up)")
    ready_env.put_provider()
    assert await ready_env.settle() is None
    assert ready_env.status["state"] == "Completed"


@pytest.mark.parametrize(
    ("missing", "text"),
    [
        ("template", "analysisvaluetemplate prod/ready not found"),
        ("provider", "keptnmetricsprovider prod/prom not found"),
    ],
)
async def test_what_comes_later_is_waited_for(analysis_env, missing, text):
    analysis_env.queries.answers["ready"] = "1"
    analysis_env.put_definition(objective("ready"))
    make = {
        "template": lambda: analysis_env.put_template("ready"),
        "provider": analysis_env.put_provider,
    }
    for name, put in make.items():
        if name != missing:
            put()
    analysis_env.put_analysis()
    assert await analysis_env.settle() is None
    assert analysis_env.status["storedValues"]["ready"] == {
        "objectiveReference": {"name": "ready"},
        "errMsg": text,
    }
    make[missing]()
    await analysis_env.settle()
    assert analysis_env.status["state"] == "Completed"


async def test_a_provider_that_is_mended_is_asked_at_once(ready_env):
    ready_env.queries.answers["sum(up)"] = [UnreachableError("no connection"), "4"]
    ready_env.put_analysis()
    assert await ready_env.settle() == 10
    ready_env.put_provider(server="http://other")
    assert await ready_env.settle() is None
    assert ready_env.status["state"] == "Completed"


async def test_a_fault_is_not_told_again_when_something_else_changes(analysis_env):
    analysis_env.put_provider()
    for name in ("a", "b", "c"):
        analysis_env.put_template(name)
    analysis_env.put_definition(objective("a"), objective("b"), objective("c"))
    analysis_env.queries.answers = {
        "a": BadQueryError("parse error"),
        "b": [UnreachableError("no connection"), "1"],
        "c": UnreachableError("no connection"),
    }
    analysis_env.put_analysis()
    await analysis_env.settle()
    await analysis_env.settle(10)
    assert analysis_env.status["storedValues"]["b"]["value"] == "1"
    assert analysis_env.events.of("AnalysisValueMissing") == ["a: parse error"]


async def test_a_value_that_is_not_finite_has_no_points(ready_env):
    ready_env.queries.answers["sum(up)"] = NotFiniteError(
        "the value is +Inf, expected a finite number"
    )
    ready_env.put_analysis()
    await ready_env.settle()
    status = ready_env.status
    assert (status["state"], status.get("pass"), status.get("warning")) == ("Completed", None, None)
    (result,) = json.loads(status["raw"])["objectiveResults"]
    assert (result["value"], result["error"]) == (0, "value '+Inf' is not a finite number")


async def test_a_query_that_crashes_is_a_fault_like_others(ready_env):
    ready_env.queries.answers["sum(up)"] = [RuntimeError("a bug"), "4"]
    ready_env.put_analysis()
    assert await ready_env.settle() == 10
    assert ready_env.status["storedValues"]["ready"]["errMsg"] == (
        "the query crashed: see the log of the controller"
    )
    await ready_env.settle(10)
    assert ready_env.status["state"] == "Completed"
