"""A real server process that is watched while it is ill-treated."""

from __future__ import annotations

import asyncio
import re
import urllib.request
from pathlib import Path

from helpers.patience import PATIENCE
from helpers.raw_http import Connection
from helpers.server import Server


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
                await wire.gone()
            if not is_behind(answer):
                return answer
            await asyncio.sleep(0.1)
