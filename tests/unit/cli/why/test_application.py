"""The record of a decision, as people and programs are shown it."""

from __future__ import annotations

import json

import msgspec
import pytest

from harbourmaster.api.resources import (
    APP_VERSIONS,
    APPLICATIONS,
    APPS,
    DEPLOYMENTS,
    EVALUATION_DEFINITIONS,
    EVALUATIONS,
)
from harbourmaster.cli import main as cli
from harbourmaster.cli.why.application_lines import lines, report_of
from harbourmaster.placement.model import Application
from helpers.explanations import essence

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


CHECK_FAILED = {
    **SILENT,
    "conditions": [
        {"type": "Deployed", "status": "True", "reason": "Applied"},
        {
            "type": "Checked",
            "status": "False",
            "reason": "CheckFailed",
            "message": "generation 2 is not deployed to 'two': evaluation few-errors: errors: "
            "value '7' did not meet objective '<5'",
        },
    ],
    "proposed": {
        "generation": 2,
        "name": "two",
        "uid": "v",
        "cause": "Update,Move",
        "check": "application-app-2-5f2c9d01ab",
    },
    "checked": [{"generation": 1, "name": "one", "uid": "u", "result": "Passed"}],
}
CHECKING = {
    "conditions": [
        {
            "type": "Checked",
            "status": "Unknown",
            "reason": "Checking",
            "message": "generation 1 is not deployed to 'two'",
        }
    ],
    "proposed": {**CHECK_FAILED["proposed"], "generation": 1, "cause": "Deploy"},
}


DEPLOYING = {
    **SILENT,
    "conditions": [
        {"type": "Checked", "status": "Unknown", "reason": "Deploying"},
        {"type": "Ready", "status": "False", "reason": "ObjectsNotReady", "message": "0 of 1"},
    ],
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
        pytest.param(CHECK_FAILED, 2, id="with a check that failed before an update"),
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
        return await command("why", "application", name, *words)

    return why


async def test_programs_get_the_record_as_it_is(why):
    code, out, _ = await why(STATUS, "-o", "json")
    section = json.loads(out)["sections"][0]
    printed = section["detail"]["record"]
    assert (code, printed["decision"]) == (0, RECORD)
    assert (printed["scheduledTo"], printed["runningOn"]) == ("two", "one")
    assert (section["code"], section["detail"]["application"]) == ("moving", "shop/app")


NOT_FOUND = {
    "scheduledTo": {"name": "one"},
    "runningOn": {"name": "one"},
    "conditions": [
        {
            "type": "Deployed",
            "status": "False",
            "reason": "NotFound",
            "message": 'ConfigMap nosuch/c2: namespaces "nosuch" not found',
        }
    ],
}
UNCONFIRMED = {
    "conditions": [{"type": "Scheduled", "status": "False", "reason": "NotConfirmed"}],
}


@pytest.mark.parametrize(
    "status",
    [
        {},
        STATUS,
        NOWHERE,
        NOT_FOUND,
        {**AT_GATE, "runningOn": {"name": "two"}},
        UNCONFIRMED,
        CHECK_FAILED,
        CHECKING,
        DEPLOYING,
    ],
    ids=[
        *("undecided", "moving", "nowhere", "not deployed", "not ready", "unconfirmed"),
        *("check failed", "checking", "deploying"),
    ],
)
async def test_the_summary_is_the_cause_and_the_step_names_the_whole_kind(
    why, assert_golden, status
):
    _, out, _ = await why(status, "-o", "json")
    assert_golden(essence(json.loads(out)["sections"][0]))


def put_check(api, **status):
    owner = {"apiVersion": APPLICATIONS.api_version, "kind": "Application", "name": "app"}
    metadata = {
        "name": CHECK_FAILED["proposed"]["check"],
        "namespace": "shop",
        "ownerReferences": [{**owner, "uid": "a", "controller": True}],
    }
    spec = {
        "appName": "application/app",
        "version": "2",
        "workloads": [{"name": "app", "version": "2"}],
        "preDeploymentEvaluations": ["few-errors"],
        "metadata": {"cluster": "two"},
    }
    api.put(APP_VERSIONS, {"metadata": metadata, "spec": spec, "status": status})
    objective = {"keptnMetricRef": {"name": "errors"}, "evaluationTarget": "<5"}
    metadata = {"name": "few-errors", "namespace": "shop"}
    definition = {"metadata": metadata, "spec": {"objectives": [objective]}}
    api.put(EVALUATION_DEFINITIONS, definition)


FAILED = {
    "status": "Failed",
    "currentPhase": "ApplicationPreDeployEvaluations",
    "preDeploymentStatus": "Succeeded",
    "preDeploymentEvaluationStatus": "Failed",
    "preDeploymentEvaluationTaskStatus": [
        {"definitionName": "few-errors", "name": "pre-eval-1", "status": "Failed"}
    ],
}
RESULT = {"value": "7", "status": "Failed", "message": "value '7' did not meet objective '<5'"}


async def test_the_checks_are_shown_with_values_and_thresholds(api, why, assert_golden):
    put_check(api, **FAILED)
    evaluation = {
        "metadata": {"name": "pre-eval-1", "namespace": "shop"},
        "spec": {"evaluationDefinition": "few-errors", "appName": "application/app"},
        "status": {"overallStatus": "Failed", "evaluationStatus": {"errors": RESULT}},
    }
    api.put(EVALUATIONS, evaluation)
    _, out, _ = await why(CHECK_FAILED, "-o", "json")
    placement, progress = json.loads(out)["sections"]
    assert placement["name"] == "placement"
    (check,) = progress["detail"]["checks"]
    assert "evaluation few-errors of the application: Failed" in progress["lines"][0]["text"]
    assert (check["name"], check["value"], check["threshold"]) == ("few-errors", "7", "<5")
    assert_golden(essence(progress))


async def test_a_check_after_the_deployment_waits_for_the_application(api, why):
    put_check(api, currentPhase="ApplicationDeploy", **dict.fromkeys(PASSED_BEFORE, "Succeeded"))
    _, out, _ = await why(CHECKING, "-o", "json")
    progress = json.loads(out)["sections"][1]
    assert progress["code"] == "deployment-pending"
    assert progress["summary"].endswith("waits until it is ready on 'two'")
    assert progress["next"] == "harbourmaster why application shop/app"


PASSED_BEFORE = ("preDeploymentStatus", "preDeploymentEvaluationStatus")


async def test_placement_that_is_off_is_the_reason(api, why):
    spec = {"template": {"spec": {"containers": [{"args": ["controller"]}]}}}
    metadata = {"name": "harbourmaster-controller", "namespace": "harbourmaster-system"}
    api.put(DEPLOYMENTS, {"metadata": metadata, "spec": spec})
    _, out, _ = await why({})
    assert "Placement: application shop/app: placement is off, so it has no effect" in out


async def test_without_a_record_there_is_a_hint(why):
    _, out, _ = await why({})
    assert "is placement switched on (placement.enabled)?" in out


async def test_one_that_is_not_there_is_a_line_for_each_kind(why):
    code, out, err = await why(None)
    assert (code, out, err.count("\n")) == (1, "", 2)
    assert err.startswith("harbourmaster: Application shop/app not found: ")
    assert "KeptnApp shop/app not found" in err
    assert "default/app" in (await why(None, name="app"))[2]


async def test_a_name_of_both_kinds_is_explained_for_both(api, why, command):
    api.put(APPS, {"metadata": {"name": "app", "namespace": "shop"}, "spec": {"version": "1"}})
    _, out, _ = await why(STATUS)
    assert out.startswith("Application shop/app\n")
    assert "\nKeptnApp shop/app\n" in out
    for kind, shown in (
        ("applications.placement.harbourmaster.dev", "Application shop/app"),
        ("keptnapp", "KeptnApp shop/app"),
        ("app.v1.lifecycle.keptn.sh", "KeptnApp shop/app"),
    ):
        _, out, _ = await command("why", f"{kind}/app", "-n", "shop")
        assert (out.count("pp shop/app\n") + out.count("n shop/app\n"), shown in out) == (1, True)


async def test_a_kind_of_others_is_not_taken_for_ours(command):
    code, out, err = await command("why", "applications.argoproj.io", "shop/app")
    assert (code, out) == (2, "")
    assert err == (
        'harbourmaster: why: unknown kind "applications.argoproj.io": expected '
        "applications.placement.harbourmaster.dev or keptnapps.lifecycle.keptn.sh\n"
    )


async def test_a_forbidden_kind_is_a_line_beside_the_one_that_can_be_read(api, why, command):
    api.put(APPS, {"metadata": {"name": "app", "namespace": "shop"}, "spec": {"version": "1"}})
    api.forbid("get", APPLICATIONS)
    code, out, err = await command("why", "app", "shop/app")
    assert (code, err.count("\n")) == (0, 1)
    assert "Application shop/app could not be read: missing permission to get" in err
    assert out.startswith("KeptnApp shop/app\n")


@pytest.mark.parametrize("name", ["", "/app", "a/b/c", "shop/"])
def test_what_is_no_name_is_refused(name, capsys):
    with pytest.raises(SystemExit):
        cli.main(["why", "application", name])
    assert "expected [NAMESPACE/]NAME" in capsys.readouterr().err
