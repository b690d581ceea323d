"""Faults of a task's pod follow from the pod as its kubelet describes it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbourmaster.api.metadata import Condition
from harbourmaster.lifecycle.jobs import JobResult, result_of
from harbourmaster.lifecycle.model import TaskStatus
from harbourmaster.lifecycle.task_pods import (
    TaskFault,
    TaskPod,
    decode_refused,
    decode_task_pod,
    explain_result,
    may_be_refused,
    newest_fault,
    running_status,
)

DELETED = {"deletionTimestamp": "2026-03-01T12:05:00Z"}
REASONS = ("ErrImagePull", "ImagePullBackOff", "CrashLoopBackOff", "ContainerCreating", "Other")


def pod(*containers, metadata=None, **status):
    """A pod of the Job ``migrate``, as JSON."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "migrate", "uid": "j-1"}
    body = {
        "metadata": {
            "name": "migrate-x",
            "namespace": "prod",
            "creationTimestamp": "2026-03-01T12:00:00Z",
            "ownerReferences": [{**owner, "controller": True}],
            **(metadata or {}),
        },
        "status": {"containerStatuses": containers, **status},
    }
    return json.dumps(body).encode()


def waits(reason, message=""):
    return {"state": {"waiting": {"reason": reason, "message": message}}}


def end_state(code, reason="Error", message="", state="state"):
    return {state: {"terminated": {"exitCode": code, "reason": reason, "message": message}}}


def fault(*containers, **more):
    return decode_task_pod(pod(*containers, **more)).fault


def text(*containers, **more):
    return fault(*containers, **more).message


def test_a_pod_says_of_which_job_it_is():
    assert decode_task_pod(pod()) == TaskPod("prod", "migrate", "j-1", "2026-03-01T12:00:00Z")


def test_a_pod_says_that_it_is_deleted():
    assert decode_task_pod(pod(metadata=DELETED)).is_ending


def test_a_pod_that_no_job_controls_says_nothing():
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "a", "uid": "b"}
    owners = {"ownerReferences": [{**owner, "controller": True}]}
    assert decode_task_pod(pod(end_state(1), metadata=owners)) == TaskPod()


@pytest.mark.parametrize(
    ("reason", "kind", "advice"),
    [
        ("ErrImagePull", "ImagePullBackOff", "check the image and the imagePullSecrets"),
        ("ImagePullBackOff", "ImagePullBackOff", "check the image and the imagePullSecrets"),
        ("InvalidImageName", "InvalidImageName", "correct the image"),
        ("CreateContainerConfigError", "CreateContainerConfigError", "check the Secrets"),
        ("CreateContainerError", "CreateContainerError", "said"),
        ("RunContainerError", "RunContainerError", "said"),
    ],
)
def test_a_container_that_cannot_start_says_why_and_what_to_do(reason, kind, advice):
    waiting = fault(waits(reason, "said"))
    assert (waiting.reason, waiting.state) == (kind, "Waiting")
    assert waiting.message.startswith(f"its pod waits: {reason}: said")
    assert advice in waiting.message


@pytest.mark.parametrize("reason", ["ContainerCreating", "PodInitializing", ""])
def test_a_container_that_is_about_to_start_is_no_fault(reason):
    assert fault(waits(reason, "x")) is None
    assert fault({"state": {"running": {}}}) is None
    assert fault(end_state(0, "Completed")) is None


def test_an_init_container_of_others_counts_too():
    assert "ErrImagePull" in text(initContainerStatuses=[waits("ErrImagePull")])


def test_a_pod_without_a_node_says_what_the_scheduler_says():
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    unscheduled = fault(conditions=[{**condition, "message": "0/3 nodes are available."}])
    assert unscheduled.reason == "Unschedulable"
    assert unscheduled.message == (
        "its pod waits: Unschedulable: 0/3 nodes are available: check its requests and the nodes"
    )
    assert fault(conditions=[{**condition, "status": "True"}]) is None


@pytest.mark.parametrize("state", ["state", "lastState"])
def test_a_failed_container_says_its_code_and_its_last_lines(state):
    container = end_state(1, message="connected\n  the database is not migrated\n", state=state)
    failure = fault({**waits("CrashLoopBackOff"), **container})
    assert (failure.reason, failure.state) == ("PodFailed", "Failed")
    assert failure.message == "exit code 1: connected the database is not migrated"


def test_of_many_lines_the_last_ones_are_kept():
    message = text(end_state(2, message=f"{'x' * 2000}\nthe last line"))
    assert message.startswith("exit code 2: …xxx")
    assert message.endswith("x the last line")
    assert len(message) < 640


def test_a_container_killed_for_its_memory_says_what_to_do():
    killed = end_state(137, "OOMKilled", state="lastState")
    assert text(killed) == "exit code 137 (OOMKilled): raise its memory limit"
    assert text(killed, metadata=DELETED) == text(killed)


def test_other_reasons_of_an_end_are_named():
    assert text(end_state(128, "StartError", "no such file")) == (
        "exit code 128 (StartError): no such file"
    )


def test_a_container_that_cannot_be_run_again_keeps_the_reason_of_its_end():
    again = {**waits("RunContainerError"), **end_state(128, "StartError", state="lastState")}
    assert text(again) == "exit code 128 (StartError)"


@pytest.mark.parametrize("code", [137, 143])
def test_the_end_of_a_deleted_pod_is_not_its_failure(code):
    assert fault(end_state(code), metadata=DELETED) is None
    both = {**end_state(code), **end_state(3, state="lastState")}
    assert text(both, metadata=DELETED) == "exit code 3"
    assert text(end_state(code)) == f"exit code {code}"
    assert fault(waits("ErrImagePull"), metadata=DELETED) is None


def test_an_evicted_pod_says_why_instead_of_its_killed_container():
    eviction = fault(end_state(137), phase="Failed", reason="Evicted", message="low on memory")
    assert eviction == TaskFault("PodFailed", "Evicted: low on memory")


def test_a_refused_pod_is_told_by_the_jobs_event():
    event = {
        "message": "(combined from similar events): Error creating: pods is forbidden: quota",
        "lastTimestamp": "2026-03-01T12:00:00Z",
    }
    refused = decode_refused(json.dumps(event).encode())
    assert refused.created == "2026-03-01T12:00:00Z"
    refusal = refused.fault
    assert (refusal.reason, refusal.state) == ("FailedCreate", "Waiting")
    assert refusal.message.startswith(
        "its Job has no pod: FailedCreate: pods is forbidden: quota: "
    )
    assert decode_refused(b'{"lastTimestamp":null}').created == ""


DEAD = [TaskPod(is_ending=True), TaskPod(phase="Failed"), TaskPod(phase="Failed", is_ending=True)]
LIVE = [
    TaskPod(),
    TaskPod(phase="Running", fault=TaskFault("Other", "w")),
    TaskPod(phase="Succeeded"),
]
LATE = JobResult("Failed", "DeadlineExceeded")
OTHER_ENDS = [
    JobResult("Succeeded"),
    *(JobResult("Failed", reason) for reason in ("BackoffLimitExceeded", "PodFailurePolicy")),
]


@given(st.lists(st.sampled_from(DEAD)), st.sampled_from([None, LATE]))
def test_pods_may_be_refused_if_all_that_were_created_are_deleted_or_failed(dead, outcome):
    assert may_be_refused(dead, outcome)
    assert all(not may_be_refused([*dead, pod_], outcome) for pod_ in LIVE)
    assert all(not may_be_refused(dead, end) for end in OTHER_ENDS)


@given(st.permutations(range(60)).map(lambda seconds: seconds[:2]), st.booleans())
def test_a_refusal_counts_unless_a_pod_was_created_after_it(seconds, failed):
    created, refused = seconds
    pod = TaskPod(
        created=f"2026-03-01T12:00:{created:02}Z",
        fault=TaskFault("PodFailed", "exit code 1") if failed else None,
        is_ending=True,
    )
    event = {"message": "quota", "lastTimestamp": f"2026-03-01T12:00:{refused:02}Z"}
    refusal = decode_refused(json.dumps(event).encode())
    assert newest_fault([pod, refusal]) == (refusal if refused > created else pod).fault


def test_the_newest_pod_counts():
    before = TaskPod(created="2026-03-01T12:00:00Z", fault=TaskFault("PodFailed", "a"))
    after = TaskPod(created="2026-03-01T12:00:01Z", fault=TaskFault("Other", "b"))
    assert newest_fault([after, before]) == after.fault
    assert newest_fault([before, TaskPod(created=after.created)]) is None
    assert newest_fault([]) is None


def status(state="Progressing", **more):
    return TaskStatus(status=state, job_name="j", **more)


def test_a_fault_that_is_over_is_no_longer_shown():
    shown = status(reason="ImagePullBackOff", message="m")
    assert running_status(shown, None, has_no_pod=False) == status()
    refused = status(reason="FailedCreate", message="m")
    assert running_status(refused, None, has_no_pod=False) == status()
    assert running_status(refused, None, has_no_pod=True) == refused


def test_a_failure_is_shown_until_the_next_fault():
    shown = status(reason="PodFailed", message="exit code 1")
    assert running_status(shown, None, has_no_pod=False) == shown
    waiting = TaskFault("ImagePullBackOff", "w")
    assert running_status(shown, waiting, has_no_pod=False) == status(
        reason="ImagePullBackOff", message="w"
    )


def test_what_a_task_waited_for_before_its_job_is_not_the_fault_of_its_pod():
    before = status("Pending", reason="PodFailed", message="m")
    assert running_status(before, None, has_no_pod=True) == status()
    assert (
        explain_result(JobResult("Failed", "R", "of the Job"), before, None).message == "of the Job"
    )


FAULTS = st.sampled_from(REASONS).map(lambda reason: fault(waits(reason, reason)))


@given(st.lists(FAULTS, max_size=20))
def test_a_pod_that_goes_back_and_forth_in_one_class_is_written_once(faults):
    shown, writes = status(), 0
    for next_fault in faults:
        after = running_status(shown, next_fault, has_no_pod=False)
        writes += after != shown
        shown = after
    classes = [fault.reason if fault is not None else "" for fault in faults]
    changes = sum(before != after for before, after in zip(["", *classes], classes, strict=False))
    assert writes == changes


def test_a_failed_job_says_the_cause():
    failed = JobResult("Failed", "BackoffLimitExceeded", "Job has reached the specified limit")
    cause = TaskFault("PodFailed", "exit code 1: the database is not migrated")
    explained = explain_result(failed, status(), cause)
    assert explained.reason == "BackoffLimitExceeded"
    assert explained.message == "BackoffLimitExceeded: exit code 1: the database is not migrated"
    known = status(reason="PodFailed", message="exit code 2")
    assert explain_result(failed, known, None).message == "BackoffLimitExceeded: exit code 2"
    assert explain_result(failed, status(), None) == failed
    assert explain_result(JobResult("Succeeded"), known, cause) == JobResult("Succeeded")


SUCCEEDED = JobResult("Succeeded")
EXCEEDED = ("BackoffLimitExceeded", "Job has reached the specified backoff limit")


def condition(kind, status="True", reason="", message=""):
    return Condition(type=kind, status=status, reason=reason, message=message)


@pytest.mark.parametrize(
    ("conditions", "outcome"),
    [
        ([], None),
        ([condition("Suspended")], None),
        ([condition("Complete")], SUCCEEDED),
        ([condition("SuccessCriteriaMet")], SUCCEEDED),
        ([condition("SuccessCriteriaMet"), condition("Complete")], SUCCEEDED),
        ([condition("Failed", "True", *EXCEEDED)], JobResult("Failed", *EXCEEDED)),
        ([condition("FailureTarget", "True", *EXCEEDED)], JobResult("Failed", *EXCEEDED)),
    ],
)
def test_what_became_of_a_job(conditions, outcome):
    assert result_of(conditions) == outcome


@pytest.mark.parametrize("kind", ["Complete", "SuccessCriteriaMet", "Failed", "FailureTarget"])
@pytest.mark.parametrize("status", ["False", "Unknown", ""])
def test_a_condition_that_is_not_true_means_nothing(kind, status):
    assert result_of([condition(kind, status)]) is None


def test_a_failures_text_is_that_of_its_own_condition():
    result = result_of(
        [
            condition("Suspended", "False", "JobResumed", "Job resumed"),
            condition("Complete", "False", "Reconciling", "not yet"),
            condition("Failed", "True", "DeadlineExceeded", "Job was active longer"),
        ]
    )
    assert result == JobResult("Failed", "DeadlineExceeded", "Job was active longer")
