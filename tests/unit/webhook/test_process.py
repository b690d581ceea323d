from __future__ import annotations

import asyncio
import socket
from datetime import UTC, datetime

import pytest

from harbourmaster.api.decoding import describe
from harbourmaster.certs.store import ensure
from harbourmaster.kube.settings import ClusterSettings
from harbourmaster.serving.background import running
from harbourmaster.serving.process import run_process
from harbourmaster.serving.settings import ServerSettings
from harbourmaster.webhook.process import _Process, run
from harbourmaster.webhook.settings import WebhookSettings
from helpers.certificates import call_in_process
from helpers.patience import PATIENCE
from helpers.processes import KUBECONFIG

VERSION = "^/version$"
NAMESPACES = "^/api/v1/namespaces$"


@pytest.fixture
def taken():
    """A port that another process listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def started(monkeypatch, capsys, tmp_path):
    """Return a function that runs the process with flags, for its exit code and its stderr."""

    async def return_at_once(_):
        return None

    monkeypatch.setattr("harbourmaster.webhook.process.disable_core_dumps", lambda: None)
    monkeypatch.setattr("harbourmaster.webhook.process.configure_logging", lambda *_: None)
    # As if the API server had told all.
    monkeypatch.setattr(
        "harbourmaster.webhook.cluster_state.ClusterState.wait_until_synced", return_at_once
    )
    monkeypatch.setattr("harbourmaster.webhook.process.gc.freeze", lambda: None)
    ensure(tmp_path / "certs", ("localhost",), datetime.now(UTC))
    (tmp_path / "kubeconfig").write_text(KUBECONFIG.format(port=9))

    def start(*flags):
        given = (f"--kubeconfig={tmp_path}/kubeconfig", f"--cert-dir={tmp_path}/certs")
        code = run_process("webhook", run, WebhookSettings, describe, (*given, *flags))
        return code, capsys.readouterr().err

    return start


@pytest.mark.parametrize("port", ["port", "health-port"])
def test_a_port_in_use_is_one_line(started, taken, port):
    free_port = "health-port" if port == "port" else "port"
    code, said = started(f"--{port}={taken}", f"--{free_port}=0", "--gating=schedulingGates")
    last = said.splitlines()[-1]
    assert code == 2
    assert last.startswith(f"webhook: 127.0.0.1 port {taken}: the port is in use; ")
    assert "Traceback" not in said


@pytest.fixture
def process(api, monkeypatch, tmp_path):
    """Return a function that makes a process on the fake API server, not yet run."""
    monkeypatch.setattr("harbourmaster.webhook.process.gc.freeze", lambda: None)
    monkeypatch.setattr("harbourmaster.certs.child._call", call_in_process)
    ensure(tmp_path, ("localhost",), datetime.now(UTC))

    def make(drain_seconds=0, **settings):
        server = ServerSettings(
            port=0, health_port=0, cert_dir=str(tmp_path), drain_seconds=drain_seconds
        )
        given = WebhookSettings(server=server, cluster=ClusterSettings(), **settings)
        return _Process(given, api.connection, None, None)

    return make


async def test_no_review_is_taken_before_namespaces_and_policies_are_known(api, process):
    api.fail_next("GET", NAMESPACES, None, status=403)
    made = process(gating="schedulingGates")
    async with asyncio.timeout(PATIENCE), running(made.run()):
        # By then it would serve, if it did not wait.
        await api.until_seen("GET", NAMESPACES, 4)
        assert made._server.reviews is None
        assert "starting" in await made._server.readiness.failing()


async def test_no_review_is_taken_before_it_is_known_what_becomes_of_a_gate(api, process):
    api.fail_next("GET", VERSION, None, status=403)
    made = process()
    async with asyncio.timeout(PATIENCE), running(made.run()):
        await made._cluster.wait_until_synced()
        # By then it would serve, if it did not wait.
        await api.until_seen("GET", VERSION, 3)
        failing = await made._server.readiness.failing()
        assert failing.keys() == {"starting", "gating"}
        assert "set gating" in failing["gating"]
        assert "get /version: 403" in failing["gating"]
        api.heal()
        await made._choice.wait_until_chosen()
        assert "gating" not in await made._server.readiness.failing()


@pytest.mark.parametrize(
    "settings",
    [{"gating": "schedulingGates"}, {"gating": "schedulerName"}, {"features": ("policies",)}],
)
async def test_nobody_asks_for_a_version_that_decides_nothing(api, process, settings):
    made = process(**settings)
    async with asyncio.timeout(PATIENCE), running(made.run()):
        await made._cluster.wait_until_synced()
        assert "gating" not in await made._server.readiness.failing()
    assert api.seen("GET", VERSION) == []


@pytest.mark.parametrize(("signal", "seconds"), [("SIGTERM", 7), ("SIGINT", 0)])
async def test_only_a_cluster_waits_for_its_endpoints(process, monkeypatch, signal, seconds):
    times = []

    async def record_drain(_site, _readiness, **given):
        times.append(given)
        return 0

    monkeypatch.setattr("harbourmaster.webhook.server.drain", record_drain)
    server = process(drain_seconds=7)._server
    server.reviews = object()
    await server.drain(signal)
    assert times == [{"wait": seconds, "cap": 3 * seconds}]
