"""Member clusters that are away for a while, that are full or that lack something."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from harbourmaster.api.resources import (
    CLUSTERS,
    CONFIG_MAPS,
    DEFINITIONS,
    DEPLOYMENTS,
    NAMESPACES,
    PODS,
    Resource,
)
from harbourmaster.gates.gate import GATE
from harbourmaster.gates.waits import WAIT_FOR_KEY
from harbourmaster.placement.model import condition
from helpers.flow.manifests import pod
from helpers.placement_flow import (
    Member,
    config_map,
    deployment,
    flow_in,
    is_true,
    ready,
    reason_of,
)
from helpers.processes import client_of
from helpers.schemas import open_definition

MOVE = ("--placement-on-unreachable=Move", "--placement-offline-after-seconds=60")


@pytest.fixture
async def flow(request, control_plane):
    async with flow_in(control_plane, request.node.name) as flow, flow.watching():
        yield flow


def boats():
    """A kind that no API server serves yet."""
    return Resource(f"a{uuid.uuid4().hex[:8]}.example.com", "v1", "boats", "Boat")


def boat(kind, namespace):
    metadata = {"name": "first", "namespace": namespace}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("flags", "seconds"),
    [((), 1), ((), 30), ((), 600), (MOVE, 1), (MOVE, 30)],
    ids=lambda value: value if isinstance(value, int) else "Move" if value else "Stay",
)
async def test_a_member_that_is_away_for_a_while_keeps_everything(
    flow, planes, members, throwaway_control_plane, flags, seconds
):
    _, two = members
    plane = await asyncio.to_thread(throwaway_control_plane, optional=())
    name = f"kept-{uuid.uuid4().hex[:8]}"
    async with client_of(plane.kubeconfig) as client, flow.placing(*flags):
        lost = Member(client, "default")
        await flow.cluster("lost", plane)
        await flow.until_online("lost")
        await flow.application(config_map(name, "default"))
        await flow.until_running("lost")
        before = await lost.get(CONFIG_MAPS, name)
        placed = (await flow.fetch())["status"]
        await flow.cluster("two", planes[1])
        await flow.until_online("two")
        await asyncio.to_thread(plane.kill, "kube-apiserver")
        # For so long it is away, whatever is seen of that.
        await asyncio.sleep(seconds)
        await asyncio.to_thread(plane.restart, "kube-apiserver")
        await flow.until_online("lost")
        await flow.until(lambda status: is_true(status, "Ready"))
        status = (await flow.fetch())["status"]
        assert (status["scheduledTo"], status["scheduledTime"]) == (
            placed["scheduledTo"],
            placed["scheduledTime"],
        )
        assert (await lost.get(CONFIG_MAPS, name))["metadata"]["uid"] == before["metadata"]["uid"]
        assert await two.get(CONFIG_MAPS, name, "default") is None
        assert "Rescheduled" not in await flow.reasons()


async def test_a_full_member_is_left_for_the_next_and_the_last_is_kept(flow, planes, members):
    first, two = members
    async with flow.placing("--placement-failed-after-seconds=3"):
        await flow.cluster("one", planes[0])
        await flow.until_online("one")
        await flow.application(deployment("web", first.namespace), migrationOrder="CreateFirst")
        await flow.until_running("one")
        await flow.until(lambda status: reason_of(status, "Ready") == "ObjectsNotReady")
        await flow.cluster("two", planes[1])
        status = await flow.until_running("two")
        assert [cluster.name for cluster in status.failed_clusters] == ["one"]
        assert "not ready after 3 seconds" in status.failed_clusters[0].reason
        assert await first.names(DEPLOYMENTS) == set()
        assert await two.names(DEPLOYMENTS) == {"web"}
        # Two is full as well: nothing is left to try.
        await asyncio.sleep(8)
        status = (await flow.fetch())["status"]
        assert status["scheduledTo"]["name"] == "two"
        assert status["awaitsReady"]
        await ready(two, "web")
        status = await flow.until(lambda status: is_true(status, "Ready"))
        assert not status.awaits_ready
        told = await flow.reasons()
        assert {"Scheduled", "Rescheduled", "MovingAway", "Migrating"} <= told
        # A bad change of what ran there moves nothing.
        await flow.update(deployment("web", first.namespace, replicas=2), approve=False)
        await flow.until(lambda status: reason_of(status, "Ready") == "ObjectsNotReady")
        await asyncio.sleep(8)
        assert (await flow.fetch())["status"]["scheduledTo"]["name"] == "two"
        assert await first.names(DEPLOYMENTS) == set()


async def test_a_pod_at_a_gate_moves_its_application_nowhere(flow, planes, members):
    first, two = members
    async with flow.placing("--placement-failed-after-seconds=3"):
        for name, plane in zip(("one", "two"), planes, strict=True):
            await flow.cluster(name, plane, unschedulable=name == "two")
        await flow.until_online("one", "two")
        waits = {WAIT_FOR_KEY: "job/migrate"}
        gates = [{"name": GATE}]
        gated = pod("web-1", labels={"app": "web"}, annotations=waits, schedulingGates=gates)
        await first.client.create(PODS, gated, first.namespace)
        await flow.application(deployment("web", first.namespace))
        status = await flow.until(lambda status: reason_of(status, "Ready") == "WaitingAtGate")
        message = condition(status.conditions, "Ready").message
        text = f"pod web-1 is held at the scheduling gate {GATE}: waits for job/migrate"
        assert message.startswith(text)
        await Member(flow.client, flow.namespace).edit(
            CLUSTERS, "two", {"spec": {"unschedulable": False}}
        )
        await asyncio.sleep(5)
        assert await two.names(DEPLOYMENTS) == set()
        # Behind the gate, it fails like any other application.
        await first.client.delete(PODS, "web-1", first.namespace)
        status = {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1}
        await first.edit(DEPLOYMENTS, "web", {"status": status}, "status")
        await flow.until_running("two")


async def test_a_missing_namespace_leads_to_the_next_member(flow, planes, members):
    _, two = members
    name = f"only-{uuid.uuid4().hex[:8]}"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    async with flow.placing():
        await flow.cluster("one", planes[0])
        await flow.until_online("one")
        await flow.application(config_map("first", name))
        await flow.until_fault("NotFound")
        await two.client.create(NAMESPACES, body)
        await flow.cluster("two", planes[1])
        status = await flow.until_running("two")
        (failed,) = status.failed_clusters
        assert failed.name == "one"
        assert f'namespaces "{name}" not found' in failed.reason
        assert await two.get(CONFIG_MAPS, "first", name)


async def test_kinds_decide_without_a_constraint_and_end_a_failure(flow, planes, members):
    first, two = members
    kind = boats()
    async with flow.placing():
        for name, plane in zip(("one", "two"), planes, strict=True):
            await flow.cluster(name, plane)
        await flow.until_online("one", "two")
        await flow.application(boat(kind, first.namespace), backoff={"limit": 0})
        status = await flow.until(lambda status: status.phase == "Failed")
        assert reason_of(status, "Scheduled") == "NoSuitableTarget"
        await two.client.create(DEFINITIONS, open_definition(kind))
        await flow.until_running("two")
        assert await two.names(kind) == {"first"}
        served = f"{kind.api_version}/{kind.kind}"
        for name in ("one", "two"):
            kinds = (await flow.fetch(name, CLUSTERS))["status"]["servedKinds"]
            assert (served in kinds) is (name == "two")
        await flow.application(boat(kind, first.namespace) | {"spec": {}}, name="other")
        await flow.until(lambda status: status.scheduled_to is not None, "other")
        assert (await flow.fetch("other"))["status"]["scheduledTo"]["name"] == "two"
