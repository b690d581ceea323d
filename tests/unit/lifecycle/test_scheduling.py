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


def ago(**span):
    return format_rfc3339(NOW - timedelta(**span))


def version(**status):
    return waiter_version(uid="u1", **{"start_time": ago(seconds=60), **status})


def with_checks(tasks=("smoke",), evaluations=(), **status):
    made = version(**status)
    spec = replace(made.spec, pre_deployment_tasks=tasks, pre_deployment_evaluations=evaluations)
    return replace(made, spec=spec)


def ending_version(**status):
    """Return a version that is being deleted."""
    made = version(**status)
    metadata = replace(made.metadata, deletion_timestamp="2026-03-01T11:00:00Z")
    return replace(made, metadata=metadata)


def failed_version(field, name):
    """Return a version of which one check, in this field of the status, failed."""
    item = replace(TASK, definition_name=name, status="Failed")
    return version(pre_deployment_status="Failed", **{f"pre_deployment_{field}": (item,)})


def with_annotations(annotations, pod=POD):
    return replace(pod, annotations={**pod.annotations, **annotations})


def ask(stored_version, pod=POD, deadline=300.0, now=NOW, **options):
    stored = {f"prod/{NAME}": stored_version}
    return scheduling_permission(pod, stored.get, deadline=deadline, now=now, **options)


def message_of(refusal, nodes=3):
    """Return the text as a scheduler reports it."""
    return f"0/{nodes} nodes are available: {nodes} {refusal}. preemption: 0/{nodes} nodes ..."


BARE = CandidatePod(namespace="prod")
REMOVED = {"keptn.sh/scheduling-gate-removed": "true"}
UNRESOLVED = {"gates.harbourmaster.dev/parent": "unresolved"}
WAIT_FOR = {"gates.harbourmaster.dev/wait-for": "job/migrate"}
WAITER = with_annotations({**WAIT_FOR, "gates.harbourmaster.dev/checks": "none"}, BARE)
MET = {"gates.harbourmaster.dev/waited": "met"}
WRONG = with_annotations({"gates.harbourmaster.dev/wait-for": "migrate"}, WAITER)
NAMELESS = with_annotations({"keptn.sh/workload": "waiter"}, BARE)
MANY = tuple(replace(TASK, definition_name=name) for name in "abcde")
BOTH = {
    "pre_deployment_task_status": (TASK, DONE),
    "pre_deployment_evaluation_task_status": (EVALUATION,),
}
LATE = version(start_time=ago(seconds=300), pre_deployment_task_status=(TASK,))
CHECKED = version(**PASSED)
UNBEGUN = {"start_time": "", "pre_deployment_task_status": (DONE,)}
KNOWN = with_checks(("warm-up", "smoke"), ("room",), **UNBEGUN)
OF_VERSION = f"KeptnWorkloadVersion {NAME}"
ABSENT = f"waits for {OF_VERSION}, which is not there yet"
UNKNOWN_OWNER = "waits until it is known whether its owner has a workload"
UNRECORDED = f"waits until {OF_VERSION} has recorded its owner"
OBJECTS = "waits for objects: job/migrate"
CHECKS = f"pre-deployment checks of {NAME}"
UNTIL = f"waits for {CHECKS} until 2026-03-01T12:04:00Z"
NOT_DONE = f"{CHECKS} were not done by 2026-03-01T12:00:00Z: smoke; {CHECK_AGAIN}"
REFUSALS = [
    (None, POD, ABSENT),
    (None, replace(POD, labels=REMOVED), ABSENT),
    (CHECKED, replace(POD, namespace="other"), ABSENT),
    (ending_version(**PASSED), POD, f"waits for {OF_VERSION}, which is being deleted"),
    (CHECKED, NAMELESS, "waits for its version: workload waiter has none yet"),
    (None, with_annotations(UNRESOLVED, BARE), UNKNOWN_OWNER),
    (CHECKED, with_annotations(UNRESOLVED), UNKNOWN_OWNER),
    (version(**BOTH), POD, f"{UNTIL}: smoke, room"),
    (version(pre_deployment_task_status=MANY), POD, f"{UNTIL}: a, b, c and 2 more"),
    (version(start_time=""), POD, f"waits for {CHECKS}: they have not begun"),
    (KNOWN, POD, f"waits for {CHECKS}: smoke, room"),
    (failed_version("task_status", "smoke"), POD, f"{CHECKS} failed: smoke"),
    (failed_version("evaluation_task_status", "room"), POD, f"{CHECKS} failed: room"),
    (version(pre_deployment_evaluation_status="Failed"), POD, f"{CHECKS} failed"),
    (LATE, POD, NOT_DONE),
    (CHECKED, replace(POD, owner_references=()), UNRECORDED),
    (CHECKED, replace(POD, owner_references=(replace(OWNER, uid="u2"),)), UNRECORDED),
    (CHECKED, replace(POD, owner_references=(replace(OWNER, uid=""),)), UNRECORDED),
    (
        version(**{**PASSED, "deployment_status": "Deprecated"}),
        POD,
        f"{UNTIL}: they have not begun",
    ),
    (None, WAITER, OBJECTS),
    (None, with_annotations({"gates.harbourmaster.dev/waited": "timed-out"}, WAITER), OBJECTS),
    (CHECKED, with_annotations(WAIT_FOR), OBJECTS),
    (version(), with_annotations(WAIT_FOR | MET), f"{UNTIL}: they have not begun"),
    (None, WRONG, "waits for objects: its annotation names none"),
]


@pytest.mark.parametrize(("stored_version", "pod", "text"), REFUSALS)
def test_who_must_wait_hears_for_what_and_is_known_by_it(stored_version, pod, text):
    refusal = ask(stored_version, pod).refusal
    assert refusal == text
    assert is_refusal(message_of(refusal))


def test_the_deadline_is_that_of_the_settings():
    assert ask(LATE, deadline=0).refusal == f"waits for {CHECKS}: smoke"
    assert CHECK_AGAIN not in ask(LATE, now=NOW - timedelta(seconds=1)).refusal


PERMISSIONS = [
    (None, BARE, FREE),
    (None, with_annotations(WAIT_FOR, BARE), FREE),
    (None, with_annotations(REMOVED), FREE),
    (None, with_annotations({"gates.harbourmaster.dev/released": "by-hand"}), FREE),
    (None, with_annotations(MET, WAITER), FREE),
    (CHECKED, with_annotations(WAIT_FOR | MET), FREE),
    (CHECKED, POD, Permission()),
    (version(**{**PASSED, "pre_deployment_status": "Warning"}), POD, Permission()),
    (version(**PASSED, start_time=ago(hours=9)), POD, Permission()),
]


@pytest.mark.parametrize(("stored_version", "pod", "permission"), PERMISSIONS)
def test_who_may_run(stored_version, pod, permission):
    assert ask(stored_version, pod) == permission


SAME_NAME = {
    "of another app": {"app": "shop-waiter", "workload_name": "shop-waiter"},
    "of another workload": {"workload_name": "shop-wait"},
    "of another version": {"version": "1"},
}


@pytest.mark.parametrize("spec", SAME_NAME.values(), ids=list(SAME_NAME))
def test_a_version_of_that_name_that_is_another_s_lets_nobody_go(spec):
    # A StatefulSet stays the same object, and recorded, when its template changes.
    refusal = ask(replace(CHECKED, spec=replace(CHECKED.spec, **spec))).refusal
    assert refusal.startswith(f"waits for {OF_VERSION}, which is of workload ")
    assert is_refusal(message_of(refusal))


@pytest.mark.parametrize("stored_version", [None, version()])
def test_who_waits_in_a_scheduler_that_is_not_ours_hears_so(stored_version):
    pod = replace(POD, scheduler="gatekeeper")
    answer = ask(stored_version, pod, scheduler="keptn-scheduler")
    assert answer.is_foreign
    assert answer.refusal.startswith(
        "waits in gatekeeper, but the controller handles pods of keptn-scheduler: "
    )
    assert not ask(stored_version, pod, scheduler="gatekeeper").is_foreign


@pytest.mark.parametrize("pod", [POD, BARE])
def test_who_may_run_does_whatever_the_scheduler(pod):
    pod = replace(pod, scheduler="gatekeeper")
    assert ask(CHECKED, pod, scheduler="keptn-scheduler") == Permission()


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
    answer = ask(long_version, pod, scheduler="keptn-scheduler")
    for text in (answer.refusal, *answer.avoided.values()):
        assert len(text) < MOST_TEXT + 100
    assert answer != Permission()


@pytest.mark.parametrize("text", ["", "soon"])
def test_without_a_start_there_is_no_deadline(text):
    assert deadline_of(version(start_time=text), 300.0) is None


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
    return with_annotations({"gates.harbourmaster.dev/checks": value})


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ({}, "waiting"),
        ({"start_time": ""}, "waiting"),
        ({"start_time": ago(seconds=300)}, "late"),
        ({"pre_deployment_status": "Failed"}, "failed"),
        ({"pre_deployment_evaluation_status": "Failed"}, "failed"),
        ({"pre_deployment_task_status": (replace(TASK, status="Failed"),)}, "failed"),
        ({**PASSED, "start_time": ago(hours=1)}, "passed"),
        ({**PASSED, "pre_deployment_task_status": (replace(TASK, status="Failed"),)}, "passed"),
    ],
)
def test_how_checks_stand(status, state):
    assert state_of_checks(version(**status), deadline=300.0, now=NOW) == state
    assert state_of_checks(version(**status), deadline=0, now=NOW) == state.replace(
        "late", "waiting"
    )


def test_checks_of_its_own_that_have_begun_are_a_state():
    begun = {"current_phase": "WorkloadPreDeployTasks"}
    assert is_checking(with_checks(**begun))
    assert state_of_checks(with_checks(**begun), deadline=300.0, now=NOW) == "checking"
    late = {**begun, "start_time": ago(seconds=300)}
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
