"""R19: hours of load, changes and new certificates leave memory and file descriptors as they were.

``make soak`` takes an hour; HARBOURMASTER_SOAK_SECONDS says otherwise.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
from pathlib import Path

import pytest

from helpers.load.gates import resident_mb
from helpers.objects import cluster_policy

SECONDS = float(os.environ.get("HARBOURMASTER_SOAK_SECONDS", "0"))

pytestmark = [
    pytest.mark.full,
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.timeout(SECONDS + 300),
    pytest.mark.skipif(not SECONDS, reason="make soak runs it"),
]

RATE = 100
SAMPLES = 60
CHURN_SECONDS = 2
GROWTH = 1.05
"""The limit of the last quarter's memory as a ratio of the second's; in the first, caches fill."""
# After a renewal, the API server has up to five connections to the controller for some seconds.
SPARE = 6
"""File descriptors: a connection or a watch that is just being replaced."""


class Usage:
    """The memory and descriptors of the processes over time."""

    def __init__(self, installation):
        self.pids = {
            name: installation.pid(name)
            for name in installation.running()
            if name.startswith(("webhook", "controller"))
        }
        self.memory = {name: [] for name in self.pids}
        self.descriptors = {name: [] for name in self.pids}

    def sample(self):
        for name, pid in self.pids.items():
            self.memory[name].append(resident_mb(pid))
            self.descriptors[name].append(sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir()))

    def quarters(self, values):
        """The medians of the second and of the last quarter."""
        size = len(values) // 4
        return statistics.median(values[size : 2 * size]), statistics.median(values[-size:])


async def churn(plane, stop):
    """Policies and namespaces that come, change and go."""
    turn = 0
    while not stop.is_set():
        turn += 1
        name = f"churn-{turn % 20}"
        manifest = cluster_policy(name, pods={"app": name}, nodeSelector={"turn": str(turn)})
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        namespace["metadata"]["labels"] = {"example.com/turn": str(turn)}
        objects = {"apiVersion": "v1", "kind": "List", "items": [manifest, namespace]}
        await asyncio.to_thread(plane.kubectl, "apply", "-f=-", stdin=json.dumps(objects))
        if turn % 20 == 0:
            gone = [f"clusterpodschedulingpolicy/churn-{index}" for index in range(10)]
            await asyncio.to_thread(plane.kubectl, "delete", "--ignore-not-found", *gone)
        try:
            async with asyncio.timeout(CHURN_SECONDS):
                await stop.wait()
        except TimeoutError:
            continue


async def test_r19_memory_and_file_descriptors_are_flat(harbour):
    leaf = max(20.0, SECONDS / 20)
    flags = [
        f"--certificates-leaf-lifetime-seconds={leaf:.0f}",
        f"--certificates-ca-lifetime-seconds={leaf * 6:.0f}",
        "--certificates-publish-seconds=5",
    ]
    async with (
        harbour(webhooks=2, controller=flags) as installed,
        installed.followed_authority() as authority,
    ):
        load = installed.load(authority, fresh=5)
        usage, stop = Usage(installed.installation), asyncio.Event()
        changing = asyncio.create_task(churn(installed.plane, stop))
        sending = asyncio.create_task(load.run(rate=RATE, until=stop))
        for _ in range(SAMPLES):
            await asyncio.sleep(SECONDS / SAMPLES)
            usage.sample()
        stop.set()
        await asyncio.gather(changing, sending)
    for name in usage.pids:
        memory = usage.quarters(usage.memory[name])
        descriptors = usage.quarters(usage.descriptors[name])
        print(  # noqa: T201 - figures to note
            f"{name}: {memory[0]:.1f} -> {memory[1]:.1f} MB, "
            f"{descriptors[0]:.0f} -> {descriptors[1]:.0f} file descriptors"
        )
        assert memory[1] <= memory[0] * GROWTH
        assert descriptors[1] <= descriptors[0] + SPARE
    assert load.failures == {}
