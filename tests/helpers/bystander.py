"""A well-behaved client of a server that others ill-treat."""

from __future__ import annotations

import asyncio

from helpers.objects import body, cluster_policy, required, workload
from helpers.raw_http import post
from helpers.watched import is_behind

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

REQUESTS = 50
PACE = 0.002
GROWTH = 48 * 1024 * 1024
"""Bytes that the memory may grow by: a few bodies of 8 MiB on their way, and what malloc keeps."""
MOST_MEMORY = 256 * 1024 * 1024


class Bystander:
    """A well-behaved client of a server."""

    def __init__(self, server, wire):
        self.server = server
        self.wire = wire
        self.request = post(body(workload()), path="/mutate")

    async def assert_served(self, memory):
        """Each request at a steady pace is answered; memory stays near what it was, in bytes.

        One that is refused since the server is behind, as on a busy machine, is sent again.
        """
        for _ in range(REQUESTS):
            while is_behind(answer := await self.wire.ask(self.request)):
                pass
            assert answer.status == 200, answer
            assert b'"patch"' in answer.body
            await asyncio.sleep(PACE)
        assert self.server.lives
        assert self.server.memory() <= memory + GROWTH
        assert self.server.memory("VmHWM") <= MOST_MEMORY
