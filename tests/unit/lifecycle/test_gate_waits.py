"""Events about a waiting pod follow from its report."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from harbourmaster.lifecycle.check_facts import CheckReport, ObjectiveReport
from harbourmaster.lifecycle.gate_report import GateReport
from harbourmaster.lifecycle.gate_waits import APP_DUE, FAULTS, REASONS, gate_wait

MISSING = "KeptnTaskDefinition warm not found; waiting for it to be created"


def task(name="warm", state="Progressing", **more):
    return CheckReport(kind="task", phase="WorkloadPreDeployTasks", name=name, state=state, **more)


def evaluation(*objectives, state="Progressing", **more):
    more = {"tries": 2, "retries": 5, "next_try": "2026-03-01T10:00:40Z", **more}
    phase = "WorkloadPreDeployEvaluations"
    return CheckReport(
        kind="evaluation", phase=phase, name="rate", state=state, objectives=objectives, **more
    )


def objective(value="0.2", state="Failed", message="did not meet", name="errors"):
    return ObjectiveReport(name=name, state=state, value=value, threshold="<=0.05", message=message)


NO_VALUE = objective("", message="inconclusive: empty value for: errors: connection refused")


def wait_for(*checks, code="checks-pending", **more):
    report = GateReport(
        namespace="prod",
        pod="waiter-1",
        code=code,
        checks=checks,
        **{"text": "what the verdict says", "version_object": "shop-waiter-1.0", **more},
    )
    return gate_wait(report)


@pytest.mark.parametrize(
    ("check", "reason", "text"),
    [
        (
            task(state="Pending", message=MISSING, fault="definition-missing"),
            "GateDefinitionMissing",
            f"waits for pre-deployment task warm: {MISSING}",
        ),
        (
            evaluation(objective(), message=MISSING, fault="definition-missing"),
            "GateDefinitionMissing",
            (
                "waits for pre-deployment evaluation rate: "
                f"{MISSING}; try 2 of 5, next try 2026-03-01T10:00:40Z"
            ),
        ),
        (
            task(message="its pod waits: ErrImagePull", fault="task-stuck"),
            "GateTaskStuck",
            "waits for pre-deployment task warm: its pod waits: ErrImagePull",
        ),
        (
            evaluation(NO_VALUE, fault="metric-unavailable"),
            "GateMetricUnavailable",
            (
                "waits for pre-deployment evaluation rate: errors has no value, must be <=0.05 "
                "(empty value for: errors: connection refused); try 2 of 5, "
                "next try 2026-03-01T10:00:40Z"
            ),
        ),
        (
            evaluation(objective(state="Succeeded", name="load"), objective()),
            "GateWaiting",
            (
                "waits for pre-deployment evaluation rate: errors is 0.2, must be <=0.05; "
                "try 2 of 5, next try 2026-03-01T10:00:40Z"
            ),
        ),
        (
            evaluation(objective(), next_try=""),
            "GateWaiting",
            "waits for pre-deployment evaluation rate: errors is 0.2, must be <=0.05; try 2 of 5",
        ),
        (
            evaluation(objective("", "Pending", ""), state="Pending", tries=0, retries=None),
            "GateWaiting",
            "waits for pre-deployment evaluation rate",
        ),
        (
            task(message="its Job job-1 runs"),
            "GateWaiting",
            "waits for pre-deployment task warm: its Job job-1 runs",
        ),
    ],
)
def test_an_open_check_is_told_with_its_value_threshold_and_next_try(check, reason, text):
    report = wait_for(check)
    assert (report.reason, report.text) == (reason, text)
    assert report.is_warning == (reason != "GateWaiting")


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (
            task(state="Failed", message="exit code 1"),
            "Blocked: pre-deployment task warm failed and will not be retried: exit code 1",
        ),
        (
            replace(task(state="Failed"), phase="AppPreDeployTasks"),
            "Blocked: pre-deployment task warm of the app failed and will not be retried",
        ),
        (
            evaluation(objective(), state="Failed"),
            (
                "Blocked: pre-deployment evaluation rate failed and will not be retried: errors is "
                "0.2, must be <=0.05"
            ),
        ),
        (task(state="Succeeded"), "Blocked: what the verdict says"),
    ],
)
@pytest.mark.parametrize("code", ["checks-failed", "app-failed"])
def test_a_failed_check_blocks(code, check, text):
    report = wait_for(task("first", "Succeeded"), check, code=code)
    assert (report.reason, report.text, report.is_warning) == ("GateBlocked", text, True)


def test_of_several_open_checks_the_gravest_is_told():
    runs = task("first")
    faulty = [task(f"of {fault}", fault=fault) for fault in FAULTS if fault]
    for at, fault in enumerate(faulty):
        assert wait_for(runs, *reversed(faulty[at:])).identity.endswith(
            f"/{fault.phase}/{fault.name}"
        )
    assert wait_for(task("over", "Failed", fault="task-stuck"), runs, task("next")).identity == (
        "GateWaiting/shop-waiter-1.0/WorkloadPreDeployTasks/first"
    )


@pytest.mark.parametrize(
    ("age", "reason", "left"),
    [(15, "GateWaiting", APP_DUE - 15), (APP_DUE, "GateAppMissing", None)],
)
def test_an_app_that_may_still_come_is_no_fault(age, reason, left):
    report = wait_for(task(), code="waits-for-app", age=age, advice="list it")
    assert (report.reason, report.text) == (reason, "waits for what the verdict says: list it")
    assert report.left == left
    there = wait_for(task(), code="waits-for-app", app_version_object="shop-1", age=age)
    assert (there.text, there.left) == ("waits for pre-deployment task warm", None)


def test_a_superseded_pod_has_its_step_in_another_event_than_its_failed_check():
    failed = task(state="Failed")
    superseded = wait_for(failed, code="superseded", advice="kubectl delete pod db-1")
    assert (superseded.reason, superseded.is_warning) == ("GateBlocked", True)
    assert superseded.text.endswith(": kubectl delete pod db-1")
    assert superseded.identity != wait_for(failed, code="checks-failed").identity


@pytest.mark.parametrize("code", ["released", "orphaned", "waits-for-version", "deployment-due"])
def test_what_ends_in_a_moment_or_is_told_elsewhere_gives_no_event(code):
    assert wait_for(task(), code=code) is None
    assert wait_for(task(state="Succeeded")) is None


def test_the_identity_is_reason_version_and_check_and_no_value():
    first = wait_for(evaluation(objective("0.2")))
    assert first.identity == wait_for(evaluation(objective("0.3"), tries=3)).identity
    different = [
        wait_for(evaluation(NO_VALUE, fault="metric-unavailable")),
        wait_for(replace(evaluation(objective()), name="other")),
        wait_for(replace(evaluation(objective()), phase="AppPreDeployEvaluations")),
        wait_for(evaluation(objective()), version_object="shop-waiter-2.0"),
    ]
    assert len({wait.identity for wait in (first, *different)}) == 1 + len(different)
    assert {wait.reason for wait in (first, *different)} <= {*REASONS}


def test_a_pod_waits_for_its_stage_without_a_warning():
    wait = wait_for(task(), code="stage-pending", text="stage 1 of 3: 1 of 4 pods released")
    assert (wait.reason, wait.text, wait.is_warning) == (
        "GateWaiting",
        "waits for stage 1 of 3: 1 of 4 pods released",
        False,
    )
    assert wait_for(code="stage-pending", text="stage 2 of 3: …").identity != wait.identity
    assert wait_for(code="stage-pending", text="stage 1 of 3: …").identity == wait.identity


def test_a_check_of_a_stage_that_cannot_end_is_a_warning():
    check = task(fault="definition-missing", message=MISSING)
    wait = wait_for(check, code="stage-pending", text="stage 1 of 3: 1 of 4 pods released")
    assert wait.reason == "GateDefinitionMissing"
    assert wait.text == f"waits for stage 1 of 3: 1 of 4 pods released: {MISSING}"


def test_a_stage_that_is_held_is_a_warning_with_its_step():
    held = {"text": "nothing: stage 1 of 3 is held", "advice": "undo the rollout"}
    wait = wait_for(code="stage-held", **held)
    assert (wait.reason, wait.is_warning) == ("GateBlocked", True)
    assert wait.text == "Blocked: stage 1 of 3 is held: undo the rollout"
    assert wait.identity != wait_for(code="superseded").identity
