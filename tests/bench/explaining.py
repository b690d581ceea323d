"""Requests and time of ``harbourmaster why`` in a cluster of 5,000 nodes and 150,000 pods."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1])]

from helpers.command import kubeconfig  # noqa: E402
from helpers.large_cluster import SUBJECTS, LargeApi, fill  # noqa: E402

REPEATS = 5


async def _measure(folder, repeats):
    figures = {}
    async with LargeApi() as api:
        fill(api)
        path = kubeconfig(folder, api.url)
        for name, subject in SUBJECTS.items():
            times, cpu = [], []
            for _ in range(repeats):
                api.requests.clear()
                before, cpu_before = time.perf_counter(), os.times()
                command = (sys.executable, "-m", "harbourmaster", "why", *subject)
                process = await asyncio.create_subprocess_exec(
                    *command,
                    "--kubeconfig",
                    path,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                    env={**os.environ, "PYTHONDONTWRITEBYTECODE": ""},
                )
                out, err = await process.communicate()
                times.append(time.perf_counter() - before)
                after = os.times()
                cpu.append(
                    after.children_user
                    + after.children_system
                    - cpu_before.children_user
                    - cpu_before.children_system
                )
                if process.returncode:
                    raise AssertionError(f"why {subject}: {out.decode()}{err.decode()}")
            lists = Counter(
                f"{seen.verb} {seen.path.rpartition('/')[2]}"
                for seen in api.requests
                if seen.verb == "list"
            )
            figures[name] = {
                "requests": len(api.requests),
                "lists": dict(lists),
                "seconds": round(statistics.median(times), 3),
                "client_cpu_seconds": round(statistics.median(cpu), 3),
                "says": out.decode().splitlines()[:3],
            }
    return figures


def measure(folder, repeats=REPEATS):
    """Return the requests and the seconds of each question, the medians of some runs."""
    return asyncio.run(_measure(folder, repeats))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        print(json.dumps(measure(Path(name), *map(int, sys.argv[1:])), indent=1))  # noqa: T201
