"""Reasons, types and texts of events, in both vocabularies (keptn-spec 5.2, 5.3)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from harbourmaster.lifecycle import events
from harbourmaster.lifecycle.events import (
    APP_PHASES,
    APPLICATION_PHASES,
    LONG_NAMES,
    ONLY_DOCUMENTED,
    REASONS,
    WORKLOAD_PHASES,
    documented_event,
    events_of,
    message,
)

TEXTS = {"Started": "has started", "Finished": "has finished", "Failed": "has failed"}


def reasons(phase, state, vocabulary, **options):
    return [event.reason for event in events_of(phase, state, "", vocabulary, **options)]


def test_every_reason_is_a_literal_in_the_source():
    tree = ast.parse(Path(events.__file__).read_text())
    literals = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    emitted = {
        *REASONS,
        *ONLY_DOCUMENTED,
        *(text for reasons_ in REASONS.values() for text in reasons_),
    }
    assert emitted <= literals


@pytest.mark.parametrize("phase", [*APP_PHASES, *APPLICATION_PHASES, *WORKLOAD_PHASES])
@pytest.mark.parametrize("state", TEXTS)
def test_keptn_has_one_event_for_each_state_of_a_phase(phase, state):
    if (phase, state) == ("ApplicationDeploy", "Failed"):
        # The deployment of an Application never fails.
        assert f"{phase}{state}" not in REASONS
        return
    (event,) = events_of(phase, state, "", "keptn")
    assert (event.reason, event.title) == (f"{phase}{state}", f"{LONG_NAMES[phase]}.{state}")
    assert (event.text, event.is_warning) == (TEXTS[state], state == "Failed")


def test_an_app_and_a_workload_that_come_late_are_no_warnings():
    for phase, state in (
        ("ReconcileWorkload", "NotFound"),
        ("AppPreDeployEvaluations", "AppVersionNotFound"),
    ):
        assert not any(event.is_warning for event in events_of(phase, state, "", "both"))
    assert all(event.is_warning for event in events_of("CreateTask", "NotFound", "", "both"))


@pytest.mark.parametrize(
    ("phase", "state", "documented"),
    [
        ("AppDeploy", "Started", ["AppDeployStarted"]),
        ("AppDeploy", "Finished", ["AppDeploySucceeded"]),
        ("AppDeploy", "Failed", ["AppDeployErrored"]),
        ("WorkloadDeploy", "Started", ["WorkloadDeployStarted", "WorkloadDeployReconcile"]),
        ("WorkloadDeploy", "ReconcileError", ["WorkloadDeployReconcileErrored"]),
        (
            "WorkloadPreDeployEvaluations",
            "Failed",
            ["WorkloadPreDeployEvaluationsErrored", "WorkloadPreDeployErrored"],
        ),
        ("ApplicationPreDeployTasks", "Failed", ["ApplicationPreDeployTasksErrored"]),
        ("ApplicationDeploy", "Finished", ["ApplicationDeploySucceeded"]),
        (
            "ApplicationPostDeployEvaluations",
            "Started",
            ["ApplicationPostDeployEvaluationsStarted"],
        ),
        ("ApplicationCompleted", "Finished", ["Completed"]),
        ("ApplicationCompleted", "Failed", ["ApplicationCompletedErrored"]),
        ("ReconcileTask", "StatusChanged", ["ReconcileTask"]),
        ("ReconcileEvaluation", "StatusChanged", ["ReconcileEvaluation"]),
        ("ReconcileEvaluation", "Failed", ["ReconcileEvaluationErrored"]),
        ("ReconcileEvaluation", "ReconcileTimeout", ["ReconcileEvaluationReconcileTimeout"]),
        ("CreateTask", "NotFound", ["CreateTaskNotFound"]),
        ("AppCompleted", "Finished", ["Completed"]),
        ("WorkloadCompleted", "Finished", ["Completed"]),
        ("AppCompleted", "Failed", ["AppCompletedErrored"]),
    ],
)
def test_the_documentation_has_reasons_of_its_own(phase, state, documented):
    assert reasons(phase, state, "documented") == documented
    first = f"{phase}{state}"
    both = [first, *(reason for reason in documented if reason != first)]
    assert reasons(phase, state, "both") == both


@pytest.mark.parametrize(
    ("phase", "state", "titles"),
    [
        ("AppCompleted", "Finished", ["Completed"]),
        ("ReconcileTask", "StatusChanged", ["Reconcile Task"]),
        ("AppDeploy", "Finished", ["App Deployment.Succeeded"]),
        ("ApplicationDeploy", "Finished", ["Application Deployment.Succeeded"]),
        ("ApplicationPreDeployTasks", "Failed", ["Application Pre-Deployment Tasks.Errored"]),
        ("ApplicationCompleted", "Finished", ["Completed"]),
        ("WorkloadPreDeployEvaluations", "Failed", ["Workload Pre-Deployment Evaluations.Errored"]),
        (
            "WorkloadDeploy",
            "Started",
            ["Workload Deployment.Started", "Workload Deployment.Reconcile"],
        ),
    ],
)
def test_types_of_cloud_events_end_in_the_state_of_the_documentation(phase, state, titles):
    event = [event.title for event in events_of(phase, state, "", "documented")]
    assert list(dict.fromkeys(event)) == titles


def test_a_timeout_is_a_warning_and_never_called_a_success():
    assert reasons("WorkloadDeploy", "Finished", "keptn", warning=True) == [
        "WorkloadDeployFinished"
    ]
    (event,) = events_of("WorkloadDeploy", "Finished", "late", "documented", warning=True)
    assert (event.reason, event.is_warning) == ("WorkloadDeployReconcileErrored", True)


@pytest.mark.parametrize("reason", sorted(ONLY_DOCUMENTED.keys() - {"WorkloadDeployReconcile"}))
def test_creations_and_deprecations_are_events_of_the_documentation_only(reason):
    assert documented_event(reason, "keptn") == ()
    for vocabulary in ("documented", "both"):
        (event,) = documented_event(reason, vocabulary)
        assert (event.reason, event.title) == (reason, LONG_NAMES[reason])
        assert (event.text, event.is_warning) == (ONLY_DOCUMENTED[reason], False)
    assert documented_event("CreateAppCreationRequest", "documented") == ()


def test_a_message_says_what_and_where():
    (event,) = events_of("AppPreDeployTasks", "Started", "", "keptn")
    assert (
        message(event, "prod", "shop-1-6b86b273", "1")
        == "App Pre-Deployment Tasks: has started / Namespace: prod, Name: shop-1-6b86b273, "
        "Version: 1"
    )
    assert message(event, "prod", "shop").endswith(" / Namespace: prod, Name: shop")


def test_texts_and_types_can_be_given():
    (event,) = events_of("CreateTask", "Failed", "no rights", "keptn", warning=False)
    assert (event.text, event.is_warning) == ("no rights", False)


def test_a_state_without_a_reason_is_a_fault_of_the_caller():
    with pytest.raises(KeyError, match="AppDeployBroken"):
        events_of("AppDeploy", "Broken", "", "keptn")
