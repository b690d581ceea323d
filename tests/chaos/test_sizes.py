"""Stored objects that are as large as the API server lets them be: memory, and what still works."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from harbourmaster.api.resources import (
    DEPLOYMENTS,
    POLICIES,
    REPLICA_SETS,
    STATEFUL_SETS,
    TASK_DEFINITIONS,
)
from harbourmaster.playground.installation import Installation
from helpers.command import harbourmaster
from helpers.objects import policy
from helpers.oracles import NODE_REQUIRED
from helpers.processes import client_of

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(600)]

TENANT = "tenant"
MIB = 1024 * 1024
LIMITS = {"webhook": 320 * MIB, "controller": 384 * MIB}
"""Bytes that the Deployments may take."""
NOTE = "x" * (255 * 1024)
OWNERS = (DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS)


def owner(resource, name):
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "main", "image": "registry.example.com/main:1"}]},
    }
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name, "namespace": TENANT, "annotations": {"note": NOTE}},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": name}}, "template": template},
    }


def definition(name):
    code = {"inline": {"code": f"// {name}\n" + "x" * 1_000_000}}
    return {
        "apiVersion": TASK_DEFINITIONS.api_version,
        "kind": TASK_DEFINITIONS.kind,
        "metadata": {"name": name, "namespace": TENANT},
        "spec": {"deno": code},
    }


def of_terms(name, count):
    affinity = {"nodeAffinity": {NODE_REQUIRED: {"nodeSelectorTerms": [{}] * count}}}
    return policy(name, TENANT, affinity=affinity)


async def create_all(client, resource, objects):
    turn = asyncio.Semaphore(4)

    async def create(obj):
        async with turn:
            await client.create(resource, obj, TENANT)

    await asyncio.gather(*map(create, objects))


def memory(pid, field):
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(rf"{field}:\s+(\d+)", status)[1]) * 1024


def resident_bytes(installation):
    """Bytes of both processes: now, and the most since they were started."""
    return {
        name: tuple(memory(installation.pid(name), field) for field in ("VmRSS", "VmHWM"))
        for name in ("webhook", "controller")
    }


@pytest.mark.claim("O11")
@pytest.mark.claim("O13")
async def test_what_was_stored_before_the_limits_fits_keeps_working_and_is_listed(
    throwaway_control_plane,
):
    plane = await asyncio.to_thread(throwaway_control_plane, optional=())
    installation = Installation(plane)
    kubectl = plane.kubectl
    try:
        await asyncio.to_thread(installation.start)
        empty = resident_bytes(installation)
        for name in ("controller", "webhook"):
            installation.end(name)
        # Nobody checks meanwhile.
        kubectl("delete", "validatingwebhookconfiguration/harbourmaster")
        kubectl("delete", "mutatingwebhookconfiguration/harbourmaster")
        kubectl("create", "namespace", TENANT)
        async with client_of(plane.kubeconfig) as client:
            await create_all(client, POLICIES, [of_terms(f"p-{n}", 43_000) for n in range(12)])
            await create_all(client, TASK_DEFINITIONS, [definition(f"d-{n}") for n in range(150)])
            for resource in OWNERS:
                await create_all(client, resource, [owner(resource, f"o-{n}") for n in range(320)])
        for name in ("controller", "webhook"):
            await asyncio.to_thread(installation.launch, name)
        await asyncio.to_thread(installation.await_ready)
        await asyncio.to_thread(installation.await_answer)
        full = resident_bytes(installation)
        print({name: [[n // MIB for n in each[name]] for each in (empty, full)] for name in full})  # noqa: T201
        for name, (_, most) in full.items():
            assert most < LIMITS[name], name
            assert most < empty[name][1] + 96 * MIB, name
        where = f"--namespace={TENANT}"
        kubectl("label", "podschedulingpolicy/p-0", "keptntaskdefinition/d-0", "team=a", where)
        kubectl("replace", "-f=-", stdin=json.dumps(of_terms("p-0", 42_000)))
        grown = kubectl("replace", "-f=-", stdin=json.dumps(of_terms("p-0", 42_500)), check=False)
        assert "spec: Too long" in grown.stderr
        for command in ("doctor", "migrate"):
            said = harbourmaster(command, "-o=json", kubeconfig=plane.kubeconfig).stdout
            assert f"KeptnTaskDefinition {TENANT}/d-0" in said
            assert "spec: too long: 10000" in said
            assert f"PodSchedulingPolicy {TENANT}/p-0" in said
    finally:
        await asyncio.to_thread(installation.stop)
