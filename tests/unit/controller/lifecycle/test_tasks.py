"""KeptnTasks and their Jobs, on a fake API server; its Jobs end as the tests say.

These tests prove keptn-spec 3.8.
"""

from __future__ import annotations

import json

import pytest

from harbourmaster.api.resources import JOBS, TASK_DEFINITIONS, TASKS
from harbourmaster.lifecycle.jobs import NONCE, job_name
from helpers.tasks import (
    KEY,
    STATUS,
    TaskControllers,
    bodies,
    complete,
    definition,
    give,
    jobs,
    read,
    settle,
    task,
    task_of,
)

MAKING_JOBS = ("create", "/jobs$")


async def running(api, controllers, **options):
    """Return the Job of a running task."""
    give(api, **options)
    await controllers.until_status(KEY, "Progressing")
    (job,) = jobs(api)
    return job


async def test_a_task_gets_a_job_and_its_result(api, controllers):
    job = await running(api, controllers)
    status = task_of(api)["status"]
    assert status.keys() == {"status", "jobName", "jobNonce", "startTime"}
    assert status["jobName"] == job["metadata"]["name"]
    assert status["jobNonce"] == job["metadata"]["labels"][NONCE]
    complete(api, job)
    await controllers.until_status(KEY, "Succeeded")
    status = task_of(api)["status"]
    assert status.keys() == {"status", "jobName", "jobNonce", "startTime", "endTime"}
    await api.until_seen("patch", "/jobs/")
    await settle()
    assert controllers.signals.reasons == ["completed"]
    assert len(api.seen(*MAKING_JOBS)) == 1
    assert len(api.seen("patch", STATUS)) == 3
    # The mirror knows the Job.
    assert api.seen("get", "/jobs/") == []


async def test_a_job_may_go_only_after_its_result_stands_in_the_task(api, controllers):
    job = await running(api, controllers, ttlSecondsAfterFinished=100)
    complete(api, job)
    await api.until_seen("patch", "/jobs/")
    order = [
        request.path
        for request in api.seen("patch")
        if "/jobs/" in request.path or STATUS in request.path
    ]
    assert order[-2].endswith("/status")
    await settle()
    assert api.get(JOBS, job["metadata"]["name"], "prod")["spec"]["ttlSecondsAfterFinished"] == 100


async def test_c58_a_finished_task_never_runs_again(api, controllers):
    job = await running(api, controllers)
    complete(api, job)
    await controllers.until_status(KEY, "Succeeded")
    await api.until_seen("patch", "/jobs/")
    await controllers.stop()
    api.remove(JOBS, job["metadata"]["name"], "prod")
    controllers.start()
    api.put(TASKS, {**task_of(api), "metadata": {**task_of(api)["metadata"], "labels": {"a": "b"}}})
    await settle()
    assert jobs(api) == []
    assert task_of(api)["status"]["status"] == "Succeeded"
    await controllers.until_told("completed")


async def test_c59_a_job_deleted_by_hand_is_replaced(api, controllers):
    job = await running(api, controllers)
    first = job["metadata"]["name"]
    api.remove(JOBS, first, "prod")
    await api.until_seen(*MAKING_JOBS, 2)
    await controllers.until(
        lambda: controllers.caches.tasks.store.get(KEY).status.job_name not in {"", first}
    )
    (second,) = jobs(api)
    assert task_of(api)["status"]["jobName"] == second["metadata"]["name"]
    # It was looked for before it was taken for gone.
    assert api.seen("get", f"/jobs/{first}$")
    complete(api, second)
    await controllers.until_status(KEY, "Succeeded")


async def test_a_job_that_the_watch_lost_is_not_made_twice(api, controllers):
    await running(api, controllers)
    job = controllers.caches.jobs.store
    (key,) = job
    job.remove(key)
    api.put(TASKS, {**task_of(api), "metadata": {**task_of(api)["metadata"], "labels": {"a": "b"}}})
    await api.until_seen("get", "/jobs/")
    await settle()
    assert len(api.seen(*MAKING_JOBS)) == 1


async def test_a_job_that_is_being_deleted_is_waited_for(api, controllers):
    job = await running(api, controllers)
    name = job["metadata"]["name"]
    api.put(JOBS, {**job, "metadata": {**job["metadata"], "finalizers": ["example.com/hold"]}})
    api.remove(JOBS, name, "prod")
    await settle()
    assert len(api.seen(*MAKING_JOBS)) == 1
    (held,) = jobs(api)
    api.put(JOBS, {**held, "metadata": {**held["metadata"], "finalizers": []}})
    await api.until_seen(*MAKING_JOBS, 2)


async def test_a_job_whose_creation_got_no_answer_is_found_by_its_name(api, controllers):
    api.put(TASK_DEFINITIONS, definition(container={"name": "a"}))
    await controllers.until(lambda: len(controllers.caches.task_definitions.store) == 1)
    api.silence()
    api.fail_next(*MAKING_JOBS, 1, kind="torn")
    controllers.caches.tasks.store.put(KEY, read(api.put(TASKS, task())))
    controllers.jobs["tasks"].enqueue([KEY])
    await api.until_seen(*MAKING_JOBS)
    api.release()
    await controllers.until_status(KEY, "Progressing")
    (job,) = jobs(api)
    assert task_of(api)["status"]["jobName"] == job["metadata"]["name"]
    assert len(api.seen(*MAKING_JOBS)) == 1


@pytest.mark.parametrize("name", [".", "..", "a/../../secrets/b", "A b"])
async def test_a_job_that_cannot_be_is_gone(api, controllers, name):
    give(api, task_spec={"status": {"status": "Progressing", "jobName": name}})
    await api.until_seen("patch", STATUS)
    await settle()
    assert not [request for request in api.requests if "secrets" in request.path]
    (job,) = jobs(api)
    assert task_of(api)["status"]["jobName"] == job["metadata"]["name"]
    assert controllers.errors() == 0


async def test_a_job_that_is_being_deleted_is_not_taken_for_one_just_made(api, client):
    give(api)
    async with TaskControllers(client) as first:
        await first.until_status(KEY, "Progressing")
    (job,) = jobs(api)
    api.put(JOBS, {**job, "metadata": {**job["metadata"], "finalizers": ["example.com/hold"]}})
    api.remove(JOBS, job["metadata"]["name"], "prod")
    api.put(TASKS, {**task_of(api), "status": {}})
    async with TaskControllers(client) as second:
        status = await second.until_status(KEY, "Progressing")
    assert status.job_name != job["metadata"]["name"]


async def forge_job(api, controllers, *, name="", version="lifecycle.keptn.sh/v1", **labels):
    """Create a Job that succeeds and poses as the Job of a task without one, and return its name.

    ``name`` is the one in the task's status, by default the name that its Job would get.
    """
    await controllers.until(lambda: controllers.caches.tasks.store.get(KEY))
    stored = task_of(api)
    owner = {"apiVersion": version, "kind": "KeptnTask", "name": stored["metadata"]["name"]}
    owner |= {"uid": stored["metadata"]["uid"], "controller": True}
    name = name or job_name(read(stored))
    metadata = {"name": name, "namespace": "prod", "ownerReferences": [owner], "labels": labels}
    complete(api, api.put(JOBS, {"metadata": metadata, "spec": {"forged": True}}))
    await controllers.until(lambda: controllers.caches.jobs.store.get(f"prod/{name}"))
    api.put(TASK_DEFINITIONS, definition())
    return name


@pytest.mark.claim("O21")
@pytest.mark.parametrize("labels", [{}, {NONCE: ""}, {NONCE: "0123456789abcdef"}])
async def test_a_job_that_was_made_before_under_the_tasks_name_is_no_result(
    api, controllers, labels
):
    api.put(TASKS, task())
    name = await forge_job(api, controllers, **labels)
    status = await controllers.until_status(KEY, "Progressing")
    assert status.job_name != name
    own = api.get(JOBS, status.job_name, "prod")
    assert own["metadata"]["labels"][NONCE] == status.job_nonce
    complete(api, own)
    assert (await controllers.until_status(KEY, "Succeeded")).job_name == status.job_name
    assert api.get(JOBS, name, "prod")["spec"] == {"forged": True}


@pytest.mark.claim("O21")
async def test_a_job_in_the_place_of_the_recorded_one_is_no_result(api, controllers):
    recorded = {"status": "Pending", "jobName": "recorded", "jobNonce": "recorded"}
    api.put(TASKS, task(status=recorded))
    name = await forge_job(api, controllers, name="recorded", **{NONCE: "another"})
    status = await controllers.until_status(KEY, "Progressing")
    assert status.job_name != name
    assert status.job_nonce != "recorded"


@pytest.mark.claim("O21")
async def test_an_owner_of_another_group_makes_no_job_that_of_a_task(api, controllers):
    api.put(TASKS, task(status={"status": "Pending", "jobName": "older"}))
    await forge_job(api, controllers, name="older", version="example.com/v1")
    assert (await controllers.until_status(KEY, "Progressing")).job_name != "older"


@pytest.mark.claim("O21")
@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1alpha3"])
async def test_a_job_that_the_status_named_before_there_were_nonces_stays(
    api, controllers, version
):
    """An older version of ours, or Keptn's operator, created the Job."""
    api.put(TASKS, task(status={"status": "Progressing", "jobName": "older"}))
    version = f"lifecycle.keptn.sh/{version}"
    await forge_job(api, controllers, name="older", version=version)
    assert (await controllers.until_status(KEY, "Succeeded")).job_name == "older"
    await settle()
    assert "jobNonce" not in task_of(api)["status"]
    assert api.seen(*MAKING_JOBS) == []


OTHER_TASK = {"kind": "KeptnTask", "name": "other", "uid": "uid-of-other", "controller": True}


@pytest.mark.parametrize("owners", [[], [OTHER_TASK]], ids=["nobody", "another-task"])
async def test_a_complete_job_of_somebody_else_that_the_status_names_is_no_result(
    api, client, owners
):
    give(api)
    async with TaskControllers(client) as first:
        name = (await first.until_status(KEY, "Progressing")).job_name
    api.remove(JOBS, name, "prod")
    metadata = {"name": name, "namespace": "prod", "ownerReferences": owners}
    complete(api, api.put(JOBS, {"metadata": metadata, "spec": {"mine": True}}))
    async with TaskControllers(client) as second:

        def status_of_new_job():
            status = second.caches.tasks.store.get(KEY).status
            is_other = status.job_name != name and status.status != "Pending"
            return status if is_other else None

        status = await second.until(status_of_new_job)
        assert (status.status, bool(status.job_name)) == ("Progressing", True)
        # The Job is made again under another name, and its result counts.
        complete(api, api.get(JOBS, status.job_name, "prod"))
        assert (await second.until_status(KEY, "Succeeded")).job_name == status.job_name
    assert api.get(JOBS, name, "prod")["spec"] == {"mine": True}


@pytest.mark.parametrize(
    ("spec", "of_task", "reason"),
    [
        ({"deno": {}}, {}, "NoFunction"),
        ({"deno": {"functionRef": {"name": "hello"}}}, {}, "CyclicFunctionRef"),
        ({"deno": {}, "python": {}}, {}, "InvalidDefinition"),
        ({}, {"timeout": "0five"}, "InvalidTimeout"),
    ],
)
async def test_what_can_never_run_fails_at_once_and_says_why(
    api, controllers, spec, of_task, reason
):
    give(api, task_spec=of_task, **spec)
    status = await controllers.until_status(KEY, "Failed")
    assert status.reason == reason
    assert "\n" not in status.message
    assert status.end_time
    await controllers.until_told("completed", "CreateTaskFailed")
    assert jobs(api) == []
    assert controllers.errors() == 0


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (403, 'jobs.batch is forbidden: User "u" cannot create resource "jobs"'),
        (403, "exceeded quota: q, requested: count/jobs.batch=1, used: 1, limited: 1"),
        (422, 'admission webhook "w" denied the request: no'),
        (422, "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"),
        (400, 'admission webhook "w" denied the request without explanation'),
        (500, 'failed calling webhook "w": connection refused'),
    ],
)
async def test_a_refusal_is_told_once_and_tried_again(api, controllers, code, text):
    api.fail_next(*MAKING_JOBS, 3, status=code, body=_refusal(code, f"{text}\nand more"))
    give(api)
    status = await controllers.until_reason(KEY, "JobRefused")
    assert status.status == "Pending"
    assert status.message == f"{text} and more"
    await controllers.until_status(KEY, "Progressing")
    await controllers.until_told("CreateTaskFailed")
    assert controllers.errors() == 3
    assert task_of(api)["status"].keys() == {"status", "jobName", "jobNonce", "startTime"}


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (422, 'Job.batch "x" is invalid: spec.template.spec.containers[0].image: Required value'),
        (400, "Job in version v1 cannot be handled as a Job: strict decoding error"),
        (413, "Request entity too large: limit is 3145728"),
    ],
)
async def test_a_job_that_is_wrong_fails_its_task(api, controllers, code, text):
    api.fail_next(*MAKING_JOBS, 1, status=code, body=_refusal(code, text))
    give(api)
    status = await controllers.until_status(KEY, "Failed")
    assert (status.reason, status.message) == ("JobInvalid", text)
    await controllers.until_told("completed", "CreateTaskFailed")
    assert len(api.seen(*MAKING_JOBS)) == 1


async def test_a_moments_trouble_is_not_told(api, controllers):
    api.fail_next(*MAKING_JOBS, 2, kind="reset")
    give(api)
    await controllers.until_status(KEY, "Progressing")
    assert controllers.signals.reasons == []


async def test_a_namespace_that_ends_is_no_news(api, controllers):
    text = "unable to create new content in namespace prod because it is being terminated"
    api.fail_next("create", "", None, status=403, body=_refusal(403, text))
    give(api)
    await api.until_seen("create", "/configmaps$", 2)
    api.put(TASK_DEFINITIONS, definition("other", container={"name": "a"}))
    api.put(TASKS, task("other", taskDefinition="other"))
    await api.until_seen(*MAKING_JOBS)
    await settle()
    assert controllers.signals.kept == []
    assert controllers.errors() == 0
    # The first task waits for its function; the other has recorded the name of its Job.
    assert [request.path.rpartition("/keptntasks/")[2] for request in api.seen("patch")] == [
        "other/status"
    ]


async def test_code_that_may_not_be_stored_is_told(api, controllers):
    api.fail_next("create", "/configmaps$", None, status=403, body=_refusal(403, "forbidden: no"))
    give(api)
    status = await controllers.until_reason(KEY, "JobRefused")
    assert status.message == "forbidden: no"
    assert jobs(api) == []
    api.heal()
    await controllers.until_status(KEY, "Progressing")


async def test_a_task_that_is_being_deleted_starts_nothing(api, controllers):
    api.put(TASK_DEFINITIONS, definition())
    ending = task()
    ending["metadata"] |= {"deletionTimestamp": "2026-03-01T00:00:00Z", "finalizers": ["a/b"]}
    api.put(TASKS, ending)
    api.put(TASKS, task("other"))
    await controllers.until_status("prod/other", "Progressing")
    assert len(jobs(api)) == 1


async def test_a_job_without_rights_to_change_it_stays(api, controllers):
    job = await running(api, controllers)
    api.fail_next("patch", "/jobs/", None, status=403)
    complete(api, job)
    await controllers.until_status(KEY, "Succeeded")
    await api.until_seen("patch", "/jobs/")
    await settle()
    assert controllers.errors() == 0


async def test_nothing_is_asked_while_a_task_runs(api, controllers):
    await running(api, controllers)
    await settle()
    before = len(api.requests)
    await settle()
    assert len(api.requests) == before


async def test_images_and_limits_are_the_settings(api, client):
    settings = {
        "deno_image": "registry.example.com/d:2",
        "runner_user": 65532,
        "runner_limits": {"memory": "1Gi"},
        "runner_requests": {},
    }
    async with TaskControllers(client, **settings) as controllers:
        job = await running(api, controllers)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.example.com/d:2"
    assert container["securityContext"]["runAsUser"] == 65532
    assert container["resources"] == {"limits": {"memory": "1Gi"}}


async def test_statuses_are_written_against_what_was_read(api, controllers):
    await running(api, controllers)
    patches = bodies(api.seen("patch", STATUS))
    assert patches
    for patch in patches:
        assert {operation["path"] for operation in patch} == {
            "/metadata/uid",
            "/metadata/resourceVersion",
            "/status",
        }


def _refusal(code, message):
    reasons = {400: "BadRequest", 403: "Forbidden", 413: "RequestEntityTooLarge", 422: "Invalid"}
    return json.dumps(
        {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "message": message,
            "reason": reasons.get(code, "InternalError"),
            "code": code,
        }
    ).encode()
