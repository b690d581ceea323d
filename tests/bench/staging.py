"""Stages of many workloads at once: from the condition of a stage to the releases of the next one.

The controller is alone on a control plane, with ReplicaSets whose pods are created here. In the
first stage one pod of each workload is released. All of these become ready at once, and the time
counts from the request that says so to the first release of the second stage, and from the first
such request to the last release of all. The same number of pods is released by a plain client with
the same watches. Run alone, it prints the figures.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import uvloop

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1])]

import draining  # noqa: E402

from harbourmaster.api.patches import MergePatch  # noqa: E402
from harbourmaster.api.resources import PODS, REPLICA_SETS  # noqa: E402
from harbourmaster.api.times import format_rfc3339  # noqa: E402
from harbourmaster.gates.stages import STAGED_LABEL, STAGES_KEY, STAGES_ON_FIRST_KEY  # noqa: E402
from harbourmaster.playground.control_plane import ControlPlane  # noqa: E402
from harbourmaster.serving.background import running  # noqa: E402
from helpers.load.gates import (  # noqa: E402
    NAMESPACE,
    Bulk,
    control,
    cpu_seconds,
    gated_pod,
    load,
    released_pods,
    replica_set,
    until_settled,
)
from helpers.processes import client_of  # noqa: E402

WORKLOADS = 50
PODS_EACH = 20
ROUNDS = 3
BARE = "bare"
DESIRED = "deployment.kubernetes.io/desired-replicas"


async def create_pods(bulk, prefix, workloads, namespace=NAMESPACE):
    """Create the pods of so many workloads; return the names of the workloads."""
    names = [f"{prefix}{number}" for number in range(workloads)]
    sets = [replica_set(name, PODS_EACH) for name in names]
    for obj in sets:
        name = obj["metadata"]["name"]
        above = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name, "uid": f"d-{name}"}
        obj["metadata"] |= {
            "annotations": {DESIRED: str(PODS_EACH), "deployment.kubernetes.io/revision": "1"},
            "ownerReferences": [{**above, "controller": True}],
        }
    stored = await bulk.create(REPLICA_SETS, sets, namespace)
    uids = {obj["metadata"]["name"]: obj["metadata"]["uid"] for obj in stored}
    pods = [staged_pod(index, name, uids[name]) for name in names for index in range(PODS_EACH)]
    await bulk.create(PODS, pods, namespace)
    return names


def staged_pod(index, name, uid):
    """A pod as admission leaves it, without a check before its deployment."""
    pod = gated_pod(index, f"a-{name}", name, uid)
    metadata = pod["metadata"]
    metadata["labels"][STAGED_LABEL] = "true"
    del metadata["annotations"]["keptn.sh/pre-deployment-tasks"]
    metadata["annotations"] |= {
        STAGES_KEY: "1, 100%",
        STAGES_ON_FIRST_KEY: "true",
        "gates.harbourmaster.dev/app-type": "single-service",
    }
    return pod


async def release_stages(client, bulk, controller, prefix, workloads):
    """Let the first stages of so many workloads be complete at once; return the figures."""
    free = released_pods(client)
    async with running(free.run()):
        names = await create_pods(bulk, prefix, workloads)
        others = {name for name in free.at if not name.startswith(prefix)}
        await free.until(len(others) + workloads)
        await until_settled(controller)
        first = [name for name in free.at if name.startswith(prefix)]
        assert len(first) == workloads
        spent = cpu_seconds(controller.pid)
        conditions = {}

        async def get_ready(pod):
            since = format_rfc3339(datetime.now(UTC))
            ready = {"type": "Ready", "status": "True", "lastTransitionTime": since}
            status = {"status": {"phase": "Running", "conditions": [ready]}}
            conditions[pod.rpartition("-")[0]] = time.monotonic()
            await client.patch(PODS, pod, MergePatch(status), NAMESPACE, subresource="status")

        await asyncio.gather(*map(get_ready, first))
        await free.until(len(others) + workloads * PODS_EACH)
        begun = min(conditions.values())
        latencies = sorted(
            min(
                at
                for pod, at in free.at.items()
                if pod.rpartition("-")[0] == name and pod not in first
            )
            - conditions[name]
            for name in names
        )
        return {
            "first_p50": latencies[len(latencies) // 2],
            "first_p99": latencies[len(latencies) * 99 // 100 - 1],
            "first_max": latencies[-1],
            "seconds": max(free.at.values()) - begun,
            "cpu_ms_per_pod": (cpu_seconds(controller.pid) - spent)
            / (workloads * (PODS_EACH - 1))
            * 1000,
        }


async def release_bare(plane, client, bulk, namespace, count):
    """Release so many pods by the plain client; return the seconds."""
    await bulk.home(namespace)
    pods = [staged_pod(index, "w", "uid-of-nothing") for index in range(count)]
    await bulk.create(PODS, pods, namespace)
    actor = await draining.Bare.start(plane.kubeconfig, namespace)
    try:
        await asyncio.sleep(5)
        observer = draining.Observer(client, namespace)
        async with running(observer.mirror.run()):
            await observer.mirror.synced.wait()
            begun = time.monotonic()
            actor.go()
            await observer.until_released(count)
            return observer.released_at - begun
    finally:
        await actor.stop()


async def compare(plane, workloads, rounds):
    """Release the stages of so many workloads, and the same number of pods by the plain client."""
    async with control(plane) as (client, bulk, controller):
        runs = [
            await release_stages(client, bulk, controller, f"r{number}w", workloads)
            for number in range(rounds)
        ]
    count = workloads * (PODS_EACH - 1)
    async with client_of(plane.kubeconfig) as client:
        bulk = Bulk(client)
        bare = [
            await release_bare(plane, client, bulk, f"{BARE}-{number}", count)
            for number in range(rounds)
        ]
    ratios = sorted(run["seconds"] / seconds for run, seconds in zip(runs, bare, strict=True))
    return {
        "first_p99": max(run["first_p99"] for run in runs),
        "ratio": ratios[len(ratios) // 2],
        "ratios": ratios,
        "workloads": workloads,
        "pods": count,
        "runs": runs,
        "bare_seconds": bare,
        "load": load(),
    }


def measure(folder, workloads=WORKLOADS, rounds=ROUNDS):
    """Return the figures, of a control plane in the folder."""
    with ControlPlane(Path(folder), optional=()) as plane:
        return uvloop.run(compare(plane, workloads, rounds))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        figures = measure(directory, *map(int, sys.argv[1:]))
        print(json.dumps(figures, indent=1))  # noqa: T201 - the result
