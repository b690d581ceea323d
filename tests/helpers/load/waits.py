"""Many pods that wait for objects, and the moments at which they are let go and bound."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import NamedTuple

from harbourmaster.api.patches import MergePatch
from harbourmaster.api.resources import DEPLOYMENTS, JOBS, PODS
from harbourmaster.serving.background import running
from helpers.load.gates import (
    CONTAINER,
    GATE,
    NAMESPACE,
    NOW,
    Seen,
    controlled,
    document,
    released_pods,
    replica_set,
    requests,
    resident_mb,
)

NODES = 10
OTHER = "load-2"
"""Half of the other pods wait there."""
MOST_EVENTS = 8
"""Requests per second; the controller sends five events."""
BOUND_BY = ("kube-scheduler", "kwok")
"""The components for ``measure_jobs``: without a controller of Jobs, these never end."""


class Jobs(NamedTuple):
    """Seconds from a Job's end to its pod's release and binding, while other pods wait."""

    released_p50: float
    released_p99: float
    bound_p50: float
    bound_p99: float
    memory_mb: float
    load: str


class Availability(NamedTuple):
    """Seconds until the last of the pods is let go, and the controller's requests for each.

    ``cpu`` are the seconds of a core that the controller took, on a busy machine, too.
    """

    seconds: float
    cpu: float
    pods: int
    requests_each: float
    memory_mb: float
    load: str


async def measure_jobs(plane, others, singles):
    """Let ``singles`` Jobs end one by one, while pods wait for ``others`` that never do."""
    await asyncio.to_thread(plane.create_nodes, NODES)
    async with controlled(plane) as (client, bulk, controller):
        names = [f"s{index}" for index in range(singles)]
        spaces = {NAMESPACE: list(names), OTHER: []}
        await bulk.home(OTHER)
        for index in range(others):
            spaces[(NAMESPACE, OTHER)[index % 2]].append(f"o{index}")
        for space, jobs in spaces.items():
            await bulk.create(JOBS, [job(job_name) for job_name in jobs], space)
        free = released_pods(client)
        bound = Seen(client, PODS, lambda obj: obj["spec"].get("nodeName"))
        async with running(free.run(), bound.run()):
            for space, jobs in spaces.items():
                pods = [waiting_pod(job_name, f"job/{job_name}") for job_name in jobs]
                await bulk.create(PODS, pods, space)
            await settled(controller)
            released, placed = [], []
            for count, name in enumerate(names, 1):
                done = await bulk.complete(name)
                await bound.until(count)
                released.append(free.at[name] - done)
                placed.append(bound.at[name] - done)
            assert len(free.at) == singles
            return Jobs(
                *percentiles(released), *percentiles(placed), resident_mb(controller.pid), load()
            )


async def measure_availability(plane, count):
    """Let so many pods wait for one Deployment, and then have it be available."""
    async with controlled(plane) as (client, bulk, controller):
        manifest = document(DEPLOYMENTS, "db", replica_set("db")["spec"])
        (stored,) = await bulk.create(DEPLOYMENTS, [manifest])
        free = released_pods(client)
        async with running(free.run()):
            pods = [waiting_pod(f"p{index}", "deployment/db") for index in range(count)]
            await bulk.create(PODS, pods)
            await settled(controller)
            before, spent = await requests(controller), cpu_seconds(controller.pid)
            assert free.at == {}
            await client.patch(
                DEPLOYMENTS,
                "db",
                MergePatch({"status": available(stored)}),
                NAMESPACE,
                subresource="status",
            )
            begun = time.monotonic()
            await free.until(count)
            seconds = max(free.at.values()) - begun
            cpu = cpu_seconds(controller.pid) - spent
            per_object = (await requests(controller) - before) / count
            return Availability(
                seconds, cpu, count, per_object, resident_mb(controller.pid), load()
            )


async def settled(controller):
    """Wait until the controller has looked at all: it makes few requests besides its events."""
    rate = MOST_EVENTS + 1.0
    while rate > MOST_EVENTS:
        before, begun = await requests(controller), time.monotonic()
        await asyncio.sleep(3)
        rate = (await requests(controller) - before) / (time.monotonic() - begun)


def waiting_pod(name, item):
    """A pod without an owner, as admission leaves it, that waits for one object."""
    tolerations = [{"operator": "Exists"}]
    spec = {
        "containers": [CONTAINER],
        "schedulingGates": [{"name": GATE}],
        "tolerations": tolerations,
    }
    manifest = document(PODS, name, spec)
    manifest["metadata"]["annotations"] = {
        "gates.harbourmaster.dev/wait-for": item,
        "gates.harbourmaster.dev/checks": "none",
    }
    return manifest


def job(name):
    """A Job, whose pods are not created here."""
    template = {"spec": {"containers": [CONTAINER], "restartPolicy": "Never"}}
    return document(JOBS, name, {"template": template})


def available(stored):
    """The status of a Deployment whose replicas are available."""
    count = stored["spec"]["replicas"]
    condition = {"type": "Available", "status": "True", "reason": "x", "message": ""}
    times = {"lastUpdateTime": NOW, "lastTransitionTime": NOW}
    counts = dict.fromkeys(
        ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), count
    )
    generation = stored["metadata"]["generation"]
    return {**counts, "observedGeneration": generation, "conditions": [{**condition, **times}]}


def percentiles(values):
    """The median and the 99th of a hundred."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100 - 1]


def cpu_seconds(pid):
    """The CPU time that a process has taken of all cores."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def load():
    """The load of the machine, by the first of its load averages."""
    return Path("/proc/loadavg").read_text().split()[0]
