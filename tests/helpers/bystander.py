"""A well-behaved client of a server that others ill-treat."""

from __future__ import annotations

import asyncio
import statistics
import time

from helpers.objects import body, cluster_policy, required, workload
from helpers.raw_http import post

CROWD = [
    cluster_policy(
        f"crowd-{index:02}",
        pods={"app": "crowd"},
        affinity=required(*({f"key-{index}": value} for value in "abc")),
    )
    for index in range(20)
]
"""Each multiplies the terms of a pod labelled app=crowd by three."""
POLICIES = [
    cluster_policy(
        nodeSelector={"disk": "ssd"},
        tolerations=[{"key": "pool", "operator": "Exists"}],
        affinity=required({"pool": "etcd"}, {"pool": "db"}),
    ),
    *CROWD,
]

ROUNDS = 3
REQUESTS = 50
PACE = 0.002
FLOOR = 0.010
"""Seconds on top of the double. A p99 of undisturbed requests is about 1 ms, which is less than one
time slice of the kernel's scheduler; bystander, attacker and server share two cores, so a request
may have to wait for two such slices of 4 ms without any fault of the server's."""
GROWTH = 48 * 1024 * 1024
"""Bytes that the memory may grow by: a few bodies of 8 MiB on their way, and what malloc keeps."""
MOST_MEMORY = 256 * 1024 * 1024


class Bystander:
    """A well-behaved client of a server, and how long its answers take."""

    def __init__(self, server, wire, name, report):
        self.server = server
        self.name = name
        self.report = report
        self.wire = wire
        self.request = post(body(workload()), path="/mutate")

    async def slowest(self):
        """The p99 of some requests at a steady pace; of so few it is the slowest one."""
        seconds = []
        for _ in range(REQUESTS):
            begun = time.perf_counter()
            answer = await self.wire.ask(self.request)
            seconds.append(time.perf_counter() - begun)
            assert answer.status == 200
            assert b'"patch"' in answer.body
            await asyncio.sleep(PACE)
        return max(seconds)

    async def rounds(self):
        """The slowest of each round."""
        return [await self.slowest() for _ in range(ROUNDS)]

    def noticed_nothing(self, quiet, disturbed, memory):
        """Compare undisturbed rounds with disturbed ones, and the memory with what it was."""
        before, beside = statistics.median(quiet), statistics.median(disturbed)
        self.report[self.name] = (before, beside)
        assert self.server.lives
        assert beside <= 2 * before + FLOOR
        assert self.server.memory() <= memory + GROWTH
        assert self.server.memory("VmHWM") <= MOST_MEMORY
        return True
