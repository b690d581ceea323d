"""A controller that ends before or after any of its writes leaves a task that ends as ever."""

from __future__ import annotations

import asyncio

import pytest

from harbourmaster.api.resources import JOBS, TASK_DEFINITIONS, TASKS
from helpers.tasks import TaskControllers, complete, definition, jobs, settle, task, task_of

KEY = "prod/pre-hello-12345"
WRITES = {
    "the function": ("create", "/configmaps$", 1),
    "where the function lies": ("patch", "/keptntaskdefinitions/hello/status$", 1),
    "the job": ("create", "/jobs$", 1),
    "the name and the nonce of the job": ("patch", "/keptntasks/pre-hello-12345/status$", 1),
    "that the task runs": ("patch", "/keptntasks/pre-hello-12345/status$", 2),
    "the result": ("patch", "/keptntasks/pre-hello-12345/status$", 3),
    "the time to live": ("patch", "/jobs/", 1),
}


async def play(api, controllers, until=None):
    """Play the Job controller's part until the task is done, or ``until`` is."""
    ended = set()
    while not (until and until.done()):
        for job in jobs(api):
            name = job["metadata"]["name"]
            if name not in ended and controllers.caches.jobs.store.get(f"prod/{name}"):
                ended.add(name)
                complete(api, job)
        existing = jobs(api)
        if task_of(api)["status"].get("status") == "Succeeded" and all(
            "ttlSecondsAfterFinished" in job["spec"] for job in existing
        ):
            return
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("kind", ["reset", "torn"], ids=["before", "after"])
@pytest.mark.parametrize("write", WRITES)
async def test_a_crash_at_a_write_runs_nothing_twice(api, client, write, kind):
    verb, pattern, count = WRITES[write]
    api.put(TASK_DEFINITIONS, definition())
    api.put(TASKS, task())
    seen = asyncio.create_task(api.until_seen(verb, pattern, count))
    async with TaskControllers(client) as first:
        if count > 1:
            await first.until_status(KEY, "Progressing")
        api.fail_next(verb, pattern, 1, kind=kind)
        await play(api, first, until=seen)
        await seen
        # The answer never comes to anything.
        await first.stop()
    async with TaskControllers(client) as second:
        await play(api, second)
        await settle()
    (job,) = jobs(api)
    status = task_of(api)["status"]
    assert status["jobName"] == job["metadata"]["name"]
    assert status["status"] == "Succeeded"
    assert job["spec"]["ttlSecondsAfterFinished"] == 300
    made = [obj for obj in api.objects.history if obj.resource == JOBS and obj.before is None]
    assert len(made) == 1
