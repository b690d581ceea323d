"""The first commands of README.md, which lead to a pod whose check fails, and to the reason."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from harbourmaster.playground.build import ensure_binaries
from helpers.cluster import eventually
from helpers.command import harbourmaster
from helpers.manual_commands import ROOT, blocks
from helpers.patience import PATIENCE

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]

ENOUGH = 5


@pytest.fixture
def state(tmp_path):
    """The directory of states, in which nothing runs afterwards."""
    yield tmp_path / "state"
    directory = tmp_path / "state/harbourmaster/local"
    ended = harbourmaster("local", "down", f"--dir={directory}", seconds=4 * PATIENCE)
    assert ended.returncode == 0, ended.stderr


def test_the_first_commands_of_the_readme_lead_to_a_failed_check_and_its_reason(state):
    ensure_binaries()
    first = next(block for block in blocks(ROOT / "README.md") if block.how != "not run")
    commands = first.text.splitlines()
    assert len(commands) <= ENOUGH
    assert commands[0] == "make venv"
    # The environment in which this test runs is not created again.
    bin_ = Path(sys.executable).parent
    script = "\n".join(commands[1:]).replace(".venv/bin", str(bin_))
    kept = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
    done = subprocess.run(
        ["bash", "-c", f"set -euo pipefail\n{script}"],
        cwd=ROOT,
        env={**kept, "XDG_STATE_HOME": str(state)},
        capture_output=True,
        text=True,
        check=False,
        timeout=4 * PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    kubeconfig = state / "harbourmaster/local/kubeconfig"
    command, *words = commands[-1].split()
    assert command == ".venv/bin/harbourmaster"
    told = eventually(
        lambda: harbourmaster(*words, kubeconfig=kubeconfig).stdout,
        is_right=lambda text: re.search(r"\bfew-errors\b.*\bFailed\b", text),
    )
    # The check with its value and target, and what to do.
    assert re.search(r"errors-per-minute\b.*\b7\b.*<5", told)
    assert "new version" in told
    assert "harbourmaster gate release shop/till-" in told
