"""Names, types and texts of events, in both vocabularies."""

from __future__ import annotations

import pytest

from harbourmaster.lifecycle.events import (
    APP_PHASES,
    CREATIONS,
    LONG_NAMES,
    WORKLOAD_PHASES,
    creation,
    deprecation,
    message,
    occasions,
)

PHASES = [*APP_PHASES, *WORKLOAD_PHASES]


def reasons(phase, state, vocabulary, **options):
    return [each.reason for each in occasions(phase, state, "", vocabulary, **options)]


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize(
    ("state", "is_warning", "text"),
    [
        ("Started", False, "has started"),
        ("Finished", False, "has finished"),
        ("Failed", True, "has failed"),
        ("ReconcileError", True, "could not get reconciled"),
    ],
)
def test_keptn_has_one_event_for_each_state_of_a_phase(phase, state, is_warning, text):
    (found,) = occasions(phase, state, "", "keptn")
    assert (found.reason, found.is_warning, found.text) == (f"{phase}{state}", is_warning, text)
    assert found.title == f"{LONG_NAMES[phase]}.{state}"


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
def test_the_documentation_has_names_of_its_own(phase, state, documented):
    assert reasons(phase, state, "documented") == documented
    first = f"{phase}{state}"
    both = [first, *(each for each in documented if each != first)]
    assert reasons(phase, state, "both") == both


def test_a_time_out_is_a_warning_and_never_called_a_success():
    (keptn,) = occasions("WorkloadDeploy", "Finished", "has reached timeout", "keptn", warning=True)
    assert (keptn.reason, keptn.is_warning) == ("WorkloadDeployFinished", True)
    (found,) = occasions(
        "WorkloadDeploy", "Finished", "has reached timeout", "documented", warning=True
    )
    assert (found.reason, found.is_warning) == ("WorkloadDeployReconcileErrored", True)


@pytest.mark.parametrize("kind", CREATIONS)
def test_creations_are_told_only_in_the_words_of_the_documentation(kind):
    assert creation(kind, "keptn") == ()
    for vocabulary in ("documented", "both"):
        (found,) = creation(kind, vocabulary)
        assert (found.reason, found.is_warning) == (f"Create{kind}", False)
    assert creation("AppCreationRequest", "documented") == ()


def test_so_are_deprecations():
    assert deprecation("keptn") == ()
    (found,) = deprecation("documented")
    assert (found.reason, found.title, found.is_warning) == ("Deprecated", "Deprecated", False)


def test_a_message_says_what_and_where():
    (found,) = occasions("AppPreDeployTasks", "Started", "", "keptn")
    assert (
        message(found, "prod", "shop-1-6b86b273", "1")
        == "App Pre-Deployment Tasks: has started / Namespace: prod, Name: shop-1-6b86b273, "
        "Version: 1"
    )
    assert message(found, "prod", "shop").endswith(" / Namespace: prod, Name: shop")


def test_texts_and_types_can_be_given():
    (found,) = occasions("CreateTask", "Failed", "no rights", "keptn", warning=False)
    assert (found.text, found.is_warning) == ("no rights", False)


def test_an_unknown_state_is_a_warning_and_an_unknown_phase_its_own_name():
    (found,) = occasions("Odd", "Broken", "", "keptn")
    assert (found.reason, found.title, found.is_warning) == ("OddBroken", "Odd.Broken", True)
