from __future__ import annotations

import subprocess
import sys

import pytest

from harbourmaster.api.decoding import describe
from harbourmaster.api.resources import NAMESPACES
from harbourmaster.controller.process import run
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.serving.process import run_process
from helpers.processes import observe
from helpers.tracing import Collector, attributes

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: x
contexts: [{name: x, context: {cluster: x, user: x}}]
clusters: [{name: x, cluster: {server: "http://127.0.0.1:9"}}]
users: [{name: x, user: {}}]
"""


@pytest.fixture
def start_process(monkeypatch, capsys, tmp_path):
    """Return a function that runs the process with flags: its exit code and its message."""
    monkeypatch.setattr("harbourmaster.controller.process.disable_core_dumps", lambda: None)
    monkeypatch.setattr("harbourmaster.controller.process.configure_logging", lambda *_: None)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "POD_NAMESPACE", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)

    def start(*flags):
        code = run_process("controller", run, ControllerSettings, describe, flags)
        return code, capsys.readouterr().err

    return start


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ([], "own namespace unknown: set --namespace, or $POD_NAMESPACE in the pod"),
        (["--namespace=a", "--kubeconfig=/nonexistent/config"], "/nonexistent/config"),
        (["--namespace=a"], "no API server: no kubeconfig is given"),
        (["--webhook-timeout-seconds=31"], "--webhook-timeout-seconds: "),
        (
            ["--namespace=a", "--webhook-kinds=pod"],
            'webhook.kinds[0]: Unsupported value: "pod": supported values: ',
        ),
        (["--config=/nonexistent.yaml"], "/nonexistent.yaml"),
    ],
)
def test_what_keeps_it_from_starting_is_one_line(start_process, flags, text):
    code, said = start_process(*flags)
    assert code == 2
    assert said.startswith("controller: ")
    assert text in said
    assert said.count("\n") == 1


def test_the_pod_s_namespace_comes_from_its_environment(start_process, monkeypatch):
    monkeypatch.setenv("POD_NAMESPACE", "harbour")
    assert "no API server" in start_process()[1]


def test_an_address_of_another_machine_is_one_line(start_process, tmp_path):
    (tmp_path / "config").write_text(KUBECONFIG)
    kubeconfig = f"--kubeconfig={tmp_path / 'config'}"
    code, said = start_process("--namespace=a", kubeconfig, "--host=192.0.2.1")
    assert code == 2
    text = "192.0.2.1 port 8080: this machine has no such address; choose one that it has"
    assert said == f"controller: {text}\n"


@pytest.mark.slow
def test_it_is_a_module_to_run():
    command = [sys.executable, "-m", "harbourmaster.controller", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "--certificates-adopt-secret" in done.stdout


def is_of_registration(span):
    return attributes(span).get("harbourmaster.controller") == "registration"


@pytest.mark.slow
async def test_the_process_counts_its_requests_and_traces_its_work(api, tmp_path):
    api.put(NAMESPACES, {"metadata": {"name": "harbour"}})
    async with Collector() as collector:
        flags = (f"--tracing-endpoint={collector.url}", "--tracing-sample-ratio=1")
        async with observe("controller", tmp_path, api.port, *flags) as process:
            health = (await process.event("started"))["health"]
            listed = 'harbourmaster_api_requests_total{code="200",verb="list"}'
            assert await process.metric(health, listed) >= 1
            assert await process.metric(health, "harbourmaster_event_loop_lag_seconds") >= 0
            span, resource = await collector.until(is_of_registration)
            assert await process.end() == 0
    assert span.name == "reconcile"
    assert resource["service.name"] == "harbourmaster-controller"
    assert resource["service.instance.id"] == "controller-1"
