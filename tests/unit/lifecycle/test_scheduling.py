"""A scheduler's extender gets these answers about a pod."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from harbourmaster.api.metadata import OwnerReference
from harbourmaster.api.times import format_rfc3339
from harbourmaster.lifecycle.model import (
    FailedNode,
    ItemStatus,
)
from harbourmaster.lifecycle.scheduling import (
    CHECK_AGAIN,
    FREE,
    MOST_TEXT,
    CandidatePod,
    Permission,
    avoided_nodes,
    deadline_of,
    has_failed,
    is_checking,
    is_outdated,
    is_refusal,
    names_checks,
    scheduling_permission,
    state_of_checks,
)
from helpers.lifecycle_objects import waiter_version

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
NAME = "shop-waiter-1.0"
OWNER = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="waiter-5", uid="u1")
POD = CandidatePod(
    namespace="prod",
    annotations={
        "keptn.sh/app": "shop",
        "keptn.sh/workload": "waiter",
        "keptn.sh/version": "1.0",
    },
    owner_references=(OWNER,),
)
TASK = ItemStatus(definition_name="smoke", status="Progressing", name="pre-smoke-1")
DONE = ItemStatus(definition_name="warm-up", status="Succeeded", name="pre-warm-up-1")
EVALUATION = ItemStatus(definition_name="room", status="Pending", name="pre-eval-room-1")
PASSED = {
    "pre_deployment_status": "Succeeded",
    "pre_deployment_evaluation_status": "Succeeded",
    "deployment_status": "Progressing",
}


def version(**status):
    begun = format_rfc3339(NOW - timedelta(seconds=60))
    return waiter_version(uid="u1", **{"start_time": begun, **status})


def ask(stored_version, pod=POD, deadline=300.0, now=NOW):
    stored = {f"prod/{NAME}": stored_version}
    return scheduling_permission(pod, stored.get, deadline=deadline, now=now)


def test_a_pod_without_keptn_metadata_passes_unfiltered():
    assert ask(None, CandidatePod(namespace="prod")) == FREE


def test_a_pod_whose_workload_version_is_missing_waits():
    assert ask(None).refusal == f"waits for KeptnWorkloadVersion {NAME}, which is not there yet"


SAME_NAME = {
    "of another app": {"app": "shop-waiter", "workload_name": "shop-waiter"},
    "of another workload": {"workload_name": "shop-wait"},
    "of another version": {"version": "1"},
}


@pytest.mark.parametrize("spec", SAME_NAME.values(), ids=list(SAME_NAME))
def test_a_version_of_that_name_that_is_another_s_lets_nobody_go(spec):
    # A StatefulSet stays the same object, and recorded, when its template changes.
    current = version(**PASSED)
    current = ask(replace(current, spec=replace(current.spec, **spec)))
    assert current.refusal.startswith(
        f"waits for KeptnWorkloadVersion {NAME}, which is of workload "
    )
    assert is_refusal(message_of(current.refusal))


def test_a_version_that_is_being_deleted_lets_nobody_go():
    current = version(**PASSED)
    metadata = replace(current.metadata, deletion_timestamp="2026-03-01T11:00:00Z")
    current = ask(replace(current, metadata=metadata))
    assert current.refusal == f"waits for KeptnWorkloadVersion {NAME}, which is being deleted"


@pytest.mark.parametrize("stored_version", [None, version()])
def test_who_waits_in_a_scheduler_that_is_not_ours_hears_so(stored_version):
    stored = {f"prod/{NAME}": stored_version}
    pod = replace(POD, scheduler="gatekeeper")
    answer = scheduling_permission(
        pod, stored.get, deadline=300, now=NOW, scheduler="keptn-scheduler"
    )
    assert answer.is_foreign
    assert answer.refusal.startswith(
        "waits in gatekeeper, but the controller handles pods of keptn-scheduler: "
    )
    assert not scheduling_permission(
        pod, stored.get, deadline=300, now=NOW, scheduler="gatekeeper"
    ).is_foreign


@pytest.mark.parametrize("pod", [POD, CandidatePod(namespace="prod")])
def test_who_may_run_does_whatever_the_scheduler(pod):
    stored = {f"prod/{NAME}": version(**PASSED)}
    pod = replace(pod, scheduler="gatekeeper")
    answer = scheduling_permission(
        pod, stored.get, deadline=300, now=NOW, scheduler="keptn-scheduler"
    )
    assert answer == Permission()


def long_ones():
    """Pods and versions in which people have written much."""
    much = "x" * 200_000
    tasks = (replace(TASK, definition_name=much),)
    given = POD.annotations
    node = FailedNode(name="n1", reason=much, expires="2026-03-01T12:30:00Z")
    checks = {**given, "gates.harbourmaster.dev/checks": f"passed-{much}"}
    named = version()
    return {
        "workload": (None, replace(POD, annotations={"keptn.sh/workload": much})),
        "telling": (None, replace(POD, annotations=checks)),
        "number": (None, pod_told(f"passed-{'9' * 5000}")),
        "scheduler": (None, replace(POD, scheduler=much)),
        "tasks": (version(pre_deployment_task_status=tasks), POD),
        "another's": (replace(named, spec=replace(named.spec, app=much)), POD),
        "node": (version(**PASSED, failed_nodes=(node,)), POD),
    }


@pytest.mark.parametrize(
    "case", ["workload", "telling", "number", "scheduler", "tasks", "another's", "node"]
)
def test_no_text_grows_with_what_people_write(case):
    # It is sent once for each node.
    long_version, pod = long_ones()[case]
    stored = {f"prod/{NAME}": long_version}
    answer = scheduling_permission(
        pod, stored.get, deadline=300, now=NOW, scheduler="keptn-scheduler"
    )
    for text in (answer.refusal, *answer.avoided.values()):
        assert len(text) < MOST_TEXT + 100
    assert answer != Permission()


def test_a_pod_without_a_version_waits_for_it():
    annotations = {"keptn.sh/workload": "waiter"}
    current = ask(version(**PASSED), replace(POD, annotations=annotations))
    assert current.refusal == "waits for its version: workload waiter has none yet"


def test_a_pod_whose_owner_is_not_known_yet_waits():
    unresolved = {"gates.harbourmaster.dev/parent": "unresolved"}
    current = ask(None, CandidatePod(namespace="prod", annotations=unresolved))
    assert current.refusal == "waits until it is known whether its owner has a workload"
    current = ask(version(**PASSED), replace(POD, annotations={**POD.annotations, **unresolved}))
    assert current.refusal


def test_a_pod_of_another_namespace_waits_whatever_the_name():
    assert ask(version(**PASSED), replace(POD, namespace="other")).refusal


def test_checks_that_run_are_named_with_their_deadline():
    answer = ask(
        version(
            pre_deployment_task_status=(
                TASK,
                replace(TASK, definition_name="a", status="Succeeded"),
            ),
            pre_deployment_evaluation_task_status=(EVALUATION,),
        )
    )
    assert answer.refusal == (
        f"waits for pre-deployment checks of {NAME} until 2026-03-01T12:04:00Z: smoke, room"
    )


def test_checks_that_have_not_begun_say_so():
    current = ask(version(start_time=""))
    assert current.refusal == f"waits for pre-deployment checks of {NAME}: they have not begun"


def test_checks_that_have_not_begun_are_named_where_they_are_known():
    item = version(start_time="", pre_deployment_task_status=(DONE,))
    spec = replace(
        item.spec, pre_deployment_tasks=("warm-up", "smoke"), pre_deployment_evaluations=("room",)
    )
    item = ask(replace(item, spec=spec))
    assert item.refusal == f"waits for pre-deployment checks of {NAME}: smoke, room"


def test_of_many_checks_some_are_named():
    items = tuple(replace(TASK, definition_name=name) for name in "abcde")
    assert ask(version(pre_deployment_task_status=items)).refusal.endswith("a, b, c and 2 more")


@pytest.mark.parametrize(
    "status",
    [
        {"pre_deployment_task_status": (replace(TASK, status="Failed"),)},
        {"pre_deployment_evaluation_task_status": (replace(TASK, status="Failed"),)},
    ],
)
def test_failed_checks_are_named(status):
    current = ask(version(pre_deployment_status="Failed", **status))
    assert current.refusal == f"pre-deployment checks of {NAME} failed: smoke"


def test_a_failed_phase_refuses_though_no_check_is_listed():
    current = ask(version(pre_deployment_evaluation_status="Failed"))
    assert current.refusal == f"pre-deployment checks of {NAME} failed"


def test_passed_checks_let_the_pods_of_the_recorded_owner_go():
    assert ask(version(**PASSED)) == Permission()


def test_a_warning_is_as_good_as_a_success():
    status = {**PASSED, "pre_deployment_status": "Warning"}
    assert ask(version(**status)) == Permission()


@pytest.mark.parametrize("owners", [(), (replace(OWNER, uid="u2"),), (replace(OWNER, uid=""),)])
def test_pods_of_an_owner_that_is_not_recorded_wait(owners):
    current = ask(version(**PASSED), replace(POD, owner_references=owners))
    assert current.refusal == f"waits until KeptnWorkloadVersion {NAME} has recorded its owner"


def test_a_deployment_that_was_called_off_lets_nobody_go():
    assert ask(version(**{**PASSED, "deployment_status": "Deprecated"})).refusal


def test_after_the_deadline_it_is_to_check_again_later():
    late = version(
        start_time=format_rfc3339(NOW - timedelta(seconds=300)), pre_deployment_task_status=(TASK,)
    )
    answer = ask(late)
    assert answer.refusal == (
        f"pre-deployment checks of {NAME} were not done by 2026-03-01T12:00:00Z: smoke; "
        f"{CHECK_AGAIN}"
    )
    assert CHECK_AGAIN not in ask(late, now=NOW - timedelta(seconds=1)).refusal


def test_checks_that_pass_after_the_deadline_still_release():
    assert (
        ask(version(**PASSED, start_time=format_rfc3339(NOW - timedelta(hours=9)))) == Permission()
    )


def test_without_a_deadline_it_waits_for_ever():
    late = version(
        start_time=format_rfc3339(NOW - timedelta(days=9)), pre_deployment_task_status=(TASK,)
    )
    assert ask(late, deadline=0).refusal == f"waits for pre-deployment checks of {NAME}: smoke"


@pytest.mark.parametrize("text", ["", "soon"])
def test_without_a_start_there_is_no_deadline(text):
    assert deadline_of(version(start_time=text), 300.0) is None


def test_a_release_by_hand_counts():
    annotations = {**POD.annotations, "gates.harbourmaster.dev/released": "by-hand"}
    assert ask(None, replace(POD, annotations=annotations)) == FREE


def test_failed_nodes_are_avoided_until_they_expire():
    nodes = (
        FailedNode(name="n1", reason="task smoke failed", expires="2026-03-01T12:30:00Z"),
        FailedNode(name="n2", reason="pod failed", expires="2026-03-01T11:59:59Z"),
        FailedNode(name="n3", reason="pod failed", expires="never"),
    )
    current = version(**PASSED, failed_nodes=nodes)
    text = "task smoke failed on this node before, avoided until 2026-03-01T12:30:00Z"
    assert avoided_nodes(current, NOW) == {"n1": text}
    assert ask(current) == Permission(avoided={"n1": text})
    assert ask(current, now=NOW + timedelta(minutes=30)) == Permission()


def pod_told(value):
    annotations = {**POD.annotations, "gates.harbourmaster.dev/checks": value}
    return replace(POD, annotations=annotations)


def message_of(refusal, nodes=3):
    """Return the text as a scheduler reports it."""
    return f"0/{nodes} nodes are available: {nodes} {refusal}. preemption: 0/{nodes} nodes ..."


def test_a_pod_whose_gate_was_removed_is_free():
    annotations = {**POD.annotations, "keptn.sh/scheduling-gate-removed": "true"}
    assert ask(None, replace(POD, annotations=annotations)) == FREE


def test_labels_free_nobody():
    labels = {"keptn.sh/scheduling-gate-removed": "true"}
    assert ask(None, replace(POD, labels=labels)).refusal


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ({}, "waiting"),
        ({"start_time": ""}, "waiting"),
        ({"start_time": format_rfc3339(NOW - timedelta(seconds=300))}, "late"),
        ({"pre_deployment_status": "Failed"}, "failed"),
        ({"pre_deployment_evaluation_status": "Failed"}, "failed"),
        ({"pre_deployment_task_status": (replace(TASK, status="Failed"),)}, "failed"),
        ({**PASSED, "start_time": format_rfc3339(NOW - timedelta(hours=1))}, "passed"),
        ({**PASSED, "pre_deployment_task_status": (replace(TASK, status="Failed"),)}, "passed"),
    ],
)
def test_how_checks_stand(status, state):
    assert state_of_checks(version(**status), deadline=300.0, now=NOW) == state
    assert state_of_checks(version(**status), deadline=0, now=NOW) == state.replace(
        "late", "waiting"
    )


def with_checks(**status):
    current = version(**status)
    return replace(current, spec=replace(current.spec, pre_deployment_tasks=("smoke",)))


def test_checks_of_its_own_that_have_begun_are_a_state():
    begun = {"current_phase": "WorkloadPreDeployTasks"}
    assert is_checking(with_checks(**begun))
    assert state_of_checks(with_checks(**begun), deadline=300.0, now=NOW) == "checking"
    late = {**begun, "start_time": format_rfc3339(NOW - timedelta(seconds=300))}
    assert state_of_checks(with_checks(**late), deadline=300.0, now=NOW) == "late"
    assert state_of_checks(with_checks(), deadline=300.0, now=NOW) == "waiting"
    # Without checks of its own, no pod is told of them.
    assert state_of_checks(version(**begun), deadline=300.0, now=NOW) == "waiting"


@pytest.mark.parametrize("deadline", [300.0, 0.0])
def test_a_message_that_names_the_checks_is_known_again(deadline):
    running = with_checks(current_phase="x")
    text = message_of(ask(running, deadline=deadline).refusal)
    assert names_checks(text, running, deadline)
    # However many of them are over by now.
    assert names_checks(text, replace(running, spec=version().spec), deadline)
    assert not names_checks(message_of(ask(None).refusal), running, deadline)
    assert not names_checks("", running, deadline)
    later = with_checks(current_phase="x", start_time=format_rfc3339(NOW))
    assert names_checks(text, later, deadline) is (deadline == 0)


def test_a_message_of_before_the_start_lacks_the_deadline():
    text = message_of(ask(with_checks(start_time="")).refusal)
    assert not names_checks(text, with_checks(current_phase="x"), 300.0)


def test_a_failed_check_fails_the_version():
    assert has_failed(version(pre_deployment_task_status=(replace(TASK, status="Failed"),)))
    assert not has_failed(version(pre_deployment_task_status=(TASK, DONE)))


UNOWNED = replace(POD, owner_references=())
REFUSED = [
    (None, POD),
    (None, CandidatePod(annotations={"gates.harbourmaster.dev/parent": "unresolved"})),
    (None, CandidatePod(annotations={"keptn.sh/workload": "waiter"})),
    (version(**PASSED), UNOWNED),
    (version(), POD),
    (version(start_time=""), POD),
    (version(start_time=format_rfc3339(NOW - timedelta(seconds=300))), POD),
    (version(pre_deployment_status="Failed"), POD),
]


@pytest.mark.parametrize(("stored_version", "pod"), REFUSED)
def test_every_refusal_is_known_again(stored_version, pod):
    assert is_refusal(message_of(ask(stored_version, pod).refusal))


@pytest.mark.parametrize(
    "message",
    [
        "",
        "0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes ...",
        'running PreBind plugin "VolumeBinding": timed out waiting for the condition',
        "0/1 nodes are available: waiting for ephemeral volume controller to create the claim",
    ],
)
def test_words_of_others_are_no_refusal_of_ours(message):
    assert not is_refusal(message)


NODE = FailedNode(name="n1", reason="pod failed", expires="2026-03-01T12:30:00Z")


def avoidance(value, *nodes):
    report = ask(version(**PASSED, failed_nodes=nodes), pod_told(value))
    return message_of(", 1 ".join(report.avoided.values()), 1)


@pytest.mark.parametrize("value", ["passed", "passed-2"])
def test_who_is_refused_by_a_replica_that_lags_is_asked_about_again(value):
    now = version(**PASSED)
    lagging = message_of(ask(version(pre_deployment_task_status=(TASK,)), pod_told(value)).refusal)
    assert is_outdated(lagging, value, now, NOW)
    missing = message_of(ask(None, pod_told(value)).refusal)
    assert is_outdated(missing, value, now, NOW)


def test_what_was_said_before_the_telling_is_no_answer_to_it():
    now = version(**PASSED)
    assert not is_outdated(message_of(ask(version()).refusal), "passed", now, NOW)
    first = message_of(ask(version(), pod_told("passed")).refusal)
    assert not is_outdated(first, "passed-2", now, NOW)
    assert not is_outdated("", "passed", now, NOW)


def test_a_node_that_is_still_avoided_is_no_news():
    now = version(**PASSED, failed_nodes=(NODE,))
    for value in ("passed", "passed-2"):
        assert not is_outdated(avoidance(value, NODE), value, now, NOW)


@pytest.mark.parametrize("value", ["passed", "passed-2"])
def test_a_node_that_is_avoided_no_more_is_asked_about_once(value):
    cleared, expired = version(**PASSED), version(**PASSED, failed_nodes=(NODE,))
    message = avoidance(value, NODE)
    assert is_outdated(message, value, cleared, NOW)
    assert is_outdated(message, value, expired, NOW + timedelta(minutes=30))
    # The next telling has no answer yet.
    assert not is_outdated(message, "passed-3", cleared, NOW)
    longer = replace(NODE, name="n2", expires="2026-03-01T12:40:00Z")
    rest = version(**PASSED, failed_nodes=(longer,))
    assert is_outdated(avoidance(value, NODE, longer), value, rest, NOW)
    assert not is_outdated(avoidance(value, longer), value, rest, NOW)


WAIT_FOR = "gates.harbourmaster.dev/wait-for"
ONLY_WAITS = {WAIT_FOR: "job/migrate", "gates.harbourmaster.dev/checks": "none"}
MET = {"gates.harbourmaster.dev/waited": "met"}


def test_a_pod_that_waits_for_objects_is_refused_until_they_are_there():
    waiting = CandidatePod(namespace="prod", annotations=ONLY_WAITS)
    refused = ask(None, waiting)
    assert refused.refusal == "waits for objects: job/migrate"
    assert is_refusal(refused.refusal)
    assert ask(None, replace(waiting, annotations=ONLY_WAITS | MET)) == FREE
    timed_out = {"gates.harbourmaster.dev/waited": "timed-out"}
    assert ask(None, replace(waiting, annotations=ONLY_WAITS | timed_out)).refusal


def test_checks_and_objects_must_both_be_there():
    both = replace(POD, annotations=POD.annotations | {WAIT_FOR: "job/migrate"})
    met = replace(both, annotations=both.annotations | MET)
    assert ask(version(**PASSED), both).refusal == "waits for objects: job/migrate"
    assert "pre-deployment checks" in ask(version(), met).refusal
    assert ask(version(**PASSED), met) == FREE


def test_a_pod_whose_list_is_wrong_is_refused():
    wrong = CandidatePod(namespace="prod", annotations=ONLY_WAITS | {WAIT_FOR: "migrate"})
    assert ask(None, wrong).refusal == "waits for objects: its annotation names none"


def test_who_was_not_gated_by_admission_is_free_whatever_it_names():
    assert ask(None, CandidatePod(namespace="prod", annotations={WAIT_FOR: "job/x"})) == FREE
