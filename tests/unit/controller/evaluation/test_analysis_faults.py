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
from helpers.analysis_controller import FROZEN, objective


async def test_what_is_missing_is_asked_again_and_what_is_known_is_kept(life):
    life.provider()
    for name in ("a", "b", "c"):
        life.template(name)
    life.definition(objective("a"), objective("b"), objective("c"))
    life.questions.answers = {
        "a": "1",
        "b": [UnreachableError("no connection"), UnreachableError("no connection"), "2"],
        "c": [NoValuesError("no values in query result")] * 2 + ["3"],
    }
    life.analysis()
    assert await life.settle() == 10
    assert life.status == {
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
    asked = len(life.questions.asked)
    assert await life.settle(9) == 1
    assert len(life.questions.asked) == asked
    life.questions.answers["c"] = "3"
    assert await life.settle(1) == 20
    stored = life.status["storedValues"]
    assert (stored["a"]["value"], stored["c"]["value"]) == ("1", "3")
    assert await life.settle(20) is None
    status = life.status
    assert (status["state"], status["pass"], "storedValues" in status) == ("Completed", True, False)
    assert life.questions.queries.count("a") == 1
    # Nobody needs to do anything about those.
    assert life.events.of("AnalysisValueMissing") == []


@pytest.mark.parametrize(
    ("error", "wait"),
    [(BadQueryError("parse error"), 300), (BadCredentialsError("secret x not found"), 300)],
)
async def test_a_fault_that_waiting_does_not_mend_is_told_once(ready, error, wait):
    ready.questions.answers["sum(up)"] = error
    ready.analysis()
    assert await ready.settle() == wait
    assert await ready.settle(wait) == wait
    assert ready.status["state"] == "Progressing"
    assert ready.status["storedValues"]["ready"]["errMsg"] == str(error)
    assert ready.events.of("AnalysisValueMissing") == [f"ready: {error}"]
    # Nobody watches Secrets, so it is tried from time to time.
    ready.questions.answers["sum(up)"] = "4"
    await ready.settle(wait)
    assert ready.status["state"] == "Completed"


@pytest.mark.parametrize(
    ("template", "provider", "text"),
    [
        ("up{{.x}}", {}, "the query needs the argument 'x', which is not among the args"),
        ("up", {"kind": "nagios"}, "unsupported provider: nagios"),
        ("{}", {"kind": "elastic"}, "a provider of type elastic needs the argument metricPath"),
    ],
)
async def test_what_can_not_be_asked_waits_for_objects_to_change(ready, template, provider, text):
    ready.template("ready", template)
    ready.provider(**provider)
    ready.analysis()
    assert await ready.settle() is None
    assert await ready.settle(1000) is None
    assert ready.questions.asked == []
    (stored,) = ready.status["storedValues"].values()
    assert stored["errMsg"].startswith(text)
    assert "value" not in stored
    (told,) = ready.events.of("AnalysisValueMissing")
    assert told.startswith(f"ready: {text}")
    ready.template("ready", "sum(up)")
    ready.provider()
    assert await ready.settle() is None
    assert ready.status["state"] == "Completed"


@pytest.mark.parametrize(
    ("missing", "text"),
    [
        ("template", "analysisvaluetemplate prod/ready not found"),
        ("provider", "keptnmetricsprovider prod/prom not found"),
    ],
)
async def test_what_comes_later_is_waited_for(life, missing, text):
    life.questions.answers["ready"] = "1"
    life.definition(objective("ready"))
    make = {"template": lambda: life.template("ready"), "provider": life.provider}
    for name, put in make.items():
        if name != missing:
            put()
    life.analysis()
    assert await life.settle() is None
    assert life.status["storedValues"]["ready"] == {
        "objectiveReference": {"name": "ready"},
        "errMsg": text,
    }
    make[missing]()
    await life.settle()
    assert life.status["state"] == "Completed"


async def test_a_provider_that_is_mended_is_asked_at_once(ready):
    ready.questions.answers["sum(up)"] = [UnreachableError("no connection"), "4"]
    ready.analysis()
    assert await ready.settle() == 10
    ready.provider(server="http://other")
    assert await ready.settle() is None
    assert ready.status["state"] == "Completed"


async def test_a_fault_is_not_told_again_when_something_else_changes(life):
    life.provider()
    for name in ("a", "b", "c"):
        life.template(name)
    life.definition(objective("a"), objective("b"), objective("c"))
    life.questions.answers = {
        "a": BadQueryError("parse error"),
        "b": [UnreachableError("no connection"), "1"],
        "c": UnreachableError("no connection"),
    }
    life.analysis()
    await life.settle()
    await life.settle(10)
    assert life.status["storedValues"]["b"]["value"] == "1"
    assert life.events.of("AnalysisValueMissing") == ["a: parse error"]


async def test_a_value_that_is_not_finite_has_no_points(ready):
    ready.questions.answers["sum(up)"] = NotFiniteError(
        "the value is +Inf, expected a finite number"
    )
    ready.analysis()
    await ready.settle()
    status = ready.status
    assert (status["state"], status.get("pass"), status.get("warning")) == ("Completed", None, None)
    (result,) = json.loads(status["raw"])["objectiveResults"]
    assert (result["value"], result["error"]) == (0, "value '+Inf' is not a finite number")


async def test_a_query_that_crashes_is_a_fault_like_others(ready):
    ready.questions.answers["sum(up)"] = [RuntimeError("a bug"), "4"]
    ready.analysis()
    assert await ready.settle() == 10
    assert ready.status["storedValues"]["ready"]["errMsg"] == (
        "the query crashed: see the log of the controller"
    )
    await ready.settle(10)
    assert ready.status["state"] == "Completed"
