"""Webhook and controllers keep the invariants in spite of faults, with any seed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SEEDS = os.environ.get("HARBOURMASTER_SIMULATION_SEEDS", "1-4")
"""The seeds; ``make mutants`` runs more of them."""
pytestmark = pytest.mark.timeout(900)


def simulate(*arguments, **environment):
    """Run a simulation; return its exit code and its output."""
    done = subprocess.run(
        [sys.executable, "-m", "simulation", *arguments],
        env={**os.environ, "PYTHONPATH": str(TESTS), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.gate
def test_invariants_hold():
    code, output = simulate(f"--seed={SEEDS}")
    assert code == 0, output


@pytest.mark.gate
def test_the_same_seed_gives_the_same_trace_in_every_process():
    first = simulate("--seed=7", "--steps=20", PYTHONHASHSEED="1")
    second = simulate("--seed=6-7", "--steps=20", PYTHONHASHSEED="2")
    traces = [re.findall(r"^seed 7: .*", output, re.MULTILINE) for _, output in (first, second)]
    digests = [re.findall(r"trace \w+", line[0]) for line in traces]
    assert digests[0] == digests[1]
    assert len(digests[0]) == 1


@pytest.mark.full
def test_invariants_hold_for_many_seeds():
    code, output = simulate("--seed=1000-1200")
    assert code == 0, output
