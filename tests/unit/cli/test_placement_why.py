"""The record of a decision, as people and programs are shown it."""

from __future__ import annotations

import json

import msgspec
import pytest

from harbourmaster.api.resources import APPLICATIONS
from harbourmaster.cli import main as cli
from harbourmaster.cli.placement.why import lines, report_of
from harbourmaster.placement.model import Application

RECORD = {
    "time": "2026-03-01T12:00:00Z",
    "generation": 2,
    "outcome": "Moved",
    "chosen": "two",
    "reason": "'two' has the best score, 0.9",
    "considered": 4,
    "matched": 2,
    "candidates": [
        {
            "cluster": "two",
            "matched": True,
            "score": 0.9,
            "terms": [
                {"metric": "heat", "weight": 2, "value": 4.5, "normalised": 0.9},
                {
                    "metric": "cost",
                    "scope": "Namespaced",
                    "weight": 1,
                    "value": 0.9,
                    "normalised": 0.9,
                    "inherited": True,
                },
            ],
        },
        {"cluster": "one", "matched": True, "score": 0.181818, "stickiness": 0.1},
        {"cluster": "far", "matched": False, "reason": "location is SK, not DE"},
    ],
    "runnerUp": {"cluster": "one", "score": 0.181818},
    "wouldChange": ["'one' if 'heat' were below 1; it is 4.5"],
}
STATUS = {
    "phase": "Migrating",
    "scheduledTo": {"name": "two", "uid": "u"},
    "scheduledTime": "2026-03-01T12:00:00Z",
    "scheduledGeneration": 1,
    "runningOn": {"name": "one", "uid": "v"},
    "conditions": [{"type": "Scheduled", "status": "True", "reason": "Scheduled"}],
    "lastDecision": RECORD,
}


NOWHERE = {
    "conditions": [
        {
            "type": "Scheduled",
            "status": "False",
            "reason": "NoSuitableTarget",
            "message": "there is no cluster",
        }
    ],
    "nextRetryTime": "2026-03-01T12:00:30Z",
    "lastDecision": {"outcome": "NoSuitableTarget"},
}


AT_GATE = {
    **STATUS,
    "conditions": [
        {"type": "Deployed", "status": "True", "reason": "Applied", "message": "on cluster two"},
        {
            "type": "Ready",
            "status": "False",
            "reason": "WaitingAtGate",
            "message": "pod web-1 is held at the scheduling gate keptn-prechecks-gate: Blocked: "
            "pre-deployment evaluations failed (few-errors); Deployment shop/web: 0 of 1 are ready",
        },
    ],
}


SILENT = {
    "scheduledTo": {"name": "one"},
    "scheduledGeneration": 1,
    "runningOn": {"name": "one"},
    "conditions": [
        {
            "type": "Deployed",
            "status": "False",
            "reason": "NoAnswer",
            "message": "no answer from cluster one, trying again: patch /x: it did not answer",
        }
    ],
    "lastDecision": {"outcome": "Placed", "chosen": "one"},
}


@pytest.mark.parametrize(
    ("status", "generation"),
    [
        pytest.param(AT_GATE, 0, id="with the gate at which a pod is held, and the check"),
        pytest.param(STATUS, 0, id="with every term and every reason"),
        pytest.param(STATUS, 3, id="with an update that waits"),
        pytest.param(NOWHERE, 0, id="placed nowhere, with the next try"),
        pytest.param({"scheduledTo": {"name": "two"}}, 0, id="placed without a time or a record"),
        pytest.param(SILENT, 1, id="placed on a cluster that does not answer"),
    ],
)
def test_people_are_shown_the_last_decision(status, generation, assert_golden):
    metadata = {"name": "app", "namespace": "shop", "generation": generation}
    application = msgspec.convert({"metadata": metadata, "status": status}, Application)
    assert_golden(list(lines(report_of(application))))


@pytest.fixture
def why(api, command):
    """Return ``why(status, *words)``, which runs the command, with a stored application if any."""

    async def why(status, *words, name="shop/app"):
        if status is not None:
            metadata = {"name": "app", "namespace": "shop"}
            api.put(APPLICATIONS, {"metadata": metadata, "status": status})
        return await command("placement", "why", name, *words)

    return why


async def test_programs_get_the_record_as_it_is(why):
    code, out, _ = await why(STATUS, "-o", "json")
    printed = json.loads(out)
    assert (code, printed["decision"]) == (0, RECORD)
    assert (printed["scheduledTo"], printed["runningOn"]) == ("two", "one")
    assert printed["application"] == "shop/app"


async def test_without_a_record_there_is_a_hint(why):
    code, out, _ = await why({})
    assert code == 1
    assert "is placement switched on (placement.enabled)?" in out


async def test_one_that_is_not_there_is_one_line(why):
    code, out, err = await why(None)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("harbourmaster: Application shop/app not found: ")
    assert "default/app" in (await why(None, name="app"))[2]


@pytest.mark.parametrize("name", ["", "/app", "a/b/c", "shop/"])
def test_what_is_no_name_is_refused(name, capsys):
    with pytest.raises(SystemExit):
        cli.main(["placement", "why", name])
    assert "expected [NAMESPACE/]NAME" in capsys.readouterr().err
