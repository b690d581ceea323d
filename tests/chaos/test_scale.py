"""10,000 namespaces and 1,000 policies: how long until they are known, and what they cost."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime

import pytest

from harbourmaster.api.resources import CLUSTER_POLICIES, NAMESPACES, POLICIES
from harbourmaster.playground.installation import Installation
from helpers.load.gates import AT_ONCE, resident_mb
from helpers.objects import cluster_policy, policy, required
from helpers.processes import client_of

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(300)]

SYNC_SECONDS = 5
MEMORY_MB = 120


def namespaces():
    for index in range(10_000):
        labels = {"example.com/team": f"team-{index % 100}", "example.com/tier": "gold"}
        yield NAMESPACES, {"metadata": {"name": f"ns-{index}", "labels": labels}}


def policies():
    for index in range(500):
        chosen = {"pods": {"app": f"app-{index}"}, "affinity": required({"pool": f"p-{index}"})}
        yield CLUSTER_POLICIES, cluster_policy(f"policy-{index}", **chosen)
        yield POLICIES, policy(f"policy-{index}", f"ns-{index}", **chosen)


async def create_all(kubeconfig, objects):
    """Create every ``(resource, object)``, so many at a time."""
    turn = asyncio.Semaphore(AT_ONCE)

    async def create(client, resource, document):
        async with turn:
            namespace = document["metadata"].get("namespace")
            await client.create(resource, document, namespace)

    async with client_of(kubeconfig) as client, asyncio.TaskGroup() as group:
        for resource, document in objects:
            group.create_task(create(client, resource, document))


async def test_ten_thousand_namespaces_and_a_thousand_policies(throwaway_control_plane):
    plane = await asyncio.to_thread(throwaway_control_plane, optional=())
    installation = Installation(plane)
    await asyncio.to_thread(installation.install)
    for objects in (namespaces(), policies()):
        await create_all(plane.kubeconfig, objects)
    try:
        await asyncio.to_thread(installation.start)
        events = {}
        for line in installation.log("webhook").read_text().splitlines():
            obj = json.loads(line)
            events.setdefault(obj["event"], obj)
        serving = events["serving"]
        assert serving["cluster_policies"] == serving["namespaced_policies"] == 500
        assert serving["namespaces"] > 10_000
        started, ready = (
            datetime.fromisoformat(events[name]["timestamp"]) for name in ("started", "serving")
        )
        seconds = (ready - started).total_seconds()
        memory = resident_mb(installation.pid("webhook"))
        print(f"known after {seconds:.2f} s, {memory:.0f} MB")  # noqa: T201 - a figure to note
        assert seconds <= SYNC_SECONDS
        assert memory <= MEMORY_MB
    finally:
        await asyncio.to_thread(installation.stop)
