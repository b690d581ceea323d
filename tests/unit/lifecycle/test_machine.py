"""Versions go through their phases (keptn-spec 3.0, 3.12)."""

from __future__ import annotations

import itertools
from datetime import timedelta

import pytest
from msgspec.structs import replace

from harbourmaster.api.times import format_rfc3339
from harbourmaster.lifecycle import events
from harbourmaster.lifecycle.machine import (
    advance,
    overall_state,
    resume,
    retry_changed_checks,
    supersede,
)
from harbourmaster.lifecycle.model import (
    AppVersionStatus,
    ItemStatus,
    WorkloadEntry,
)
from harbourmaster.lifecycle.phases import APP_PHASES, APPLICATION_PHASES, WORKLOAD_PHASES
from harbourmaster.lifecycle.steps import Inputs, Rules
from harbourmaster.lifecycle.tracing import phase_carrier
from harbourmaster.lifecycle.workloads import approval
from helpers.lifecycle_objects import of_application
from helpers.phased import CHECKS, NOW, STAMP, Walk, app_version, workload_version

APP_FLOW = [
    "AppPreDeployTasks",
    "AppPreDeployEvaluations",
    "AppDeploy",
    "AppPostDeployTasks",
    "AppPostDeployEvaluations",
]
APPLICATION_FLOW = [
    "ApplicationPreDeployTasks",
    "ApplicationPreDeployEvaluations",
    "ApplicationDeploy",
    "ApplicationPostDeployTasks",
    "ApplicationPostDeployEvaluations",
]
WORKLOAD_FLOW = [
    "WorkloadPreDeployTasks",
    "WorkloadPreDeployEvaluations",
    "WorkloadDeploy",
    "WorkloadPostDeployTasks",
    "WorkloadPostDeployEvaluations",
]
APP_STATES = [
    "pre_deployment_status",
    "pre_deployment_evaluation_status",
    "workload_overall_status",
    "post_deployment_status",
    "post_deployment_evaluation_status",
    "promotion_status",
]
WORKLOAD_STATES = [
    "pre_deployment_status",
    "pre_deployment_evaluation_status",
    "deployment_status",
    "post_deployment_status",
    "post_deployment_evaluation_status",
]


def states(walk, fields):
    return [getattr(walk.status, field) for field in fields]


def flow_of(phases):
    return [f"{phase}{state}" for phase in phases for state in ("Started", "Finished")]


def without_items(reasons):
    return [reason for reason in reasons if not reason.startswith(("Reconcile", "Create"))]


def walk_until(version, *, until, rules=None):
    """A walk that lets every child before ``until`` succeed."""
    walk = Walk(version, rules=rules)
    walk.is_deployed = True
    walk.go()
    for definition in [*CHECKS.values(), ("promote",)]:
        if definition[0] == until:
            break
        walk.end(definition[0])
        walk.go()
    return walk


@pytest.mark.parametrize("has_idle_events", [True, False])
def test_phases_without_checks_give_events_unless_the_rules_leave_them_out(has_idle_events):
    rules = Rules(has_idle_events=has_idle_events)
    walk = walk_until(
        workload_version(pre_deployment_tasks=("migrate",)), until="load", rules=rules
    )
    events = [f"{notice.phase}{notice.state}" for notice in walk.told if not notice.is_minor]
    phases = WORKLOAD_FLOW if has_idle_events else ["WorkloadPreDeployTasks", "WorkloadDeploy"]
    assert without_items(events) == flow_of(phases)
    assert events.count("ReconcileTaskStatusChanged") == 1
    assert flow_of(WORKLOAD_FLOW) == without_items(walk.reasons)


def test_an_app_without_checks_goes_through_all_phases_in_one_pass():
    walk = Walk(app_version())
    outcome = walk.go()
    assert walk.reasons == flow_of(APP_FLOW)
    assert states(walk, APP_STATES) == ["Succeeded"] * 5 + ["Pending"]
    assert walk.status.current_phase == "Completed"
    assert walk.status.status == "Succeeded"
    assert (walk.status.start_time, walk.status.end_time) == (STAMP, STAMP)
    assert outcome.requeue_after is None


@pytest.mark.parametrize(
    ("version", "fields", "phases"),
    [
        (app_version(**CHECKS), APP_STATES, APP_FLOW),
        (of_application(app_version(**CHECKS)), APP_STATES[:-1], APPLICATION_FLOW),
        (workload_version(**CHECKS), WORKLOAD_STATES, WORKLOAD_FLOW),
    ],
)
@pytest.mark.parametrize(
    ("definition", "at"), [("migrate", 0), ("load", 1), ("announce", 3), ("errors", 4)]
)
def test_what_comes_after_a_failed_check_is_deprecated(version, fields, phases, definition, at):
    walk = walk_until(version, until=definition)
    walk.end(definition, "Failed")
    walk.later(5)
    walk.go()
    expected = ["Succeeded"] * at + ["Failed"] + ["Deprecated"] * (len(fields) - at - 1)
    assert states(walk, fields) == expected
    assert walk.status.status == "Failed"
    assert walk.status.current_phase == phases[at]
    assert walk.status.end_time == "2026-11-21T18:00:05Z"
    assert walk.status.start_time == STAMP
    assert without_items(walk.reasons)[-1] == f"{phases[at]}Failed"


def test_the_version_of_an_application_has_phases_of_its_own():
    cart = WorkloadEntry(name="cart", version="2.0")
    walk = Walk(of_application(app_version(workloads=[("cart", "2.0")])))
    walk.workloads = {cart: "Progressing"}
    walk.go()
    assert walk.status.current_phase == "ApplicationDeploy"
    walk.workloads = {cart: "Succeeded"}
    walk.go()
    assert walk.reasons == flow_of(APPLICATION_FLOW)
    assert walk.status.status == "Succeeded"


def test_a_promotion_is_the_last_phase_where_it_is_wanted():
    walk = Walk(app_version(promotion_tasks=("promote",)), rules=Rules(has_promotion=True))
    walk.go()
    assert walk.status.current_phase == "PromotionTasks"
    assert walk.names("promote") == ["promotion-promote"]
    walk.end("promote", "Failed")
    walk.go()
    assert states(walk, APP_STATES) == ["Succeeded"] * 5 + ["Failed"]
    assert walk.reasons[-1] == "PromotionTasksFailed"


@pytest.mark.parametrize("definition", ["migrate", "load", "announce", "errors", "promote"])
def test_without_blocking_a_failed_check_is_a_warning_and_the_flow_goes_on(definition):
    version = app_version(**CHECKS, promotion_tasks=("promote",))
    rules = Rules(is_blocking=False, has_promotion=True)
    walk = Walk(version, rules=rules)
    walk.go()
    for check in ("migrate", "load", "announce", "errors", "promote"):
        walk.end(check, "Failed" if check == definition else "Succeeded")
        walk.go()
    assert walk.status.status == "Succeeded"
    assert sorted(states(walk, APP_STATES)) == ["Succeeded"] * 5 + ["Warning"]
    items = (
        *walk.status.pre_deployment_task_status,
        *walk.status.pre_deployment_evaluation_task_status,
        *walk.status.post_deployment_task_status,
        *walk.status.post_deployment_evaluation_task_status,
        *walk.status.promotion_task_status,
    )
    assert [item.status for item in items if item.definition_name == definition] == ["Failed"]
    assert without_items(walk.reasons) == flow_of([*APP_FLOW, "PromotionTasks"])


def test_without_blocking_deployments_fail_all_the_same():
    rules = Rules(is_blocking=False, observability_timeout=10)
    workload = Walk(workload_version(), rules=rules)
    workload.go()
    workload.later(10)
    workload.go()
    assert workload.status.status == "Failed"
    app = Walk(app_version(workloads=[("cart", "2.0")]), rules=rules)
    app.workloads = {WorkloadEntry(name="cart", version="2.0"): "Failed"}
    app.go()
    assert app.status.status == "Failed"


def test_a_phase_that_ended_with_a_warning_stays_passed_when_blocking_again():
    walk = Walk(workload_version(**CHECKS), rules=Rules(is_blocking=False))
    walk.go()
    walk.end("migrate", "Failed")
    walk.go()
    walk.rules = Rules()
    walk.end("load")
    walk.is_deployed = True
    walk.go()
    assert walk.status.pre_deployment_status == "Warning"
    assert walk.status.current_phase == "WorkloadPostDeployTasks"


@pytest.mark.parametrize("state", ["Succeeded", "Failed", "Deprecated", "Warning"])
def test_what_is_over_is_never_touched(state):
    status = AppVersionStatus(status=state, current_phase="AppDeploy")
    version = app_version(status=status, **CHECKS)
    outcome = advance(version, Inputs(), Rules(), Walk(version).now)
    assert outcome.status is status
    assert outcome.notices == outcome.creations == ()


def test_what_others_wrote_is_gone_on_with():
    # As Keptn leaves it when it is replaced in the midst of a phase.
    before = Walk(app_version(**CHECKS))
    before.go()
    item = replace(before.status.pre_deployment_task_status[0], name="pre-migrate-54321")
    status = replace(before.status, pre_deployment_task_status=(item,), phase_trace_ids={})
    walk = Walk(app_version(status=status, **CHECKS))
    walk.children = {("KeptnTask", "pre-migrate-54321"): "Succeeded"}
    walk.go()
    assert walk.names("migrate") == []
    assert walk.status.current_phase == "AppPreDeployEvaluations"
    assert "AppPreDeployTasksStarted" not in walk.reasons


def test_a_failed_phase_of_a_version_that_goes_on_is_judged_anew():
    item = ItemStatus(definition_name="migrate", status="Failed", name="pre-migrate-1")
    status = AppVersionStatus(
        status="Progressing",
        current_phase="AppPreDeployTasks",
        pre_deployment_status="Failed",
        pre_deployment_task_status=(item,),
    )
    walk = Walk(app_version(status=status, **CHECKS))
    walk.go()
    assert walk.status.status == "Failed"
    assert walk.created == []


def test_each_phase_keeps_its_trace_only_where_there_are_traces():
    plain = Walk(app_version())
    plain.go()
    assert plain.status.phase_trace_ids == {}
    trace = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
    walk = Walk(app_version(trace_id=trace), rules=Rules(carrier=phase_carrier))
    walk.go()
    assert list(walk.status.phase_trace_ids) == APP_FLOW
    for name, carrier in walk.status.phase_trace_ids.items():
        assert carrier == phase_carrier(trace, walk.version.metadata.uid, name)
        assert carrier["traceparent"].startswith("00-4bf92f3577b34da6a3ce929d0e0e4736-")


@pytest.mark.parametrize(
    ("states", "result"),
    [
        ([], "Succeeded"),
        (["Succeeded"], "Succeeded"),
        (["Succeeded", "Succeeded"], "Succeeded"),
        (["Succeeded", "Failed", "Progressing", "Pending", "Unknown"], "Failed"),
        (["Succeeded", "Deprecated"], "Failed"),
        (["Succeeded", "Progressing", "Pending", "Unknown"], "Progressing"),
        (["Succeeded", "Pending", "Unknown"], "Pending"),
        (["Succeeded", "", "Unknown"], "Pending"),
        (["Succeeded", "Unknown"], "Unknown"),
        (["Succeeded", "Warning"], "Warning"),
        (["Warning", "Failed"], "Failed"),
        (["Warning", "Progressing"], "Progressing"),
        (["Succeeded", "Nonsense"], "Pending"),
    ],
)
def test_the_worst_state_counts_whatever_the_order(states, result):
    for order in itertools.permutations(states):
        assert overall_state(order, len(order)) == result


def test_what_is_not_there_yet_is_waited_for():
    assert overall_state(["Succeeded"], 2) == "Pending"
    assert overall_state(["Failed"], 2) == "Failed"
    assert overall_state(["Progressing"], 2) == "Progressing"
    assert overall_state([], 1) == "Pending"


def test_the_phases_are_those_that_events_know_in_their_order():
    assert [phase.name for phase in APP_PHASES] == list(events.APP_PHASES)
    assert [phase.name for phase in APPLICATION_PHASES] == list(events.APPLICATION_PHASES)
    assert [workload_phase.name for workload_phase in WORKLOAD_PHASES] == list(
        events.WORKLOAD_PHASES
    )


def test_children_are_named_after_what_they_check():
    assert [phase.check_type for phase in APP_PHASES] == [
        "pre",
        "pre-eval",
        "",
        "post",
        "post-eval",
        "promotion",
    ]
    assert [workload_phase.check_type for workload_phase in WORKLOAD_PHASES] == [
        "pre",
        "pre-eval",
        "",
        "post",
        "post-eval",
    ]


@pytest.mark.parametrize(
    ("until", "passed"), [("migrate", 0), ("load", 1), ("announce", 3), ("errors", 4)]
)
def test_a_superseded_version_keeps_what_passed_and_goes_on_after_a_rollback(until, passed):
    walk = walk_until(workload_version(**CHECKS), until=until)
    phase, is_approved = walk.status.current_phase, approval(walk.version).is_given
    walk.version = replace(walk.version, status=supersede(walk.version, NOW))
    done, left = ["Succeeded"] * passed, 5 - passed
    assert states(walk, WORKLOAD_STATES) == [*done, *["Deprecated"] * left]
    assert (walk.status.status, walk.status.current_phase) == ("Deprecated", phase)
    assert walk.status.end_time == STAMP
    assert approval(walk.version).is_given == is_approved
    walk.version = replace(walk.version, status=resume(walk.version))
    assert states(walk, WORKLOAD_STATES) == [*done, *["Pending"] * left]
    assert (walk.status.status, walk.status.end_time) == ("Progressing", "")
    created = len(walk.created)
    walk.go()
    assert len(walk.created) == created
    assert walk.status.current_phase == phase


def test_the_deployment_of_a_superseded_version_begins_again():
    walk = Walk(workload_version())
    walk.go()
    walk.version = replace(walk.version, status=supersede(walk.version, NOW))
    assert walk.status.deployment_status == "Deprecated"
    assert approval(walk.version).is_given
    walk.version = replace(walk.version, status=resume(walk.version))
    walk.now += timedelta(seconds=1000)
    walk.go()
    assert walk.status.deployment_status == "Progressing"
    walk.is_deployed = True
    walk.go()
    assert walk.status.status == "Succeeded"


def test_a_version_that_never_began_is_superseded_and_resumed():
    version = workload_version()
    version = replace(version, status=supersede(version, NOW))
    assert not approval(version).is_given
    assert resume(version).status == "Pending"


def test_a_workload_that_failed_by_its_time_out_succeeds_when_it_is_deployed():
    walk = Walk(workload_version(post_deployment_tasks=("announce",)))
    walk.go()
    walk.now += timedelta(seconds=301)
    walk.go()
    assert walk.status.status == "Failed"
    assert states(walk, WORKLOAD_STATES)[3:] == ["Deprecated"] * 2
    assert not walk.status.is_final
    before = walk.status
    walk.go()
    assert walk.status == before
    walk.told.clear()
    walk.is_deployed = True
    walk.go()
    assert "WorkloadDeployFinished" in walk.reasons
    walk.end("announce")
    walk.go()
    assert (walk.status.status, walk.status.is_final) == ("Succeeded", True)
    assert states(walk, WORKLOAD_STATES) == ["Succeeded"] * 5


def test_a_workload_that_failed_by_a_check_stays_failed():
    walk = walk_until(workload_version(**CHECKS), until="announce")
    walk.end("announce", "Failed")
    walk.go()
    assert walk.status.is_final
    walk.is_deployed = True
    walk.go()
    assert walk.status.status == "Failed"


@pytest.mark.parametrize(
    ("states_then", "end"),
    [
        ({"cart": "Succeeded", "pay": "Succeeded"}, "Succeeded"),
        ({"cart": "Progressing", "pay": "Succeeded"}, "Progressing"),
        ({"cart": "Failed", "pay": "Succeeded"}, "Failed"),
        # One is collected, so nothing is known of it.
        ({"pay": "Succeeded"}, "Failed"),
    ],
)
def test_an_app_whose_workload_failed_goes_on_with_it(states_then, end):
    walk = Walk(app_version(workloads=(("cart", "1"), ("pay", "1"))))
    cart, pay = walk.version.spec.workloads
    walk.workloads = {cart: "Failed", pay: "Progressing"}
    walk.go()
    assert walk.status.status == "Failed"
    walk.workloads = {
        entry: states_then[entry.name] for entry in (cart, pay) if entry.name in states_then
    }
    walk.go()
    assert walk.status.status == end


def test_the_time_out_begins_again_when_a_paused_rollout_goes_on():
    walk = Walk(workload_version())
    walk.go()
    assert walk.wait == 300
    walk.resumed = None
    walk.later(100_000)
    walk.go()
    assert (walk.status.status, walk.wait) == ("Progressing", None)
    walk.resumed = format_rfc3339(walk.now)
    walk.later(299)
    walk.go()
    assert (walk.status.status, walk.wait) == ("Progressing", 1)
    walk.later(1)
    walk.go()
    assert walk.status.status == "Failed"
    assert not walk.status.is_final


@pytest.mark.parametrize(
    ("resumed", "left"),
    [
        ("2026-11-21T17:00:00Z", 100),
        ("soon", 100),
        # Clocks differ, and users may write anything.
        ("9999-12-31T23:59:59Z", 300),
    ],
)
def test_the_time_out_begins_neither_before_the_deployment_nor_in_the_future(resumed, left):
    walk = Walk(workload_version())
    walk.go()
    walk.later(200)
    walk.resumed = resumed
    walk.go()
    assert walk.wait == left


def test_a_pause_does_not_keep_a_deployment_that_is_done_from_its_success():
    walk = Walk(workload_version())
    walk.resumed = None
    walk.is_deployed = True
    walk.go()
    assert walk.status.status == "Succeeded"


def with_tasks(walk, *tasks):
    walk.version = replace(
        walk.version, spec=replace(walk.version.spec, pre_deployment_tasks=tasks)
    )


def walk_to_deployment():
    """An app whose workload has not ended yet."""
    walk = Walk(app_version(workloads=[("cart", "2.0")], pre_deployment_tasks=("migrate",)))
    walk.go()
    walk.end("migrate")
    walk.go()
    assert walk.status.current_phase == "AppDeploy"
    return walk


def test_an_app_goes_back_for_a_check_that_a_later_context_adds():
    walk = walk_to_deployment()
    with_tasks(walk, "scan", "migrate")
    walk.go()
    assert walk.status.current_phase == "AppPreDeployTasks"
    assert walk.status.pre_deployment_status == "Pending"
    assert len(walk.names("migrate")) == len(walk.names("scan")) == 1
    walk.end("scan")
    walk.go()
    assert walk.status.current_phase == "AppDeploy"
    assert states(walk, APP_STATES[:2]) == ["Succeeded", "Succeeded"]


def test_an_app_does_not_go_back_for_a_check_that_a_later_context_removes():
    walk = walk_to_deployment()
    reasons = list(walk.reasons)
    with_tasks(walk)
    walk.go()
    assert (walk.status.current_phase, walk.reasons) == ("AppDeploy", reasons)


def test_a_workload_does_not_go_back_for_a_check_that_was_added():
    walk = Walk(workload_version(pre_deployment_tasks=("migrate",)))
    walk.go()
    walk.end("migrate")
    walk.go()
    with_tasks(walk, "migrate", "scan")
    walk.go()
    assert walk.status.current_phase == "WorkloadDeploy"
    assert walk.names("scan") == []


def test_an_app_whose_check_failed_goes_on_when_a_context_replaces_that_check():
    walk = Walk(app_version(pre_deployment_tasks=("migrate", "scan")))
    walk.go()
    walk.end("migrate")
    walk.end("scan", "Failed")
    walk.go()
    assert walk.status.status == "Failed"
    assert retry_changed_checks(walk.version) is None
    with_tasks(walk, "migrate", "approve")
    status = retry_changed_checks(walk.version)
    assert (status.status, status.end_time) == ("Progressing", "")
    walk.version = replace(walk.version, status=status)
    walk.go()
    walk.end("approve")
    walk.go()
    assert (walk.status.status, len(walk.names("migrate"))) == ("Succeeded", 1)


def test_an_app_is_not_retried_for_checks_of_a_phase_that_it_did_not_reach():
    walk = Walk(app_version(pre_deployment_tasks=("scan",), pre_deployment_evaluations=("load",)))
    walk.go()
    walk.end("scan", "Failed")
    walk.go()
    assert walk.status.status == "Failed"
    assert retry_changed_checks(walk.version) is None


def test_a_check_that_failed_and_is_still_listed_fails_the_app_again():
    walk = Walk(app_version(pre_deployment_tasks=("scan",)))
    walk.go()
    walk.end("scan", "Failed")
    walk.go()
    with_tasks(walk, "scan", "approve")
    walk.version = replace(walk.version, status=retry_changed_checks(walk.version))
    walk.go()
    assert walk.status.status == "Failed"
    assert retry_changed_checks(walk.version) is None
