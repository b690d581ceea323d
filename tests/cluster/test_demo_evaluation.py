"""``make demo-evaluation`` as a user runs it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys

import pytest

from playground.build import ensure_binaries, ensure_prometheus, find_kubectl
from playground.group import living

# A first run builds Prometheus.
pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]
RECORDS = ("pids.json", "harbourmaster.json", "prometheus/prometheus.json")
KEPT = re.compile(r"All of it runs on until Ctrl-C: export KUBECONFIG=(.*)\n")


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """A demo that has shown all and runs on: its folder, what it printed, and a way to end it."""
    ensure_prometheus()
    directory = tmp_path_factory.mktemp("demo") / "harbour"
    command = [sys.executable, "-m", "playground", "demo-evaluation", "--keep"]
    child = subprocess.Popen(
        [*command, f"--dir={directory}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # A test's own cluster must not be meant.
        env={name: value for name, value in os.environ.items() if name != "KUBECONFIG"},
    )

    def end():
        child.send_signal(signal.SIGINT)
        return child.wait(60)

    lines = []
    with child:
        try:
            for line in child.stdout:
                lines.append(line)
                if KEPT.match(line):
                    break
            yield directory, lines, end
        finally:
            child.kill()


@pytest.fixture(scope="module")
def shown(demo):
    """What the demo printed, up to its last step."""
    _, lines, _ = demo
    assert KEPT.match(lines[-1]), "".join(lines)
    return lines


def rows(lines, command):
    """The tables that follow a command, by its words; each row split into words."""
    tables, table = [], None
    for line in lines:
        if line.startswith("$ "):
            table = [] if command in line else None
            if table is not None:
                tables.append(table)
        elif table is not None and line.startswith("  "):
            table.append(line.split())
    return tables


def test_a_failed_evaluation_holds_the_pod_back_and_a_met_one_lets_it_run(shown):
    failed, succeeded = rows(shown, "get pods")
    assert [(row[0], row[1]) for row in failed[1:]] == [("1.0", "Pending")]
    assert "SchedulingGated" in failed[1]
    assert ("1.1", "Running") in [(row[0], row[1]) for row in succeeded[1:]]


def test_the_message_of_the_evaluation_says_why(shown):
    text = "".join(shown)
    assert "value '0' did not meet objective '>0'" in text
    assert "value '1' met objective '>0'" in text


def test_what_is_kept_answers_and_ctrl_c_ends_all_of_it(demo, shown):
    directory, _, end = demo
    kubeconfig = KEPT.match(shown[-1])[1]
    command = [find_kubectl(ensure_binaries()), f"--kubeconfig={kubeconfig}", "get", "pods"]
    found = subprocess.run(
        [*command, "--namespace=market", "--output=json"], capture_output=True, check=True
    )
    phases = {pod["status"]["phase"] for pod in json.loads(found.stdout)["items"]}
    assert "Running" in phases
    assert all(living(directory / name) for name in RECORDS)
    assert end() == 0
    assert not any(living(directory / name) for name in RECORDS)
