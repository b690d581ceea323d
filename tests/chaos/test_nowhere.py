"""A kubeconfig that leads nowhere: one clear line, and no end of trying."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from harbourmaster.playground.api import ask
from harbourmaster.playground.ports import free_ports
from helpers.command import kubeconfig
from helpers.faults.proxied_installation import until
from helpers.processes import VALUE_PORTS

pytestmark = [pytest.mark.full, pytest.mark.slow, pytest.mark.timeout(300)]

ROLES = ["webhook", "controller"]
FLAGS = {
    "webhook": ["--port=0", "--cert-dir=."],
    "controller": ["--leader-election-lease-name=nowhere", *VALUE_PORTS],
}


def command(role, path):
    common = (f"--kubeconfig={path}", "--namespace=home", "--health-port=0", "--log-format=json")
    return [sys.executable, "-P", "-m", f"harbourmaster.{role}", *common, *FLAGS[role]]


@pytest.mark.parametrize("role", ROLES)
def test_a_server_that_is_not_there_is_told_once_and_tried_again(role, tmp_path):
    server = f"https://127.0.0.1:{free_ports(1)[0]}"
    path = kubeconfig(tmp_path, server)
    log = tmp_path / "log"
    with (
        log.open("wb") as output,
        subprocess.Popen(
            command(role, path), stdout=output, stderr=output, cwd=tmp_path
        ) as process,
    ):

        def starts():
            assert process.poll() is None, log.read_text()
            return lines(log, "started")

        try:
            (started,) = until(starts)[0]
            until(lambda: failures(started["health"]) > 10)
            status, text = ask(f"{started['health']}/readyz")
            assert process.poll() is None
        finally:
            process.terminate()
    assert status == 503
    why = f"cannot connect to {server} (kubeconfig {path}, context it): Connection refused"
    assert why in text
    assert "Traceback" not in log.read_text()
    told = lines(log, "watch disconnected, serving from cache")
    assert told
    assert all(why in line["error"] for line in told)
    assert len(told) == len({line["resource"] for line in told})


def lines(log, event):
    obj = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    return [line for line in obj if line["event"] == event]


def failures(health):
    text = ask(f"{health}/metrics")[1]
    samples = [
        it for it in text.splitlines() if it.startswith("harbourmaster_watch_failures_total")
    ]
    return sum(float(sample.split()[-1]) for sample in samples)
