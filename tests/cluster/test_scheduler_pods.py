"""Pods that wait in a scheduler on the real API server, and the nodes on which they failed.

Their scheduler does not run here: what it would say of a pod, and the node that it would give it,
the tests write. Pods name it by their template.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from harbourmaster.api.metadata import OwnerReference
from harbourmaster.api.patches import JsonPatch
from harbourmaster.api.resources import (
    DEPLOYMENTS,
    EVENTS,
    PODS,
    TASK_DEFINITIONS,
    WORKLOAD_VERSIONS,
)
from harbourmaster.api.times import parse, stamp
from harbourmaster.cli.main import main
from harbourmaster.controller.lifecycle import watches
from harbourmaster.lifecycle.scheduling import Candidate, permission
from helpers.cluster import (
    delete_namespace,
    fresh_namespace,
)
from helpers.controller import connected
from helpers.flow.manifests import container_task
from helpers.gated import CHECKED, MINE, REMOVED
from helpers.gated_namespace import GatedNamespace, annotations
from helpers.lifecycle import running

pytestmark = [pytest.mark.gate, pytest.mark.cluster, pytest.mark.slow]

CHECKS = "gates.harbourmaster.dev/checks"
CLEAR = "gates.harbourmaster.dev/clear-failed-nodes"
VERSION = "shop-waiter-1.0"
RECORDING = (*MINE, watches.FAILED_NODES)
WHOLE = (
    *RECORDING,
    *(watches.APP_VERSIONS, watches.WORKLOAD_VERSIONS, watches.TASKS, watches.TASK_DEFINITIONS),
)


@pytest.fixture(scope="module")
def plane(control_plane):
    """The shared control plane with nodes."""
    control_plane.add_nodes(2)
    return control_plane


@pytest.fixture
async def client(plane):
    async with connected(plane.kubeconfig) as found:
        yield found


class SchedulerNamespace(GatedNamespace):
    """A namespace whose pods wait in a scheduler."""

    async def deploy(self, name="waiter", given=None, **more):
        more = {"gates": (), "schedulerName": "keptn-scheduler", **more}
        return await super().deploy(name, given, **more)

    def pod(self, version=None):
        """The pods of a version as the watch of the test has them."""
        return [one for one in self._free(version) if not one["metadata"].get("deletionTimestamp")]

    async def until_pods(self, find, patience=60):
        async with asyncio.timeout(patience):
            while not (found := find()):
                self._moved.clear()
                await self._moved.wait()
        return found

    async def until_told(self, value):
        """Wait until all pods were told this; returns them."""

        def find():
            pods = self.pod()
            told = {one["metadata"].get("annotations", {}).get(CHECKS) for one in pods}
            return told == {value} and pods

        return await self.until_pods(find)

    async def say(self, pod, message):
        """Have the scheduler say this of a pod."""
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": f"0/2 nodes are available: 2 {message}.",
        }
        status = {"status": {"conditions": [condition]}}
        await self.patch(PODS, pod["metadata"]["name"], status, subresource="status")

    async def bind(self, pod, node):
        """Have the scheduler give a pod a node."""
        name = pod["metadata"]["name"]
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": self.namespace},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await self.client.request(
            "POST",
            f"{PODS.path(self.namespace, name)}/binding",
            body=msgspec.json.encode(body),
            content_type="application/json",
        )

    async def refused(self, world, **options):
        """A pod that was refused, as it would be now."""
        await self.deploy(**options)
        await self.until_version(world, VERSION)
        (pod,) = await self.until_pods(self.pod)
        await self.say(pod, self.asked(world, pod).refusal)
        return pod

    def asked(self, world, pod):
        """What a scheduler is told of a pod now."""
        metadata = pod["metadata"]
        candidate = Candidate(
            namespace=self.namespace,
            annotations=metadata["annotations"],
            owner_references=msgspec.convert(
                metadata["ownerReferences"], tuple[OwnerReference, ...]
            ),
        )
        settings = world.context.scheduler
        return permission(
            candidate,
            world.caches.workload_versions.store.get,
            deadline=settings.pre_check_deadline_seconds,
            now=datetime.now(UTC),
        )

    def nodes(self, world, name=VERSION):
        """The failed nodes of a version in the caches, with what failed."""
        found = world.caches.workload_versions.store.get(self.key(name))
        return found and {each.name: each for each in found.status.failed_nodes}

    def mark(self, world, name=VERSION):
        """Until when failures of a version do not count, as it says in the caches."""
        return world.caches.workload_versions.store.get(self.key(name)).metadata.annotations.get(
            CLEAR
        )

    def begun(self, **status):
        return {"status": "Progressing", "startTime": stamp(datetime.now(UTC)), **status}


@pytest.fixture
async def place(request, client, kubectl):
    name = fresh_namespace(kubectl, request.node.name)
    async with SchedulerNamespace(client, name) as found:
        yield found
    delete_namespace(kubectl, name)


async def test_a_pod_becomes_a_workload_and_is_told_once_that_its_checks_passed(place, client):
    async with running(client, *MINE, scheduler={}) as world:
        pod = await place.refused(world)
        assert CHECKS not in pod["metadata"]["annotations"]
        await place.status(WORKLOAD_VERSIONS, VERSION, **place.begun(**CHECKED))
        (pod,) = await place.until_told("passed")
        before = pod["metadata"]["resourceVersion"]
        # Nothing else is written, whatever becomes of the version and whoever leads.
        status = {**CHECKED, "deploymentStatus": "Succeeded", "status": "Succeeded"}
        await place.status(WORKLOAD_VERSIONS, VERSION, **place.begun(**status))
    async with running(client, *MINE, scheduler={}) as world:
        await place.deploy("passer", annotations("passer", app="passer"))
        await place.until_version(world, "passer-passer-1.0")
        stored = await place.get(PODS, pod["metadata"]["name"])
        assert stored["metadata"]["resourceVersion"] == before
        assert REMOVED not in stored["metadata"]["annotations"]


async def test_the_commands_list_and_release_such_a_pod(place, client, plane, capsys):
    connection = f"--kubeconfig={plane.kubeconfig}"
    await place.deploy()
    (pod,) = await place.until_pods(place.pod)
    name = pod["metadata"]["name"]

    def run(*arguments):
        return main(["gate", *arguments, connection])

    assert await asyncio.to_thread(run, "list", "-n", place.namespace) == 0
    assert f"{place.namespace}/{name}" in capsys.readouterr().out
    release = ("release", place.key(name), "--reason", "incident 4711")
    assert await asyncio.to_thread(run, *release) == 0
    stored = await place.get(PODS, name)
    assert stored["metadata"]["annotations"]["gates.harbourmaster.dev/released"] == "by-hand"
    events = await place.client.list(EVENTS, place.namespace)
    assert "GateReleased" in {msgspec.json.decode(each)["reason"] for each in events.items}
    async with running(client, *MINE, scheduler={}) as world:
        assert not world.caches.pods.store.get(place.key(name)).is_ours


async def test_the_node_of_a_failed_check_is_recorded_and_kept_for_the_next_version(place, client):
    definition = container_task("migrate", "fail")
    definition["metadata"]["namespace"] = place.namespace
    await client.create(TASK_DEFINITIONS, definition, place.namespace)
    given = annotations(pre_deployment_tasks="migrate", app=None)
    scheduler = {"keep_failed_nodes": True}
    async with running(client, *WHOLE, scheduler=scheduler) as world:
        await place.deploy(given=given)
        name = "waiter-waiter-1.0"
        nodes = await world.until(lambda: place.nodes(world, name))
        ((node, found),) = nodes.items()
        page = await client.list(PODS, place.namespace, label_selector="job-name")
        (job_pod,) = [msgspec.json.decode(each) for each in page.items]
        assert node == job_pod["spec"]["nodeName"]
        assert found.reason == "task migrate failed"
        rest = parse(found.expires) - datetime.now(UTC)
        assert timedelta(minutes=25) < rest <= timedelta(minutes=30)
        # The next version begins with it.
        await place.template_is(
            "waiter", annotations(version="2.0", app=None, pre_deployment_tasks="")
        )
        assert await world.until(lambda: place.nodes(world, "waiter-waiter-2.0")) == nodes


async def test_the_node_of_a_pod_that_does_not_start_is_recorded_cleared_and_expires(
    place, client, plane, capsys
):
    scheduler = {"failed_node_seconds": 600.0}
    labels = {"kwok-outcome": "never-ready"}
    async with running(client, *RECORDING, scheduler=scheduler) as world:
        await place.deploy()
        await place.patch(
            DEPLOYMENTS, "waiter", {"spec": {"template": {"metadata": {"labels": labels}}}}
        )
        await place.until_version(world, VERSION)
        await place.status(WORKLOAD_VERSIONS, VERSION, **place.begun(**CHECKED))

        def labelled():
            return [
                one for one in place.pod() if one["metadata"]["labels"].items() >= labels.items()
            ]

        (pod,) = await place.until_pods(labelled)
        node = min(plane_nodes(plane))
        await place.bind(pod, node)
        running_pod = await place.until_pods(
            lambda: [one for one in labelled() if one["status"]["phase"] == "Running"]
        )
        assert place.nodes(world) == {}
        await fail(place, running_pod[0], "CrashLoopBackOff")
        nodes = await world.until(lambda: place.nodes(world))
        assert {name: each.reason for name, each in nodes.items()} == {node: "pod CrashLoopBackOff"}
        arguments = ("gate", "clear-nodes", place.key(VERSION), f"--kubeconfig={plane.kubeconfig}")
        assert await asyncio.to_thread(main, arguments) == 0
        out = capsys.readouterr().out
        assert f"{place.key(VERSION)}: the controller will clear the failed nodes {node}\n" in out
        await world.until(lambda: place.nodes(world) == {})
        # It says that it was done once it was.
        await world.until(lambda: place.mark(world) not in (None, "wanted"))
        assert parse(place.mark(world)) <= datetime.now(UTC)
        # One that expires soon goes by itself.
        soon = {"name": "n9", "expires": stamp(datetime.now(UTC) + timedelta(seconds=3))}
        operation = {"op": "add", "path": "/status/failedNodes", "value": [soon]}
        patch = JsonPatch([operation])
        await client.patch(WORKLOAD_VERSIONS, VERSION, patch, place.namespace, subresource="status")
        await world.until(lambda: list(place.nodes(world)) == ["n9"])
        await world.until(lambda: place.nodes(world) == {})
        assert datetime.now(UTC) >= parse(soon["expires"])


def plane_nodes(plane):
    found = plane.kubectl("get", "nodes", "--output=jsonpath={.items[*].metadata.name}")
    return found.stdout.split()


async def fail(place, pod, reason):
    """Have the containers of a pod wait for that reason, as a kubelet says it."""
    containers = [
        {
            "name": each["name"],
            "image": each["image"],
            "imageID": "",
            "ready": False,
            "restartCount": 1,
            "state": {"waiting": {"reason": reason}},
        }
        for each in pod["spec"]["containers"]
    ]
    status = {"status": {"containerStatuses": containers}}
    await place.patch(PODS, pod["metadata"]["name"], status, subresource="status")
