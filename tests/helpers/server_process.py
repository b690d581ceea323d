"""A real ``harbourmaster serve``, and what can be seen of it from outside."""

from __future__ import annotations

import json
import re
import ssl
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import yaml

PATIENCE = 20.0


class ServerProcess:
    """One server on free ports; ``with`` starts and ends it."""

    def __init__(self, folder, policies, *options):
        self.folder = folder
        self.certificates = folder / "certs"
        self.log = folder / "log"
        sources = folder / "policies.yaml"
        sources.write_text(yaml.safe_dump_all(policies))
        self.arguments = [
            *(sys.executable, "-m", "cli.main", "serve", "--policies", sources),
            *("--port", "0", "--health-port", "0", "--cert-dir", self.certificates),
            *("--log-format", "json", "--drain-seconds", "0", *options),
        ]

    def __enter__(self):
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                list(map(str, self.arguments)),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                cwd=Path(__file__).parents[2],
            )
        serving = self._wait_until_serving()
        self.host = "127.0.0.1"
        self.port = int(serving["reviews"].rpartition(":")[2])
        self.health = serving["health"]
        return self

    def __exit__(self, *_error):
        self.process.terminate()
        try:
            self.process.wait(PATIENCE)
        finally:
            self.process.kill()

    @property
    def lives(self):
        return self.process.poll() is None

    @property
    def authority(self):
        """The certificate that clients trust."""
        return (self.certificates / "ca.crt").read_bytes()

    def lines(self):
        """What was logged until now."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def status(self, name):
        """A field of /proc, in bytes: VmRSS (memory now) or VmHWM (the most until now)."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(rf"{name}:\s+(\d+)", text)[1]) * 1024

    def get(self, path):
        """Ask the health port; the text of the answer."""
        with urllib.request.urlopen(self.health + path, timeout=PATIENCE) as answer:  # noqa: S310
            return answer.read().decode()

    def metric(self, sample):
        """The value of one sample, written as in the text format."""
        return next(
            float(line.rpartition(" ")[2])
            for line in self.get("/metrics").splitlines()
            if line.startswith(f"{sample} ")
        )

    def _wait_until_serving(self):
        deadline = time.monotonic() + PATIENCE
        while self.lives and time.monotonic() < deadline:
            for line in self.log.read_text().splitlines():
                if '"event":"serving"' in line:
                    return json.loads(line)
            time.sleep(0.01)
        raise AssertionError(f"the server did not start: {self.log.read_text()}")
