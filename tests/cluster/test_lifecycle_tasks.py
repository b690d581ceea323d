"""KeptnTasks on a real API server with the real Job controller; kwok ends the pods by their labels.

The reconcilers run in this process, so that a test sees all they do.
"""

from __future__ import annotations

import asyncio
import json
import time

import msgspec
import pytest

from harbourmaster.api.resources import (
    JOBS,
    PODS,
    TASK_DEFINITIONS,
    TASKS,
)
from helpers.cluster import (
    delete_namespace,
    fresh_namespace,
)
from helpers.controller import connected
from helpers.patience import COLLECTED, PATIENCE, WAIT
from helpers.task_controllers import TaskControllers
from helpers.task_objects import definition, task

pytestmark = [pytest.mark.gate, pytest.mark.cluster, pytest.mark.slow]

BUSYBOX = {"name": "testy-test", "image": "busybox:1.36.0", "command": ["sh", "-c", "sleep 30"]}
CODE = {"inline": {"code": 'console.log("hello")'}}
EXCEEDED = ("BackoffLimitExceeded", "Job has reached the specified backoff limit")


@pytest.fixture(scope="module")
def plane(control_plane):
    """The shared control plane with a node at least."""
    control_plane.add_nodes(1)
    return control_plane


@pytest.fixture
async def client(plane):
    async with connected(plane.kubeconfig) as found:
        yield found


class Here:
    """A namespace with its tasks."""

    def __init__(self, controllers, client, namespace):
        self.controllers = controllers
        self.client = client
        self.namespace = namespace

    async def define(self, name="hello", namespace=None, **spec):
        obj = definition(name, namespace or self.namespace, **spec)
        await self._create(TASK_DEFINITIONS, obj)

    async def run(self, name="pre-hello-12345", **spec):
        await self._create(TASKS, task(name, self.namespace, **spec))

    async def _create(self, resource, obj):
        del obj["metadata"]["uid"], obj["status"]
        await self.client.create(resource, obj, obj["metadata"]["namespace"])

    async def until(self, status, name="pre-hello-12345", patience=PATIENCE):
        async with asyncio.timeout(patience):
            return await self.controllers.until_status(f"{self.namespace}/{name}", status)

    async def until_reason(self, reason, name="pre-hello-12345", patience=PATIENCE):
        async with asyncio.timeout(patience):
            return await self.controllers.until_reason(f"{self.namespace}/{name}", reason)

    async def until_so(self, condition, patience=PATIENCE):
        async with asyncio.timeout(patience):
            return await self.controllers.until(condition)

    async def until_told(self, *reasons):
        """Wait until just this was told of this namespace; others may still be ending."""
        async with asyncio.timeout(PATIENCE):
            await self.controllers.until_told(*reasons, namespace=self.namespace)

    def job(self, name="pre-hello-12345"):
        """A task's Job as the mirror has it."""
        found = self.controllers.caches.tasks.store.get(f"{self.namespace}/{name}")
        return self.controllers.caches.jobs.store.get(f"{self.namespace}/{found.status.job_name}")

    async def get(self, resource, name, namespace=None):
        found = await self.client.get(resource, name, namespace or self.namespace)
        return msgspec.json.decode(found)

    async def all(self, resource):
        page = await self.client.list(resource, self.namespace)
        return [msgspec.json.decode(each) for each in page.items]


@pytest.fixture
async def here(request, plane, client):
    """A fresh namespace, with both reconcilers at work."""
    labels = getattr(request, "param", None)
    namespace = fresh_namespace(plane.kubectl, request.node.name, labels)
    async with TaskControllers(client) as controllers:
        yield Here(controllers, client, namespace)
    delete_namespace(plane.kubectl, namespace)


async def test_simple_task_by_hand_runs_to_its_end_and_its_job_goes(here):
    await here.define(deno=CODE, ttlSecondsAfterFinished=1)
    await here.run()
    status = await here.until("Succeeded")
    assert status.start_time
    assert status.end_time
    # The Job's own controller takes it away; nothing runs again.
    await here.until_so(lambda: here.job() is None, COLLECTED)
    stored = await here.get(TASKS, "pre-hello-12345")
    assert stored["status"]["status"] == "Succeeded"
    assert await here.all(JOBS) == []


async def test_a_finished_job_carries_the_definitions_time_to_live(here):
    await here.define(container=BUSYBOX, ttlSecondsAfterFinished=100)
    await here.run()
    await here.until("Succeeded")
    await here.until_so(lambda: here.job().ttl_seconds_after_finished == 100)
    (stored,) = await here.all(JOBS)
    # The condition comes before the count.
    assert "SuccessCriteriaMet" in {each["type"] for each in stored["status"]["conditions"]}


@pytest.mark.full
async def test_the_result_comes_with_the_jobs_end(here):
    await here.define(deno=CODE)
    begun = time.monotonic()
    await here.run()
    await here.until("Progressing")
    started = time.monotonic() - begun
    job = await here.until_so(lambda: here.job() and here.job().conditions and here.job())
    ended = time.monotonic()
    await here.until("Succeeded")
    recorded = time.monotonic() - ended
    print(f"job after {started:.3f} s, result {recorded:.3f} s after {job.name}")  # noqa: T201
    assert started < 2
    assert recorded < 1


async def test_c60_retries_are_counted_by_the_job(here):
    await here.define(deno=CODE)
    await here.run(labels={"kwok-outcome": "fail"}, retries=1)
    status = await here.until("Failed")
    assert (status.reason, status.message) == EXCEEDED
    (job,) = await here.all(JOBS)
    assert job["spec"]["backoffLimit"] == 1
    assert len(await here.all(PODS)) == 2


async def test_a_slow_task_takes_its_time(here):
    await here.define(deno=CODE)
    begun = time.monotonic()
    await here.run(labels={"kwok-outcome": "slow"})
    await here.until("Succeeded")
    assert time.monotonic() - begun > 5


async def test_c69_a_long_name_is_no_hindrance(here):
    name = f"pre-{'long-' * 39}12345"
    await here.define(deno=CODE)
    await here.run(name)
    status = await here.until("Succeeded", name)
    assert len(status.job_name) == 63


async def test_a_config_map_goes_with_its_definition(here):
    await here.define(deno=CODE)
    maps = here.controllers.caches.config_maps.store
    key = f"{here.namespace}/keptnfn-hello"
    await here.until_so(lambda: key in maps)
    await here.client.delete(TASK_DEFINITIONS, "hello", here.namespace)
    await here.until_so(lambda: key not in maps, COLLECTED)


@pytest.mark.parametrize(
    "here", [{"pod-security.kubernetes.io/enforce": "restricted"}], indirect=True
)
@pytest.mark.parametrize("runtime", ["deno", "python"])
async def test_s29_functions_run_where_pods_are_restricted(here, runtime):
    await here.define(**{runtime: CODE})
    await here.run()
    await here.until("Succeeded")
    (pod,) = await here.all(PODS)
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert "limits" in pod["spec"]["containers"][0]["resources"]
    (owner,) = pod["metadata"]["ownerReferences"]
    assert owner["kind"] == "Job"


async def test_a_quota_is_told_and_waited_for(here, plane):
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "no-jobs"},
        "spec": {"hard": {"count/jobs.batch": "0"}},
    }
    path = f"/api/v1/namespaces/{here.namespace}/resourcequotas"
    await here.client.request(
        "POST", path, body=json.dumps(quota).encode(), content_type="application/json"
    )
    # Until the quota is counted, the API server refuses nothing.
    space = f"--namespace={here.namespace}"
    plane.kubectl("wait", "--for=jsonpath={.status.hard}", WAIT, "resourcequota/no-jobs", space)
    await here.define(deno=CODE)
    await here.run()
    status = await here.until_reason("JobRefused")
    assert status.status == "Pending"
    assert "exceeded quota: no-jobs" in status.message
    await here.client.request("DELETE", f"{path}/no-jobs")
    await here.until("Succeeded")
    await here.until_told("CreateTaskFailed", "completed")


async def test_a_job_that_can_never_be_fails_its_task(here):
    await here.define(container={**BUSYBOX, "name": "No Name"})
    await here.run()
    status = await here.until("Failed")
    assert status.reason == "JobInvalid"
    assert "No Name" in status.message
    assert "\n" not in status.message
    assert here.controllers.errors() == 0


async def test_an_unready_pod_stays_unready(here, plane):
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "never", "labels": {"kwok-outcome": "never-ready"}},
        "spec": {"containers": [{"name": "a", "image": "registry.example.com/a:1"}]},
    }
    await here.client.create(PODS, pod, here.namespace)
    space = f"--namespace={here.namespace}"
    plane.kubectl("wait", "--for=jsonpath={.status.phase}=Running", WAIT, "pod/never", space)
    found = await here.get(PODS, "never")
    states = {each["type"]: each["status"] for each in found["status"]["conditions"]}
    assert states["Ready"] == states["ContainersReady"] == "False"
    assert states["PodScheduled"] == "True"
