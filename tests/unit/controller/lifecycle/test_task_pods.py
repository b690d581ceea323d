"""Faults of the pods of tasks get into their status, against a fake API server."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from harbourmaster.api.metadata import Metadata
from harbourmaster.api.resources import CORE_EVENTS, JOBS, PODS
from harbourmaster.api.times import parse_rfc3339
from harbourmaster.controller.lifecycle.task_jobs import TaskJob, TaskPods
from harbourmaster.controller.lifecycle.tasks import TaskReconciler
from harbourmaster.kube.store import Store
from harbourmaster.lifecycle.jobs import NONCE
from harbourmaster.lifecycle.task_pods import TaskFault, TaskPod
from helpers.tasks import KEY, complete, give, jobs, settle

STARTED = "2026-03-01T12:00:00Z"
OF_EVENTS = ("list", "/events")
LIMIT = ("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")


async def running(api, controllers):
    """Return the Job of a running task."""
    give(api)
    await controllers.until_status(KEY, "Progressing")
    (job,) = jobs(api)
    return job


def put_pod(api, job, *, uid=None, namespace="prod", deleted="", phase="", **state):
    """Write the state of a container in the status of the Job's pod."""
    metadata = job["metadata"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": metadata["name"]}
    api.put(
        PODS,
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": "pod",
                "namespace": namespace,
                "labels": {NONCE: metadata["labels"][NONCE]},
                **({"deletionTimestamp": deleted, "finalizers": ["job"]} if deleted else {}),
                "ownerReferences": [{**owner, "uid": uid or metadata["uid"], "controller": True}],
            },
            "spec": {},
            "status": {"phase": phase, "containerStatuses": [state]},
        },
    )


def waits(reason, message="said"):
    return {"waiting": {"reason": reason, "message": message}}


def exit_state(code, message=""):
    return {"terminated": {"exitCode": code, "reason": "Error", "message": message}}


async def test_the_last_lines_of_the_last_attempt_end_the_task(api, controllers):
    job = await running(api, controllers)
    put_pod(api, job, state=exit_state(1, "the \x1b[31mfirst\x1b[0m attempt"))
    status = await controllers.until_reason(KEY, "PodFailed")
    assert status.message == "exit code 1: the \\x1b[31mfirst\\x1b[0m attempt"
    put_pod(api, job, state=exit_state(1, "the \x1b[31mlast\x1b[0m attempt"))
    await settle()
    api.remove(PODS, "pod", "prod")
    await controllers.until(lambda: not controllers.caches.task_pods.store)
    complete(api, job, *LIMIT)
    status = await controllers.until_status(KEY, "Failed")
    assert status.reason == "BackoffLimitExceeded"
    assert status.message == (
        "BackoffLimitExceeded: exit code 1: the \\x1b[31mlast\\x1b[0m attempt"
    )
    assert controllers.signals.reasons == ["TaskPodFailed", "completed"]


async def test_a_time_out_says_what_the_pod_waited_for_until_it_was_deleted(api, controllers):
    job = await running(api, controllers)
    put_pod(api, job, state=waits("ErrImagePull"))
    await controllers.until_reason(KEY, "ImagePullBackOff")
    put_pod(api, job, state=exit_state(137), deleted=STARTED)
    await controllers.until(lambda: controllers.caches.pod_faults.get("prod/pod").is_ending)
    await settle()
    complete(api, job, "FailureTarget", "DeadlineExceeded", "late")
    status = await controllers.until_status(KEY, "Failed")
    assert status.message.startswith("DeadlineExceeded: its pod waits: ErrImagePull: said: ")
    assert controllers.signals.reasons == ["TaskPodWaiting", "completed"]


async def test_a_new_leader_knows_the_failure_from_the_status(api, controllers):
    job = await running(api, controllers)
    put_pod(api, job, state=exit_state(4))
    await controllers.until_reason(KEY, "PodFailed")
    await controllers.stop()
    api.remove(PODS, "pod", "prod")
    await controllers.until(lambda: not controllers.caches.task_pods.store)
    controllers.caches.pod_faults._gone.clear()
    complete(api, job, *LIMIT)
    controllers.start()
    status = await controllers.until_status(KEY, "Failed")
    assert status.message == "BackoffLimitExceeded: exit code 4"


@pytest.mark.parametrize("fields", [{"uid": "of another Job"}, {"namespace": "fields"}])
async def test_a_pod_of_another_job_or_namespace_says_nothing_about_a_task(
    api, controllers, fields
):
    job = await running(api, controllers)
    put_pod(api, job, **fields, state=exit_state(1))
    await controllers.until(lambda: len(controllers.caches.task_pods.store) == 1)
    complete(api, job, *LIMIT)
    status = await controllers.until_status(KEY, "Failed")
    assert status.message == LIMIT[2]
    assert controllers.signals.reasons == ["completed"]


async def test_few_events_are_read_and_no_long_answer(api, controllers):
    job = await running(api, controllers)
    refuse(api, job, "x" * 1024 * 1024)
    start(api, job)
    seen = await api.until_seen(*OF_EVENTS)
    assert seen.query["limit"] == "20"
    complete(api, job, "Failed", "DeadlineExceeded", "late", startTime=STARTED)
    status = await controllers.until_status(KEY, "Failed")
    assert status.message == "late"


def start(api, job, **status):
    api.put(JOBS, {**job, "status": {"startTime": STARTED, **status}})


def refuse(api, job, message="Error creating: exceeded quota", at=STARTED):
    involved = {"kind": "Job", "uid": job["metadata"]["uid"]}
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"event-{at}", "namespace": "prod"},
        "involvedObject": involved,
        "reason": "FailedCreate",
        "message": message,
        "lastTimestamp": at,
    }
    api.put(CORE_EVENTS, event)


async def test_an_event_that_comes_after_the_jobs_status_is_found(api, controllers, monkeypatch):
    monkeypatch.setattr("harbourmaster.controller.lifecycle.tasks._LOOK_AGAIN", 0.01)
    controllers.moment = parse_rfc3339(STARTED) + timedelta(hours=1)
    job = await running(api, controllers)
    start(api, job)
    await api.until_seen(*OF_EVENTS, 2)
    refuse(api, job)
    await controllers.until_reason(KEY, "FailedCreate")


async def test_without_an_event_the_search_slows_down(api, controllers):
    start(api, await running(api, controllers))
    await api.until_seen(*OF_EVENTS)
    await controllers.stop()
    tasks, waits = TaskReconciler(controllers.context), []
    for _ in range(5):
        controllers.moment = parse_rfc3339(STARTED) + timedelta(seconds=sum(waits))
        waits.append(await tasks.reconcile(KEY))
    assert waits == [3, 3, 6, 12, 24]


@pytest.mark.parametrize("code", [403, 500])
async def test_events_that_cannot_be_read_hold_up_no_task(api, controllers, code):
    api.fail_next(*OF_EVENTS, 1, status=code)
    job = await running(api, controllers)
    start(api, job)
    await api.until_seen(*OF_EVENTS)
    complete(api, job)
    await controllers.until_status(KEY, "Succeeded")
    assert controllers.errors() == 0


def deleted_pods(job_of, count=1, **more):
    """Return pods that were deleted, each of a Job of its own."""
    cached = Store()
    pods = TaskPods(cached)
    for number in range(count):
        fault = TaskFault("PodFailed", f"exit code {number}")
        metadata = Metadata(name=f"job-{number}", namespace="prod", uid=f"uid {number}")
        if (job := job_of(metadata)) is not None:
            cached.put(metadata.key, job)
        pod = TaskPod("prod", metadata.name, f"uid {number}", STARTED, fault, **more)
        pods.put("prod/a", pod)
        pods.remove("prod/a")
    assert len(pods) == 0
    assert all(pod.is_ending for pod in pods._gone.values())
    return [*pods._gone]


def test_the_last_deleted_pods_of_jobs_are_remembered_within_bounds():
    task_pods = deleted_pods(TaskJob, 1500)
    assert (len(task_pods), task_pods[-1]) == (500, ("prod", "uid 1499"))


@pytest.mark.parametrize(
    "job_of",
    [
        lambda _: None,
        lambda _: TaskJob(),
        lambda metadata: TaskJob(replace(metadata, uid="of a later Job of this name")),
    ],
)
def test_a_deleted_pod_of_a_foreign_job_is_not_remembered(job_of):
    assert deleted_pods(job_of) == []


def test_a_deleted_pod_that_succeeded_is_not_remembered():
    assert deleted_pods(TaskJob, phase="Succeeded") == []
