"""A process of ``harbourmaster server files``, what the kernel says of it, and a good client."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import urllib.request
from collections import Counter
from pathlib import Path

from helpers.objects import body, cluster_policy, required, workload
from helpers.patience import PATIENCE
from helpers.processes import Logged
from helpers.raw_http import Connection, post

QUICKLY = ("--port=0", "--health-port=0", "--drain-seconds=0", "--log-format=json")


class Server(Logged):
    """One server process; it serves when the construction returns.

    ``url`` is the address of reviews, ``bundle`` the CA that vouches for it.
    """

    def __init__(self, directory, *options, policies):
        self._policies = directory / "policies"
        self._policies.mkdir(parents=True)
        self._kinds = Counter()
        self._write(policies)
        self.certificates = directory / "certificates"
        command = [Path(sys.executable).with_name("harbourmaster"), "server", "files"]
        command += [f"--policies={self._policies}", f"--cert-dir={self.certificates}", *QUICKLY]
        super().__init__([*command, *options], "serving")
        self.url = self.first["reviews"]
        self.bundle = (self.certificates / "ca.crt").read_bytes()

    def add_policies(self, *policies):
        """Put policies beside those that are there; return when they are in force."""
        self._write(policies)
        self.await_event(
            "reloaded",
            cluster_policies=self._kinds["ClusterPodSchedulingPolicy"],
            namespaced_policies=self._kinds["PodSchedulingPolicy"],
        )

    def _write(self, policies):
        self._kinds.update(policy["kind"] for policy in policies)
        # Renamed, so that no reader finds half of it.
        draft = self._policies.with_name("draft")
        draft.write_text("\n---\n".join(map(json.dumps, policies)))
        draft.rename(self._policies / f"{self._kinds.total()}.yaml")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # Killed, because draining waits for the API server to give up its idle connections.
        self.kill()


def is_behind(answer):
    """Whether a request was refused because the server's loop was late."""
    return answer.status == 429 and b"the server is overloaded" in answer.body


class WatchedServer(Server):
    """A server with policies, and what the kernel tells of it."""

    host = "127.0.0.1"

    def __init__(self, directory, *policies, options=()):
        super().__init__(directory, *options, policies=policies)
        self.health = self.first["health"]
        self.port = int(self.url.rpartition(":")[2])

    def proc(self, name):
        """A file of the kernel's about the process."""
        return Path(f"/proc/{self.pid}/{name}").read_text()

    def memory(self, field="VmRSS"):
        """Bytes of memory now, or with VmHWM the most since ``forget_peak``."""
        return int(re.search(rf"{field}:\s+(\d+)", self.proc("status"))[1]) * 1024

    def forget_peak(self):
        """Reset VmHWM."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def get(self, path):
        """Ask the health port; the text of the answer."""
        with urllib.request.urlopen(self.health + path, timeout=PATIENCE) as answer:  # noqa: S310
            return answer.read().decode()

    def metric(self, sample):
        """The value of one sample, written as in the text format."""
        lines = self.get("/metrics").splitlines()
        return next(float(line.split()[-1]) for line in lines if line.startswith(f"{sample} "))

    async def ask(self, data, tls):
        """Send ``data`` on a connection of its own, and read one answer.

        One that is behind is asked again: a busy machine makes it so.
        """
        while True:
            wire = await Connection.open(self, tls)
            try:
                answer = await wire.ask(data)
            finally:
                await wire.drop()
            if not is_behind(answer):
                return answer
            await asyncio.sleep(0.1)


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
