"""Server processes under load, and comparisons of them in pairs.

A server is pinned to one core, the load comes from another. CPU is the server's own, by the
kernel's accounting. Those that are compared take turns, so that what the machine does besides
concerns all of them alike; a ratio is the median of the pairs' with its 95 % confidence interval.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import yaml
from figures import interval, medians

HERE = Path(__file__).parent
REQUESTS = 10_000
CONNECTIONS = 25
PAIRS = 15
WARM_UP = 5000
COMMAND = str(Path(sys.executable).with_name("harbourmaster"))


class Server:
    """A server process on the first core."""

    def __init__(self, arguments, *, environment=None):
        self.log = tempfile.NamedTemporaryFile("w+", suffix=".log")  # noqa: SIM115
        self.started = time.perf_counter()
        self.process = subprocess.Popen(
            ["taskset", "-c", "0", *arguments],
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env={**os.environ, **(environment or {})},
        )

    def cpu_seconds(self):
        """Time on the processor by the scheduler's own count, of all threads."""
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9

    def resident_bytes(self):
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) * 1024

    def read_log(self):
        return Path(self.log.name).read_text()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)
        self.log.close()


def harbourmaster(folder, policies, *options, command=COMMAND):
    ports = ["--port", "0", "--health-port", "0"]
    arguments = [command, "server", "files", "--policies", str(policies), *ports]
    server = Server(
        [
            *arguments,
            "--cert-dir",
            str(folder),
            "--drain-seconds",
            "0",
            "--log-format",
            "json",
            *options,
        ]
    )
    serving = wait_for(server)
    server.port = int(serving["reviews"].rpartition(":")[2])
    server.health = serving["health"]
    return server


def wait_for(server):
    """Wait until the server says that it serves, and return that log line."""
    while server.process.poll() is None:
        for line in server.read_log().splitlines():
            if '"serving"' in line and '"reviews"' in line:
                return json.loads(line)
        time.sleep(0.005)
    sys.exit(f"the server ended: {server.read_log()}")


def wait_until_ready(server):
    while True:
        try:
            urllib.request.urlopen(f"{server.health}/readyz").read()  # noqa: S310
        except OSError:
            time.sleep(0.005)
        else:
            return time.perf_counter() - server.started


def load(server, folder, payload, requests=REQUESTS, rate=None):
    before = server.cpu_seconds()
    arguments = ["localhost", server.port, "/mutate", payload, folder / "ca.crt", CONNECTIONS]
    arguments += [requests] + ([rate] if rate else [])
    result = subprocess.run(
        ["taskset", "-c", "1", sys.executable, HERE / "load.py", *map(str, arguments)],
        capture_output=True,
        check=True,
        text=True,
    )
    answer = json.loads(result.stdout)
    answer["cpu_us"] = (server.cpu_seconds() - before) / requests * 1e6
    return answer


def serve_constant(kind, folder, answer):
    """A server that gives one answer, of a kind that ``constant_server.py`` knows."""
    arguments = (str(HERE / "constant_server.py"), kind, str(folder), str(answer))
    server = Server([sys.executable, *arguments])
    server.port = int(server.process.stdout.readline())
    return server


def write_policies(folder, policies):
    folder.mkdir()
    (folder / "policies.yaml").write_text(yaml.dump_all(policies, Dumper=yaml.CSafeDumper))
    return folder


def in_turn(asked, folder, *, pairs=PAIRS, requests=REQUESTS, rate=None):
    """Load each of ``asked``, a server and a payload by name, ``pairs`` times: its runs by name."""
    for server, payload in asked.values():
        load(server, folder, payload, WARM_UP)
    runs = {name: [] for name in asked}
    for number in range(pairs):
        # Whoever comes second finds another machine than the first, so the order changes too.
        for name in list(asked) if number % 2 else reversed(asked):
            runs[name].append(load(asked[name][0], folder, asked[name][1], requests, rate))
    return runs


def compare_with(base, asked, folder):
    """Return medians of each of ``asked`` and its CPU by that of ``base``; stop the servers."""
    try:
        runs = in_turn(asked, folder)
    finally:
        for server in {server for server, _ in asked.values()}:
            server.stop()
    return {
        "servers": {name: medians(rounds) for name, rounds in runs.items()},
        "ratios": {
            f"CPU, {name} / {base}": ratio_of_runs(runs, name, base)
            for name in asked
            if name != base
        },
    }


def ratio_of_runs(runs, name, base, figure="cpu_us"):
    """Return the interval of the ratio of two servers' figures, pair by pair."""
    return interval(
        run[figure] / run_of_base[figure]
        for run, run_of_base in zip(runs[name], runs[base], strict=True)
    )
