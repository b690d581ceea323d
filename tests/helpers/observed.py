"""One of our processes on a fake API server, seen from outside: its log, its metrics, its end."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import asynccontextmanager

import aiohttp

from helpers.patience import PATIENCE

VALUE_PORTS = ("--metrics-expose-port=0", "--metrics-custom-metrics-port=0")
"""A controller's, of metric values; free ones."""
KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: x
contexts: [{{name: x, context: {{cluster: x, user: x}}}}]
clusters: [{{name: x, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
users: [{{name: x, user: {{}}}}]
"""


class Observed:
    """A process that runs."""

    def __init__(self, process):
        self._process = process
        self.lines = []

    async def event(self, name):
        """Wait for a line of its log."""
        while True:
            line = await self._process.stderr.readline()
            assert line, f"no line {name} in {self.lines}"
            self.lines.append(json.loads(line))
            if self.lines[-1]["event"] == name:
                return self.lines[-1]

    async def metric(self, health, sample):
        """Wait for a sample of its metrics; return its value."""
        async with aiohttp.ClientSession() as session:
            while True:
                async with session.get(f"{health}/metrics") as answer:
                    for line in (await answer.text()).splitlines():
                        if line.startswith(f"{sample} "):
                            return float(line.split()[-1])
                # Nobody tells of a sample that comes.
                await asyncio.sleep(0.02)

    async def end(self):
        """Ask it to stop; return its exit code."""
        self._process.terminate()
        async for line in self._process.stderr:
            self.lines.append(json.loads(line))
        return await self._process.wait()


@asynccontextmanager
async def observed(module, directory, port, *flags):
    """Run ``python -m harbourmaster.module`` against the API server at a port of this machine."""
    kubeconfig = directory / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG.format(port=port))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        f"harbourmaster.{module}",
        f"--kubeconfig={kubeconfig}",
        "--namespace=harbour",
        "--health-port=0",
        *(VALUE_PORTS if module == "controller" else ()),
        "--log-format=json",
        *flags,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "POD_NAME": f"{module}-1"},
    )
    try:
        async with asyncio.timeout(PATIENCE):
            yield Observed(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
