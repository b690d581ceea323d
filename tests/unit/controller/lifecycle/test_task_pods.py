"""What is wrong with the pods of tasks, in their status, on a fake API server."""

from __future__ import annotations

from datetime import timedelta

import pytest

from harbourmaster.api.resources import CORE_EVENTS, JOBS, PODS
from harbourmaster.api.times import parse
from harbourmaster.controller.lifecycle.task_jobs import TaskPods
from harbourmaster.controller.lifecycle.tasks import Tasks
from harbourmaster.lifecycle.jobs import NONCE
from harbourmaster.lifecycle.task_pods import TaskFault, TaskPod
from helpers.task_controllers import complete, jobs, settle
from helpers.task_objects import KEY, STATUS, give

STARTED = "2026-03-01T12:00:00Z"
OF_EVENTS = ("list", "/events")
LIMIT = ("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")


async def running(api, controllers):
    """The Job of a task that runs."""
    give(api)
    await controllers.until_status(KEY, "Progressing")
    (job,) = jobs(api)
    return job


def put_pod(api, job, *, uid=None, namespace="prod", deleted="", **state):
    """Let the Job's pod have a container in this state."""
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
                "creationTimestamp": STARTED,
                **({"deletionTimestamp": deleted, "finalizers": ["job"]} if deleted else {}),
                "ownerReferences": [{**owner, "uid": uid or metadata["uid"], "controller": True}],
            },
            "spec": {},
            "status": {"containerStatuses": [state]},
        },
    )


def waits(reason, message="said"):
    return {"waiting": {"reason": reason, "message": message}}


def failed(code, message=""):
    return {"terminated": {"exitCode": code, "reason": "Error", "message": message}}


async def test_a_waiting_pod_is_told_once_and_over_when_it_runs(api, controllers):
    job = await running(api, controllers)
    put_pod(api, job, state=waits("ErrImagePull"))
    found = await controllers.until_reason(KEY, "ImagePullBackOff")
    assert found.status == "Progressing"
    assert found.message.startswith("its pod waits: ErrImagePull: said: check the image")
    writes = len(api.seen("patch", STATUS))
    for reason in ("ImagePullBackOff", "ErrImagePull", "ImagePullBackOff"):
        put_pod(api, job, state=waits(reason, f"of {reason}"))
        await settle()
    assert len(api.seen("patch", STATUS)) == writes
    (told,) = controllers.signals.kept
    assert (told.reason, told.text) == ("TaskPodWaiting", found.message)
    put_pod(api, job, state={"running": {}})
    found = await controllers.until_reason(KEY, "")
    assert found.message == ""
    complete(api, job)
    await controllers.until_status(KEY, "Succeeded")
    assert controllers.signals.reasons == ["TaskPodWaiting", "completed"]


async def test_the_last_lines_of_the_last_attempt_end_the_task(api, controllers):
    job = await running(api, controllers)
    put_pod(api, job, state=failed(1, "the \x1b[31mfirst\x1b[0m attempt"))
    found = await controllers.until_reason(KEY, "PodFailed")
    assert found.message == "exit code 1: the \\x1b[31mfirst\\x1b[0m attempt"
    put_pod(api, job, state=failed(1, "the \x1b[31mlast\x1b[0m attempt"))
    await settle()
    api.remove(PODS, "pod", "prod")
    await controllers.until(lambda: not controllers.caches.task_pods.store)
    complete(api, job, *LIMIT)
    found = await controllers.until_status(KEY, "Failed")
    assert found.reason == "BackoffLimitExceeded"
    assert found.message == ("BackoffLimitExceeded: exit code 1: the \\x1b[31mlast\\x1b[0m attempt")
    assert controllers.signals.reasons == ["TaskPodFailed", "completed"]


async def test_a_time_out_says_what_the_pod_waited_for_until_it_was_deleted(api, controllers):
    job = await running(api, controllers)
    put_pod(api, job, state=waits("ErrImagePull"))
    await controllers.until_reason(KEY, "ImagePullBackOff")
    put_pod(api, job, state=failed(137), deleted=STARTED)
    await controllers.until(lambda: controllers.caches.pod_faults.get("prod/pod").is_ending)
    await settle()
    complete(api, job, "FailureTarget", "DeadlineExceeded", "late")
    found = await controllers.until_status(KEY, "Failed")
    assert found.message.startswith("DeadlineExceeded: its pod waits: ErrImagePull: said: ")
    assert controllers.signals.reasons == ["TaskPodWaiting", "completed"]


async def test_a_new_leader_knows_the_failure_from_the_status(api, controllers):
    job = await running(api, controllers)
    put_pod(api, job, state=failed(4))
    await controllers.until_reason(KEY, "PodFailed")
    await controllers.stop()
    api.remove(PODS, "pod", "prod")
    await controllers.until(lambda: not controllers.caches.task_pods.store)
    controllers.caches.pod_faults._gone.clear()
    complete(api, job, *LIMIT)
    controllers.start()
    found = await controllers.until_status(KEY, "Failed")
    assert found.message == "BackoffLimitExceeded: exit code 4"


@pytest.mark.parametrize("other", [{"uid": "of another Job"}, {"namespace": "other"}])
async def test_a_pod_of_another_job_or_namespace_says_nothing_about_a_task(api, controllers, other):
    job = await running(api, controllers)
    put_pod(api, job, **other, state=failed(1))
    await controllers.until(lambda: len(controllers.caches.task_pods.store) == 1)
    complete(api, job, *LIMIT)
    found = await controllers.until_status(KEY, "Failed")
    assert found.message == LIMIT[2]
    assert controllers.signals.reasons == ["completed"]


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


async def test_a_job_whose_pods_are_refused_says_what_its_events_say(api, controllers):
    job = await running(api, controllers)
    refuse(api, job, "an older one", "2026-03-01T11:59:59Z")
    refuse(api, job)
    refuse(api, {"metadata": {"uid": "of another Job"}}, at="2026-03-01T12:00:09Z")
    start(api, job)
    found = await controllers.until_reason(KEY, "FailedCreate")
    assert found.message.startswith("its Job has no pod: FailedCreate: exceeded quota: change ")
    assert controllers.signals.reasons == ["TaskPodWaiting"]
    # Nothing is read again until the end.
    start(api, job, ready=0)
    await settle()
    assert len(api.seen(*OF_EVENTS)) == 1
    refuse(api, job, "Error creating: Pod Security", at="2026-03-01T12:00:07Z")
    api.put(JOBS, {**job, "status": {"startTime": STARTED, "conditions": [deadline()]}})
    found = await controllers.until_status(KEY, "Failed")
    assert found.message.startswith(
        "DeadlineExceeded: its Job has no pod: FailedCreate: Pod Security: "
    )


def deadline():
    return {"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "late"}


async def test_a_refusal_that_is_over_is_no_longer_shown(api, controllers):
    job = await running(api, controllers)
    refuse(api, job)
    start(api, job)
    await controllers.until_reason(KEY, "FailedCreate")
    start(api, job, active=1)
    found = await controllers.until_reason(KEY, "")
    assert found.message == ""


async def test_an_event_that_comes_after_the_jobs_status_is_found(api, controllers, monkeypatch):
    monkeypatch.setattr("harbourmaster.controller.lifecycle.tasks._LOOK_AGAIN", 0.01)
    controllers.moment = parse(STARTED) + timedelta(seconds=5)
    job = await running(api, controllers)
    start(api, job)
    await api.until_seen(*OF_EVENTS, 2)
    refuse(api, job)
    await controllers.until_reason(KEY, "FailedCreate")


async def test_without_an_event_the_search_ends(api, controllers):
    controllers.moment = parse(STARTED) + timedelta(seconds=40)
    job = await running(api, controllers)
    start(api, job)
    await api.until_seen(*OF_EVENTS)
    assert await Tasks(controllers.context).reconcile(KEY) is None


async def test_a_job_with_pods_reads_no_events(api, controllers):
    job = await running(api, controllers)
    put_pod(api, job, state={"running": {}})
    await controllers.until(lambda: len(controllers.caches.task_pods.store) == 1)
    # As between the end of a pod and that of its Job.
    start(api, job)
    await settle()
    complete(api, job)
    await controllers.until_status(KEY, "Succeeded")
    assert api.seen(*OF_EVENTS) == []


@pytest.mark.parametrize("code", [403, 500])
async def test_events_that_cannot_be_read_hold_up_no_task(api, controllers, code):
    api.fail_next(*OF_EVENTS, 1, status=code)
    job = await running(api, controllers)
    start(api, job)
    await api.until_seen(*OF_EVENTS)
    complete(api, job)
    await controllers.until_status(KEY, "Succeeded")
    assert controllers.errors() == 0


def test_failures_of_deleted_pods_are_remembered_within_bounds():
    pods = TaskPods()
    for number in range(1500):
        fault = TaskFault("PodFailed", f"exit code {number}")
        pods.put("prod/a", TaskPod("prod", "job", f"uid {number}", STARTED, fault))
        pods.remove("prod/a")
    assert len(pods) == 0
    assert len(pods._gone) == 500
    assert [*pods._gone][-1] == ("prod", "uid 1499")
