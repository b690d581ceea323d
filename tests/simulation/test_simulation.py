"""Webhook and controllers among faults keep what must hold, whatever the seed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SEEDS = os.environ.get("HARBOURMASTER_SIMULATION_SEEDS", "1-4")
"""What make mutants asks more of."""
pytestmark = pytest.mark.timeout(900)


def simulate(*arguments, **environment):
    """Run ``make simulate``; return its exit code and what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "simulation", *arguments],
        env={**os.environ, "PYTHONPATH": str(TESTS), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.gate
def test_what_must_hold_holds():
    code, said = simulate(f"--seed={SEEDS}")
    assert code == 0, said


@pytest.mark.gate
def test_the_same_seed_gives_the_same_trace_in_every_process():
    first = simulate("--seed=7", "--steps=20", PYTHONHASHSEED="1")
    second = simulate("--seed=6-7", "--steps=20", PYTHONHASHSEED="2")
    traces = [re.findall(r"^seed 7: .*", said, re.MULTILINE) for _, said in (first, second)]
    digests = [re.findall(r"trace \w+", line[0]) for line in traces]
    assert digests[0] == digests[1]
    assert len(digests[0]) == 1


@pytest.mark.full
def test_what_must_hold_holds_for_many_seeds():
    code, said = simulate("--seed=1000-1200")
    assert code == 0, said
