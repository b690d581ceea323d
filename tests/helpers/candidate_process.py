"""A candidate as a process of its own: ``python candidate_process.py KUBECONFIG NAMESPACE NAME``.

Its work writes a line for each step, ``begin``, ``step`` or ``end`` and the monotonic time, which
is the same in all processes of a machine.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path

from helpers.patience import PATIENCE

HERE = Path(__file__)
TIMES = {"lease_duration": 4.0, "renew_deadline": 2.5, "retry_period": 0.5}
STEP = 0.02


class Candidates:
    """Processes that stand for one Lease, and what they told of their work."""

    def __init__(self, kubeconfig, namespace):
        self._arguments = [str(kubeconfig), namespace]
        self._processes: dict[str, subprocess.Popen] = {}
        self._readers: list[threading.Thread] = []
        self._told = threading.Condition()
        self.lines: list[tuple[float, str, str]] = []
        """Time, who, and begin, step or end."""

    def start(self, name):
        process = subprocess.Popen(
            [sys.executable, str(HERE), *self._arguments, name],
            stdout=subprocess.PIPE,
            text=True,
            cwd=HERE.parents[2],
            env={**os.environ, "PYTHONPATH": f".{os.pathsep}tests"},
        )
        self._processes[name] = process
        reader = threading.Thread(target=self._read, args=(name, process.stdout), daemon=True)
        reader.start()
        self._readers.append(reader)

    def _read(self, name, stream):
        with stream:
            for line in stream:
                what, instant = line.split()
                with self._told:
                    self.lines.append((float(instant), name, what))
                    self._told.notify_all()

    def send(self, name, number):
        self._processes[name].send_signal(number)

    def wait(self, name, timeout=PATIENCE):
        """Wait for the end of a process; returns its exit code."""
        return self._processes[name].wait(timeout)

    def stop(self):
        for process in self._processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()
        for reader in self._readers:
            reader.join()

    def until_working(self, *names, since=0.0, timeout=PATIENCE):
        """Wait until one of them works; returns its name and when it was first seen to."""
        running = []

        def works():
            running[:] = [
                (name, instant)
                for instant, name, what in self.lines
                if instant >= since and name in names and what != "end"
            ]
            return running

        with self._told:
            assert self._told.wait_for(works, timeout), f"none of {names} works"
        return running[0]

    def until_idle(self, name, since, timeout=PATIENCE):
        """Wait until one says that its work has ended."""
        with self._told:
            assert self._told.wait_for(
                lambda: any(
                    instant >= since and who == name and what == "end"
                    for instant, who, what in self.lines
                ),
                timeout,
            ), f"{name} goes on"

    def overlaps(self):
        """Terms that began before another had ended, from the lines of all."""
        terms = []
        current = defaultdict(list)
        for instant, name, what in sorted(self.lines):
            if what == "begin":
                current[name] = []
                terms.append((name, current[name]))
            # An end that comes after a standstill is told as it happens; it is no work.
            if what != "end":
                current[name].append(instant)
        spans = sorted((min(times), max(times), name) for name, times in terms)
        return [
            (term, span)
            for number, term in enumerate(spans)
            for span in spans[number + 1 :]
            if span[0] <= term[1]
        ]


async def main(kubeconfig, namespace, name):
    from harbourmaster.kube.client import Client  # noqa: PLC0415 - the test itself needs none of it
    from harbourmaster.kube.connection_sources import connect  # noqa: PLC0415
    from harbourmaster.kube.election import LeaderElection  # noqa: PLC0415
    from harbourmaster.telemetry.logging import configure_logging  # noqa: PLC0415

    configure_logging()

    async with Client(connect(kubeconfig)) as client:
        election = LeaderElection(
            client, name="candidates", namespace=namespace, identity=name, **TIMES
        )
        task = asyncio.create_task(election.run(work))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        await asyncio.wait([task])


async def work():
    tell("begin")
    try:
        while True:
            await asyncio.sleep(STEP)
            tell("step")
    finally:
        tell("end")


def tell(what):
    sys.stdout.write(f"{what} {time.monotonic():.6f}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
