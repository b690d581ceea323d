"""A thousand pods whose checks passed, on a hundred nodes: what asking us costs a scheduler.

The short form has fewer of them, and lets the others on the machine have their part.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
from typing import NamedTuple

import pytest

from harbourmaster.api.resources import APPS, PODS, REPLICA_SETS
from harbourmaster.api.times import utc_now
from harbourmaster.certs.store import ensure
from harbourmaster.serving.background import running
from helpers.load.gates import (
    CONTAINER,
    NAMESPACE,
    Seen,
    app,
    control,
    gated_pod,
    idle_requests,
    replica_set,
)
from helpers.scheduler import NAME, configuration, configuration_without_extender, second_scheduler

WORKLOAD = "ledger"
APP = "shop"
SERVICE = "harbourmaster-scheduling"
QUIET = 0.5
"""Seconds between two looks at whether the controller has done what new pods give it to do."""


class Placed(NamedTuple):
    """Seconds from the first bound pod to the last of each run, with and without the extender."""

    pods: int
    asking: list[float]
    alone: list[float]

    @property
    def ratio(self):
        """The ratio of the medians."""
        return statistics.median(self.asking) / statistics.median(self.alone)


async def measure_placing(plane, folder, pods, nodes, runs):
    """Let a second scheduler place so many ready pods, ``runs`` times each way, in turn."""
    folder.mkdir(exist_ok=True)
    bundle = ensure(folder, (SERVICE,), utc_now())
    authority = folder / "authority.crt"
    authority.write_bytes(bundle.files.ca_crt)
    flags = (
        "--scheduler-enabled=true",
        "--scheduler-extender-port=0",
        f"--metrics-custom-metrics-cert-dir={folder}",
    )
    async with control(plane, *flags) as (client, bulk, controller):
        served = await asyncio.to_thread(
            controller.await_event, "scheduler extender started", component="extender"
        )
        port = int(served["url"].rpartition(":")[2].partition("/")[0])
        ways = {
            "asking": configuration(port, authority, httpTimeout="10s"),
            "alone": configuration_without_extender(),
        }
        await asyncio.to_thread(plane.add_nodes, nodes)
        await bulk.create(APPS, [app(APP, [WORKLOAD])])
        (owner,) = await bulk.create(REPLICA_SETS, [replica_set(WORKLOAD)])
        uid = owner["metadata"]["uid"]
        result = {name: [] for name in ways}
        # The first one has the version made, and is not counted.
        with second_scheduler(plane, ways["asking"]):
            await _place(client, bulk, [ready_pod("first", 0, uid)])
        for run in range(runs):
            for name, way in ways.items():
                made = [ready_pod(f"{name}-{run}", index, uid) for index in range(pods)]
                await bulk.create(PODS, made)
                # All are there and known before anybody looks: only the scheduler is measured.
                await idle_requests(controller, QUIET)
                result[name].append(await _round(plane, client, way, made))
        return Placed(pods, result["asking"], result["alone"])


async def _round(plane, client, way, made):
    starting = contextlib.ExitStack()
    placing = asyncio.create_task(_await_placed(client, {pod["metadata"]["name"] for pod in made}))
    try:
        await asyncio.to_thread(starting.enter_context, second_scheduler(plane, way))
        return await placing
    finally:
        await asyncio.to_thread(starting.close)
        every = f"/api/v1/namespaces/{NAMESPACE}/pods?gracePeriodSeconds=0"
        await asyncio.to_thread(plane.kubectl, "delete", f"--raw={every}")


async def _place(client, bulk, made):
    await bulk.create(PODS, made)
    await _await_placed(client, {pod["metadata"]["name"] for pod in made})


async def _await_placed(client, names):
    """Wait until all pods are on nodes; return the seconds from the first to the last."""

    # Pods of the last round may still be going.
    def is_placed(pod):
        return bool(pod["spec"].get("nodeName")) and pod["metadata"]["name"] in names

    seen = Seen(client, PODS, is_placed)
    async with running(seen.run()):
        await seen.until(len(names))
    assert len(seen.at) == len(names)
    return max(seen.at.values()) - min(seen.at.values())


def ready_pod(name, index, uid):
    """Return an admitted pod of the ReplicaSet, which waits for the scheduler without checks."""
    pod = gated_pod(index, APP, WORKLOAD, uid)
    pod["metadata"]["name"] = f"{name}-{index}"
    del pod["metadata"]["annotations"]["keptn.sh/pre-deployment-tasks"]
    return {**pod, "spec": {"containers": [CONTAINER], "schedulerName": NAME}}


def report(result):
    """Return the figures, each in a line."""
    lines = [
        f"{name}: {', '.join(f'{time:.2f}' for time in times)} s"
        for name, times in (("asking", result.asking), ("alone", result.alone))
    ]
    return "\n".join((f"{result.pods} pods", *lines, f"ratio of medians {result.ratio:.2f}"))


pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(1800)]

IS_LONG = bool(os.environ.get("HARBOURMASTER_CHAOS_LONG"))
POD_COUNT, NODES, RUNS, LIMIT = (1000, 100, 5, 1.25) if IS_LONG else (200, 20, 3, 2.5)


async def test_ready_pods_are_placed_nearly_as_fast_as_without_us(
    throwaway_control_plane, tmp_path
):
    plane = await asyncio.to_thread(throwaway_control_plane, optional=("kwok",))
    result = await measure_placing(plane, tmp_path / "certs", POD_COUNT, NODES, RUNS)
    print(f"\n{report(result)}")  # noqa: T201 - figures to note
    assert result.ratio <= LIMIT
