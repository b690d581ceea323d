from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from harbourmaster.playground import installation as room
from harbourmaster.playground.commands import Layout
from harbourmaster.playground.errors import PlaygroundError
from harbourmaster.playground.group import living
from harbourmaster.playground.installation import (
    CONFIGURATIONS,
    Installation,
    Trial,
    count_reviews,
    missing,
)
from harbourmaster.playground.workloads import Workload

# Says with what it was started, and is ready when it listens.
STAND_IN = """
import http.server, sys
print("started", *sys.argv[2:], flush=True)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_):
        pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


@pytest.fixture
def plane(tmp_path):
    layout = Layout(tmp_path / "plane")
    return SimpleNamespace(layout=layout, port=1, admin=None, kubectl=None)


@pytest.fixture
def make(plane, monkeypatch):
    """Return a function that makes an installation of stand-ins; what it started ends."""
    made = []

    def command(workload, flags, service_port):
        extra = [*flags, str(service_port)]
        return [sys.executable, "-c", STAND_IN, str(workload.health_port), *extra]

    def install(installation):
        installation._shipped = {role: [f"--shipped={role}"] for role in room.ROLES}

    def start_kubelet(installation):
        installation._group.start("kubelet", ["/bin/sleep", "60"], os.environ)

    monkeypatch.setattr(Workload, "command", command)
    monkeypatch.setattr(Installation, "install", install)
    monkeypatch.setattr(Installation, "start_kubelet", start_kubelet)
    monkeypatch.setattr(room, "is_mounted", lambda _: True)
    monkeypatch.setattr(room, "missing", lambda *_: None)
    monkeypatch.setattr(room.Trial, "why_not", lambda _: None)

    def start(**options):
        made.append(Installation(plane, **options))
        return made[-1]

    yield start
    for installation in made:
        installation.stop()


def test_all_run_when_it_is_started_and_none_when_it_is_stopped(make):
    installation = make(webhooks=2)
    with installation:
        assert installation.running() == ["kubelet", "controller", "webhook", "webhook-2"]
    assert living(installation.files.records) == []


def test_each_step_is_shown_with_its_seconds(make):
    said = []
    make(progress=said.append).start()
    steps = [line.partition(" ... ") for line in said]
    assert [step for step, _, _ in steps] == [
        "manifests: kinds, service accounts, roles, service",
        "processes started: controller, webhook",
        "processes ready",
        "webhook configurations, and a pod's review answered",
    ]
    assert all(0 <= float(seconds.removesuffix(" s")) < 10 for _, _, seconds in steps)


def test_a_process_gets_the_flags_of_its_deployment_and_then_the_test_s(make):
    installation = make(arguments={"webhook": ["--more=1"]}, service_port=443)
    installation.start()
    assert installation.log("webhook").read_text() == "started --shipped=webhook 443 --more=1\n"
    assert installation.log("controller").read_text() == "started --shipped=controller 443\n"


def test_the_service_leads_to_the_first_webhook(make):
    installation = make(webhooks=2)
    assert installation.service_port == installation.webhooks[0].port


def test_something_may_stand_before_the_api_server_of_a_process(make):
    installation = make(api_ports={"webhook": 7})
    installation.start()
    for name, port in (("controller", 1), ("webhook", 7)):
        environment = Path(f"/proc/{installation.pid(name)}/environ").read_text().split("\0")
        assert f"KUBERNETES_SERVICE_PORT={port}" in environment


def test_every_port_is_another(make):
    workloads = make(webhooks=3, controllers=2).workloads.values()
    ports = [port for workload in workloads for port in workload.ports.values()]
    assert len(set(ports)) == len(ports) == 14


def test_a_restarted_process_has_its_ports_and_new_flags(make):
    installation = make()
    installation.start()
    before = installation.pid("webhook")
    installation.restart("webhook", ["--new"])
    assert installation.pid("webhook") != before
    assert installation.log("webhook").read_text().endswith(" --new\n")


def test_a_killed_process_comes_back(make):
    installation = make()
    installation.start()
    installation.kill("controller")
    assert installation.running() == ["kubelet", "webhook"]
    installation.restart("controller")
    assert "controller" in installation.running()


def test_a_running_process_is_not_started_twice(make):
    installation = make()
    installation.start()
    with pytest.raises(PlaygroundError, match=r"^webhook is running already: "):
        installation.launch("webhook")


def test_a_failure_leaves_nothing_running(make, monkeypatch):
    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(room.Trial, "why_not", interrupt)
    installation = make()
    with pytest.raises(KeyboardInterrupt):
        installation.start()
    assert living(installation.files.records) == []


def test_webhooks_that_nobody_asks_end_the_wait(make, monkeypatch):
    monkeypatch.setattr(room.Trial, "why_not", lambda _: "nobody asks")
    installation = make()
    installation.files.logs.mkdir(parents=True)
    installation._group.start("controller", ["/bin/sleep", "60"], os.environ)
    monkeypatch.setattr(room, "READY_SECONDS", 0)
    with pytest.raises(PlaygroundError, match=r"^controller is not ready after .* \(nobody asks\)"):
        installation.await_answer()


def test_a_controller_that_ends_ends_the_wait_for_its_certificate(make, monkeypatch):
    monkeypatch.setattr(room, "is_mounted", lambda path: path.name != "certs")
    monkeypatch.setattr(
        Workload, "command", lambda *_: ["/bin/sh", "-c", "echo no permission; exit 3"]
    )
    with pytest.raises(PlaygroundError) as raised:
        make().start()
    first, last = str(raised.value).splitlines()
    assert first.startswith("controller ended with exit code 3: see ")
    assert last.startswith("no permission")


def test_a_volume_that_does_not_come_is_named(make, monkeypatch):
    monkeypatch.setattr(room, "MOUNT_SECONDS", 0)
    monkeypatch.setattr(room, "is_mounted", lambda path: path.name != "certs")
    installation = make()
    with pytest.raises(PlaygroundError) as raised:
        installation.start()
    folder = installation.webhooks[0].certificates
    assert f"kubelet is not ready after 0 s (webhook waits for {folder})" in str(raised.value)


def test_beside_the_rest_of_a_crashed_one_it_asks_for_down(make):
    installation = make()
    installation.start()
    with pytest.raises(PlaygroundError, match="harbourmaster local down --dir"):
        make().start()
    assert len(installation.running()) == 3


def test_tokens_of_an_earlier_start_are_gone(make):
    installation = make()
    stale = installation.webhooks[0].identity / "token"
    stale.parent.mkdir(parents=True)
    stale.touch()
    installation.start()
    assert not stale.exists()


METRICS = """\
# TYPE harbourmaster_admission_duration_seconds histogram
harbourmaster_admission_duration_seconds_bucket{le="0.1",outcome="mutated"} 5.0
harbourmaster_admission_duration_seconds_count{outcome="mutated"} 3.0
harbourmaster_admission_duration_seconds_count{outcome="unmatched"} 2.0
harbourmaster_connections 9.0
"""


@pytest.fixture
def cluster(monkeypatch):
    """An API server and two webhooks; what each request does is for the test to say."""

    class Cluster:
        reviews = 0
        missing = ()

        def request(self, _port, _context, method, path, _body=None):
            self.asked.append((method, path))
            if path.rpartition("/")[2] in self.missing:
                raise PlaygroundError(f"{method} {path}: 404")
            if method == "POST":
                self.reviews += self.counts
            return b"{}"

        def ask(self, url):
            if url in self.missing:
                raise PlaygroundError("no answer")
            return 200, f"{room.REVIEWS} {self.reviews}\n"

    cluster = Cluster()
    cluster.counts = 1
    cluster.asked = []
    monkeypatch.setattr(room.api, "request", cluster.request)
    monkeypatch.setattr(room.api, "ask", cluster.ask)
    return cluster


def test_reviews_of_every_outcome_are_counted_once():
    assert count_reviews(METRICS) == 5


def test_everything_is_asked_for_until_something_is_missing(cluster):
    assert missing(1, None, ["/apis/a", "/apis/b"]) is None
    cluster.missing = ("b?limit=1",)
    assert missing(1, None, ["/apis/a", "/apis/b", "/apis/c"]) == "GET /apis/b?limit=1: 404"
    assert cluster.asked[-1] == ("GET", "/apis/b?limit=1")


def test_both_configurations_are_needed():
    assert [path.split("/")[-2:] for path in CONFIGURATIONS] == [
        ["mutatingwebhookconfigurations", "harbourmaster"],
        ["validatingwebhookconfigurations", "harbourmaster"],
    ]


@pytest.fixture
def trial(cluster):
    return Trial(1, None, ["http://a", "http://b"])


NOBODY = "the API server asks no webhook about a pod"


def test_a_pod_that_a_webhook_reviewed_is_seen_at_the_next_look(cluster, trial):
    assert trial.why_not() == NOBODY
    assert trial.why_not() is None
    assert cluster.asked == [("POST", "/api/v1/namespaces/default/pods?dryRun=All")]


def test_reviews_of_before_do_not_count(cluster, trial):
    cluster.reviews = 7
    cluster.counts = 0
    assert [trial.why_not() for _ in range(3)] == [NOBODY] * 3


def test_a_refused_pod_is_no_answer(cluster, trial):
    cluster.missing = ("pods?dryRun=All",)
    assert trial.why_not().endswith("404")


def test_a_webhook_that_does_not_tell_is_no_answer(cluster, trial):
    cluster.missing = ("http://b/metrics",)
    assert trial.why_not() == "no answer"
