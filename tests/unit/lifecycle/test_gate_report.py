"""Each reason that a report of a gate may tell, and what else it says."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import get_args

import msgspec
import pytest

from harbourmaster.api.metadata import Metadata
from harbourmaster.lifecycle.check_facts import Facts
from harbourmaster.lifecycle.gate_report import gate_report
from harbourmaster.lifecycle.gate_verdict import Code, GateVerdict, GateWaitRules
from harbourmaster.lifecycle.gated_pods import decode_whole
from harbourmaster.lifecycle.model import (
    AppVersionStatus,
    Evaluation,
    EvaluationSpec,
    EvaluationStatus,
    ItemStatus,
    ResourceReference,
    StageStatus,
    Workload,
    WorkloadSpec,
)
from helpers.gated import GATE, REMOVED, keptn, owner_ref, pod
from helpers.lifecycle_objects import waiter_version
from helpers.phased import app_version

NOW = datetime.fromisoformat("2026-03-01T10:00:30Z")
RS = ResourceReference(uid="rs-1", kind="ReplicaSet", name="waiter-rs")
RELEASE = 'harbourmaster gate release prod/waiter-1 --reason "was held: {}"'
RERUN = RELEASE.replace("release", "rerun")
AGAIN = "a new keptn.sh/version of the workload is checked again"
PASSED = {"pre_deployment_status": "Succeeded", "pre_deployment_evaluation_status": "Warning"}
SCHEDULER = "keptn-scheduler"


def version(**options):
    return waiter_version(spec={"pre_deployment_tasks": ("warm",)}, **options)


def in_checks(**status):
    return version(current_phase="WorkloadPreDeployTasks", **status)


GOES = in_checks(**PASSED, deployment_status="Progressing")


def in_stage(state, *, pause="10m", items=(), message="", status="Progressing", number=2):
    """A version in the second of three stages, which lets 3 of 12 pods go; 0 for none yet."""
    stage = StageStatus(
        number=number,
        of=3,
        state=state,
        message=message,
        since="2026-03-01T10:00:00Z",
        wanted=12,
        allowed=3,
        released=1 if state == "Releasing" else 3,
    )
    checks = {"stage_tasks": ("probe",), "stage_evaluations": ("errors",)}
    return waiter_version(
        spec={"stages": "1, 25%", "stage_pause": pause, "stage_analyses": ("rate",), **checks},
        **{**PASSED, "status": status, "deployment_status": "Progressing"},
        current_phase="WorkloadDeploy",
        deployment_start_time="2026-03-01T09:59:00Z",
        stage=stage if number else None,
        stage_evaluation_status=items,
    )


def in_scheduler(obj):
    return {**obj, "spec": {**obj["spec"], "schedulerName": SCHEDULER}}


def waiting(items):
    waiting_pod = pod()
    waiting_pod["metadata"]["annotations"] = {
        "gates.harbourmaster.dev/wait-for": items,
        "gates.harbourmaster.dev/checks": "none",
    }
    return waiting_pod


def app(**status):
    return app_version(pre_deployment_tasks=("approve",), status=AppVersionStatus(**status))


def report_on(obj, known=None, *, of=None, max_age=0.0, on_expiry="Keep", **facts):
    given = decode_whole(msgspec.json.encode(obj), SCHEDULER)
    rules = GateWaitRules(max_age_seconds=max_age, on_expiry=on_expiry)
    return gate_report(given, Facts(version=known, app=of, **facts), rules, NOW)


def is_stuck(report):
    return GateVerdict(report.code, report.text, report.advice).is_stuck(report.age)


BY_HAND = {
    "gates.harbourmaster.dev/released": "by-hand",
    "gates.harbourmaster.dev/released-by": "jo",
    "gates.harbourmaster.dev/released-reason": "incident 4711",
}
CASES = {
    "ending": (pod(deletionTimestamp="2026-03-01T10:00:20Z"), GOES, None),
    "foreign-gates-only": (pod(gates=("example.com/quota",)), GOES, None),
    "released": (pod(), GOES, None),
    "not-gated": (pod(gates=()), GOES, None),
    "waits-in-scheduler": (in_scheduler(pod(gates=())), GOES, None),
    "waits-for-owner": (
        pod(),
        in_checks(**PASSED, deployment_status="Progressing", uid="rs-9"),
        None,
    ),
    "orphaned": (pod(owners=[owner_ref("Job", "j", "j")]), GOES, None),
    "superseded": (
        pod(),
        in_checks(pre_deployment_status="Failed", status="Failed"),
        None,
        {"is_superseded": True},
    ),
    "waits-for-version": (pod(), None, None),
    "app-failed": (pod(), version(), app(status="Failed", pre_deployment_status="Failed")),
    "waits-for-app": (pod(), version(), app()),
    "checks-failed": (
        pod(),
        in_checks(pre_deployment_status="Failed", status="Failed"),
        None,
    ),
    "checks-pending": (pod(), in_checks(), None),
    "stage-held": (pod(), in_stage("Held", message="task probe failed"), None),
    "stage-pending": (pod(), in_stage("Releasing"), None),
    "deployment-due": (pod(), in_checks(**PASSED), None),
    "wait-blocked": (waiting("job migrate"), None, None),
    "waits-for-objects": (waiting("job/migrate"), None, None),
}


def test_there_is_a_case_for_every_code():
    assert list(CASES) == list(get_args(Code))


@pytest.mark.parametrize("code", CASES)
def test_each_reason(code):
    obj, known, of, *facts = CASES[code]
    assert report_on(obj, known, of=of, **(facts[0] if facts else {})).code == code


@pytest.mark.parametrize(
    ("known", "created", "code"),
    [
        (in_checks(), "09:00:00", "checks-pending"),
        (in_checks(**PASSED, deployment_status="Progressing"), "09:00:00", "released"),
        (in_checks(status="Deprecated"), "10:00:00", "superseded"),
        (None, "10:00:00", "waits-for-version"),
        (None, "09:00:00", "superseded"),
        (version(), "09:00:00", "superseded"),
    ],
    ids=["checks run", "checks passed", "deprecated", "new", "no version", "not listed"],
)
def test_a_superseded_pod_is_to_be_deleted_if_its_checks_cannot_pass(known, created, code):
    report = report_on(pod(created=f"2026-03-01T{created}Z"), known, is_superseded=True)
    assert report.code == code
    assert (report.advice == "kubectl -n prod delete pod waiter-1") == (code == "superseded")


def test_a_new_version_of_a_statefulset_needs_the_deletion_of_the_pod():
    failed = in_checks(pre_deployment_status="Failed", status="Failed")
    stateful = pod(owners=[owner_ref("StatefulSet", "waiter-rs", "rs-1")])
    assert "checked again, once this pod is deleted" in report_on(stateful, failed).advice
    assert "once this pod is deleted" not in report_on(pod(), failed).advice


@pytest.mark.parametrize(
    ("obj", "text"),
    [
        (pod(gates=(), annotations=BY_HAND), "jo released it without its checks: incident 4711"),
        (
            pod(gates=(), annotations={"gates.harbourmaster.dev/released": "expired"}),
            "it waited too long and was released unchecked",
        ),
        (pod(gates=(), annotations={REMOVED: "true"}), "its gate was removed"),
        (
            pod(gates=(), annotations={"gates.harbourmaster.dev/released": "by-hand"}),
            "an unknown user released it without its checks: no reason is given",
        ),
    ],
)
def test_how_a_pod_was_let_go(obj, text):
    report = report_on(obj)
    assert (report.code, report.place, report.text) == ("released", "", f"nothing: {text}")
    assert (report.checks, report.deadline, report.is_waiting) == ((), "", False)


@pytest.mark.parametrize(
    ("annotations", "text"),
    [
        ({**keptn(), "gates.harbourmaster.dev/parent": "unresolved"}, "its owner to be determined"),
        ({"gates.harbourmaster.dev/parent": "unresolved"}, "its owner to be determined"),
        (keptn(version=""), "its version to be determined"),
    ],
)
def test_what_admission_could_not_tell_is_found_out_first(annotations, text):
    report = report_on(pod(annotations=annotations), GOES)
    assert (report.code, report.text) == ("waits-for-owner", text)


@pytest.mark.parametrize(
    ("of", "unread", "code", "text"),
    [
        (None, (), "waits-for-app", "shop: no KeptnAppVersion has waiter in version 1.0 yet"),
        (None, ("KeptnAppVersion",), "waits-for-app", "shop"),
        (app(), (), "waits-for-app", "shop: pre-deployment tasks: approve Pending"),
        (
            app(
                pre_deployment_status="Failed",
                status="Failed",
                pre_deployment_task_status=(
                    ItemStatus(definition_name="approve", status="Failed"),
                ),
            ),
            (),
            "app-failed",
            "shop: pre-deployment tasks failed (approve)",
        ),
        # Its context came later.
        (app(**PASSED), (), "waits-for-app", "shop: pre-deployment tasks: approve Pending"),
        (
            app(
                **PASSED,
                pre_deployment_task_status=(
                    ItemStatus(definition_name="approve", status="Succeeded"),
                ),
            ),
            (),
            "waits-for-app",
            "shop, which passed: its own are about to begin",
        ),
    ],
)
def test_the_app_comes_first(of, unread, code, text):
    report = report_on(pod(), version(), of=of, unread=unread)
    assert (report.code, report.text) == (code, f"the checks of the app {text}")


def test_the_apps_checks_come_before_its_own():
    report = report_on(pod(), version(), of=app())
    assert [(check.phase, check.name) for check in report.checks] == [
        ("AppPreDeployTasks", "approve"),
        ("WorkloadPreDeployTasks", "warm"),
    ]
    assert report.app_version_object == "shop-1.0-6b86b273"


def test_without_a_version_the_pod_names_its_checks_itself():
    annotations = keptn(pre_deployment_tasks="warm,load", pre_deployment_evaluations="rate")
    report = report_on(pod(annotations=annotations))
    assert [(check.kind, check.name) for check in report.checks] == [
        ("task", "warm"),
        ("task", "load"),
        ("evaluation", "rate"),
    ]
    assert (report.version_object, report.app_version_object) == ("shop-waiter-1.0", "")


@pytest.mark.parametrize(
    ("workload", "deleted"),
    [
        (None, "2026-03-01T10:00:00Z"),
        ("going", ""),
    ],
)
def test_what_is_about_to_go_counts_for_nothing(workload, deleted):
    if workload is not None:
        metadata = Metadata(name="shop-waiter", uid="w", deletion_timestamp="2026-03-01T10:00:00Z")
        spec = WorkloadSpec(app="shop", version="1.0", resource_reference=RS)
        workload = Workload(metadata=metadata, spec=spec)
    gone = in_checks(**PASSED, deployment_status="Progressing", deleted=deleted)
    assert report_on(pod(), gone, workload=workload).code == "waits-for-version"


@pytest.mark.parametrize(
    ("max_age", "on_expiry", "deadline", "is_overdue", "code"),
    [
        (0.0, "Release", "", False, "checks-pending"),
        (60.0, "Release", "2026-03-01T10:01:00Z", False, "checks-pending"),
        (30.0, "Release", "2026-03-01T10:00:30Z", True, "released"),
        (30.0, "Keep", "2026-03-01T10:00:30Z", True, "checks-pending"),
        (1e300, "Release", "", False, "checks-pending"),
    ],
)
def test_the_deadline(max_age, on_expiry, deadline, is_overdue, code):
    report = report_on(pod(), in_checks(), max_age=max_age, on_expiry=on_expiry)
    assert (report.deadline, report.is_overdue, report.code) == (deadline, is_overdue, code)
    assert report.on_expiry == (on_expiry if max_age else "")
    assert (report.since, report.age) == ("2026-03-01T10:00:00Z", 30)


def test_nobody_goes_without_checks_that_is_free_and_only_lacks_a_node():
    obj = in_scheduler(pod(gates=()))
    assert report_on(obj, GOES, max_age=1, on_expiry="Release").code == "waits-in-scheduler"
    assert report_on(obj, in_checks(), max_age=1, on_expiry="Release").code == "released"


def test_the_earliest_next_try_is_that_of_an_open_check():
    """One that is over is not tried again, whenever that would have been."""
    states = {"a": "Progressing", "b": "Progressing", "over": "Failed"}
    items = tuple(
        ItemStatus(definition_name=name, name=name, status=state) for name, state in states.items()
    )
    item = in_checks(pre_deployment_status="Succeeded", pre_deployment_evaluation_task_status=items)
    evaluations = {
        name: Evaluation(
            metadata=Metadata(name=name),
            spec=EvaluationSpec(evaluation_definition=name, retry_interval="60s"),
            status=EvaluationStatus(retry_count=1, start_time="2026-03-01T10:00:00Z"),
        )
        for name in states
    }
    measured = {
        name: NOW - timedelta(seconds=seconds)
        for name, seconds in (("a", 10), ("b", 20), ("over", 30))
    }
    item = report_on(pod(), item, evaluations=evaluations, measured=measured)
    assert item.next_try == "2026-03-01T10:01:10Z"


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        ("orphaned", f"to release it, run {RELEASE}"),
        (
            "checks-failed",
            f"correct the cause and run {RERUN}; {AGAIN}; to release it, run {RELEASE}",
        ),
        (
            "foreign-gates-only",
            "what set these gates must remove them, or by hand: kubectl -n prod edit pod/waiter-1",
        ),
        ("checks-pending", ""),
    ],
)
def test_what_may_be_done_about_it(code, advice):
    obj, known, of, *_ = CASES[code]
    assert report_on(obj, known, of=of).advice == advice.format(code, code)


@pytest.mark.parametrize(
    ("annotations", "known", "is_named"),
    [
        (keptn(), None, True),
        ({**keptn(), "gates.harbourmaster.dev/parent": "unresolved"}, None, True),
        (keptn(version=""), None, True),
        (keptn(), in_checks(**PASSED, deployment_status="Progressing", uid="rs-9"), True),
        (keptn(), version(), False),
        ({"a": "b"}, None, False),
    ],
    ids=["version", "owner", "version of its image", "record", "app", "workload"],
)
def test_what_does_not_come_in_two_minutes_has_a_next_step(annotations, known, is_named):
    """The events of the pod name the cause where the controller alone knows it."""
    late = pod(annotations=annotations, created="2026-03-01T09:58:30Z")
    report = report_on(late, known)
    assert is_stuck(report)
    assert ("kubectl -n prod events --types=Warning" in report.advice) == is_named
    assert report.advice
    early = report_on(pod(annotations=annotations, created="2026-03-01T09:58:31Z"), known)
    assert not is_stuck(early)


@pytest.mark.parametrize(
    ("known", "facts"),
    [
        (in_checks(), {}),
        (version(), {"of": app()}),
        (version(), {"unread": ("KeptnAppVersion",)}),
        (in_checks(pre_deployment_status="Failed", status="Failed"), {}),
    ],
    ids=["checks", "checks of the app", "unread", "failed checks"],
)
def test_checks_that_take_long_are_not_stuck(known, facts):
    assert not is_stuck(report_on(pod(created="2026-03-01T09:00:00Z"), known, **facts))


def test_foreign_gates_are_named_beside_ours():
    report = report_on(pod(gates=("example.com/a", GATE, "example.com/b")), GOES)
    assert (report.code, report.foreign_gates) == ("released", ("example.com/a", "example.com/b"))


def test_a_pod_of_unknown_age_has_no_deadline():
    report = report_on(pod(created=""), in_checks(), max_age=1, on_expiry="Release")
    assert (report.age, report.deadline, report.code) == (0, "", "checks-pending")


def test_a_version_that_its_app_does_not_list_names_the_other_owners_of_its_workload():
    owners = [
        owner_ref("ReplicaSet", "waiter-rs", "rs-1"),
        owner_ref("ReplicaSet", "other", "rs-2"),
    ]
    others = {"gates.harbourmaster.dev/other-owners": '{"rs-2":["2.0",""]}'}
    uid = version().metadata.controller.uid
    metadata = {"name": "shop-waiter", "uid": uid, "annotations": others, "ownerReferences": owners}
    spec = {"app": "shop", "version": "1.0", "resourceReference": msgspec.to_builtins(RS)}
    status = {"owners": ["rs-1", "rs-2"]}
    workload = msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, Workload)
    report = report_on(pod(), version(), workload=workload)
    reason, _, named = report.text.partition("; ")
    assert reason.endswith("no KeptnAppVersion has waiter in version 1.0 yet")
    assert named == (
        "several owners have its workload: ReplicaSet waiter-rs (version 1.0), "
        "ReplicaSet other (version 2.0)"
    )
    listed = 'list waiter in KeptnApp shop with version "1.0"'
    assert report.advice == f"{listed}: kubectl -n prod edit keptnapps shop"


PROMOTE = 'harbourmaster gate promote keptnworkload/shop-waiter -n prod --reason "was held: {}"'
STAGED = {"gates.harbourmaster.dev/staged": "true"}
ERRORS = ItemStatus(definition_name="errors", name="stage-2-eval-errors-1", status="Progressing")


@pytest.mark.parametrize(
    ("known", "text", "advice"),
    [
        (
            in_stage("Releasing"),
            "stage 2 of 3: 3 of 12 pods released, not all of them are ready",
            "",
        ),
        (
            in_stage("Paused"),
            "stage 2 of 3: 3 of 12 pods released, paused until 2026-03-01T10:10:00Z",
            "",
        ),
        (
            in_stage("Paused", pause="soon"),
            "stage 2 of 3: 3 of 12 pods released, paused for soon",
            "",
        ),
        (
            in_stage("Paused", pause="Manual"),
            "stage 2 of 3: 3 of 12 pods released, paused until it is promoted",
            f"to go on, run {PROMOTE.format('stage-paused')}",
        ),
        (
            in_stage("Checking"),
            "stage 2 of 3: 3 of 12 pods released, its checks are about to begin",
            "",
        ),
        (
            in_stage("Checking", items=(ERRORS,)),
            "stage 2 of 3: 3 of 12 pods released, evaluation errors: try 2",
            "",
        ),
        (
            in_stage("Held", message="task probe failed"),
            "nothing: stage 2 of 3 is held: task probe failed; 3 of 12 pods released",
            "undo the rollout, or correct the cause in a new version; to go on, run "
            + PROMOTE.format("stage-held"),
        ),
        (in_stage("", number=0), "the first stage of its version, which is due", ""),
        (
            in_stage("Held", status="Deprecated"),
            "its deletion: another version has replaced its own",
            "",
        ),
    ],
    ids=[
        "releasing",
        "paused",
        "unread",
        "manual",
        "checking",
        "try",
        "held",
        "not begun",
        "deprecated",
    ],
)
def test_a_pod_waits_for_its_stage(known, text, advice):
    tried = Evaluation(
        metadata=Metadata(name=ERRORS.name, namespace="prod"),
        spec=EvaluationSpec(evaluation_definition="errors"),
        status=EvaluationStatus(retry_count=2),
    )
    report = report_on(pod(labels=STAGED), known, evaluations={ERRORS.name: tried})
    assert (report.text, report.advice) == (text, advice)


def test_the_checks_of_its_stage_are_among_those_of_a_pod():
    kinds = {(check.kind, check.name) for check in report_on(pod(), in_stage("Checking")).checks}
    assert kinds == {("task", "probe"), ("evaluation", "errors"), ("analysis", "rate")}
    over = report_on(pod(), in_stage("Completed"))
    assert (over.code, over.checks) == ("released", ())


def test_a_pod_of_a_stage_is_never_late():
    for known in (in_stage("Held"), in_checks()):
        report = report_on(pod(labels=STAGED), known, max_age=1, on_expiry="Release")
        assert report.code != "released"
        assert (report.deadline, report.is_overdue) == ("", False)


@pytest.mark.parametrize("state", ["Held", "Releasing"])
def test_a_staged_pod_of_a_statefulset_is_to_be_deleted_after_an_undo(state):
    known = in_stage(state, status="Deprecated")
    report = report_on(pod(labels=STAGED), known, is_superseded=True)
    assert report.code == "superseded"
    assert report.advice == "kubectl -n prod delete pod waiter-1"
