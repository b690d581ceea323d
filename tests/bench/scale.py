"""A simulated large cluster: requests, queues, pauses and the processor's time of a controller."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
WHOLE = {"nodes": 5000, "pods": 150_000, "apps": 2000, "releases-per-minute": 200.0}
SHARE, HOURS = 0.1, 0.05
"""The part of the whole size that ``make bench`` simulates, and for how long."""


def measure(_folder=None, share=SHARE, hours=HOURS):
    """Return the figures of a simulation, in a process whose clock is virtual."""
    sizes = {name: type(size)(size * share) for name, size in WHOLE.items()}
    options = [f"--{name}={size}" for name, size in {**sizes, "hours": hours}.items()]
    done = subprocess.run(
        [sys.executable, "-m", "simulation", *options],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        stdout=subprocess.PIPE,
        check=False,
        text=True,
    )
    if done.returncode:
        raise AssertionError(done.stdout)
    return json.loads(done.stdout)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--hours", type=float, default=1.0)
    given = parser.parse_args()
    print(json.dumps(measure(share=given.share, hours=given.hours), indent=1))  # noqa: T201
