from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from harbourmaster.playground.group import lives, living
from harbourmaster.playground.installation import Installation
from harbourmaster.playground.processes import Process, read_records
from harbourmaster.playground.workloads import CERTIFICATE_KEYS
from helpers.cluster import eventually
from helpers.command import kubectl_of, local
from helpers.patience import WAIT

pytestmark = pytest.mark.gate

COMPONENTS = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"]
OURS = ["kubelet", "controller", "webhook"]
ACCOUNTS = {
    f"system:serviceaccount:harbourmaster-system:harbourmaster-{role}"
    for role in ("controller", "webhook")
}
SECRET = ("get", "secret/harbourmaster-webhook-cert", "--namespace=harbourmaster-system", "-o=json")


def records(directory):
    files = (directory / "pids.json", directory / "harbourmaster.json")
    return [record for file in files for record in read_records(file) or []]


def end(directory, name):
    (record,) = [process for process in records(directory) if process.name == name]
    Process.find(record).finish(0)


@pytest.fixture(scope="module")
def up(local_up):
    """The result of ``up``."""
    _, said = local_up
    assert said.returncode == 0, said.stderr
    return said


@pytest.fixture(scope="module")
def kubectl(local_up, up):
    """Return ``kubectl(*arguments, stdin=None, check=True)`` for what ``up`` started."""
    kubeconfig = up.stdout.strip().removeprefix("export KUBECONFIG=")
    assert kubeconfig == str(local_up[0] / "kubeconfig")
    return kubectl_of(kubeconfig)


def test_up_tells_each_step_and_how_long_it_took(up):
    *steps, ready, title, apply, run, down = up.stderr.splitlines()
    assert [step.partition(" ... ")[0] for step in steps] == [
        "control plane: etcd, API server, controllers, scheduler, kwok",
        "manifests: kinds, service accounts, roles, service",
        "processes started: controller, webhook",
        "processes ready",
        "webhook configurations, and a pod's review answered",
        "2 nodes ready",
    ]
    assert ready.startswith("ready after ")
    assert float(ready.split()[2]) > 0
    assert title.endswith(":")
    commands = [line.split()[0] for line in (apply, run, down)]
    assert commands == ["kubectl", "kubectl", "harbourmaster"]


def test_what_up_suggests_works(up, kubectl):
    apply, run = (line.split()[1:] for line in up.stderr.splitlines()[-3:-1])
    kubectl(*apply)

    def try_pod():
        return json.loads(kubectl(*run[:-2], "-o=json", "--dry-run=server").stdout)["spec"]

    spec = eventually(try_pod, is_right=lambda spec: "example.com/dedicated-to" in json.dumps(spec))
    added = [
        toleration
        for toleration in spec["tolerations"]
        if toleration["key"] == "example.com/dedicated-to"
    ]
    assert len(added) == 1


def test_all_run_and_are_ready(local_up, up):
    status = local("status", local_up[0])
    lines = [line.split(maxsplit=1) for line in status.stdout.splitlines()]
    assert [name for name, _ in lines] == [*COMPONENTS, *OURS]
    assert {what.partition(";")[0].strip() for name, what in lines if name != "kubelet"} == {
        "running, ready"
    }
    assert status.returncode == 0


def test_two_nodes_run_pods(kubectl):
    nodes = json.loads(kubectl("get", "nodes", "-o=json").stdout)["items"]
    assert len(nodes) == 2
    name = "running"
    kubectl("create", "namespace", name)
    kubectl("wait", "--for=create", WAIT, "serviceaccount/default", f"--namespace={name}")
    kubectl("run", "pod", "--image=none", f"--namespace={name}")
    kubectl("wait", "--for=condition=Ready", "pod/pod", WAIT, f"--namespace={name}")


def test_the_api_server_calls_the_service_by_its_name(kubectl):
    service = ("service/harbourmaster-webhook", "--namespace=harbourmaster-system")
    spec = kubectl("get", *service, "-o=jsonpath={.spec.type} {.spec.externalName}").stdout
    assert spec == "ExternalName localhost"
    for kind in ("mutating", "validating"):
        result = kubectl("get", f"{kind}webhookconfiguration/harbourmaster", "-o=json").stdout
        for webhook in json.loads(result)["webhooks"]:
            assert webhook["clientConfig"]["service"]["name"] == "harbourmaster-webhook"
            assert "url" not in webhook["clientConfig"]


def test_both_work_as_their_own_service_accounts_and_nothing_is_refused(local_up, kubectl):
    log = local_up[0] / "logs" / "audit.log"
    events = [json.loads(line) for line in log.read_text().splitlines()]
    ours = [event for event in events if event["user"]["username"] in ACCOUNTS]
    assert {event["user"]["username"] for event in ours} == ACCOUNTS
    refused = {
        (event["user"]["username"], event["verb"], event["requestURI"])
        for event in ours
        if event.get("responseStatus", {}).get("code") in {401, 403}
    }
    assert refused == set()


def test_the_webhook_has_no_admin_s_way_to_the_api_server(local_up, up):
    for name in ("controller", "webhook"):
        (record,) = [process for process in records(local_up[0]) if process.name == name]
        environment = Path(f"/proc/{record.pid}/environ").read_text().split("\0")
        assert not [line for line in environment if line.startswith("KUBECONFIG=")]
        command = Path(f"/proc/{record.pid}/cmdline").read_text()
        assert "kubeconfig" not in command


def test_the_certificate_is_mounted_as_the_secret_has_it(local_up, kubectl):
    volume = local_up[0] / "pods" / "webhook" / "certs"
    data = json.loads(kubectl(*SECRET).stdout)["data"]
    mounted = {path.name: path.read_bytes() for path in (volume / "..data").iterdir()}
    assert mounted == {key: base64.b64decode(data[key]) for key in CERTIFICATE_KEYS}


@pytest.mark.full
def test_parts_that_ended_show_and_start_again_and_down_ends_the_rest(tmp_path):
    directory = tmp_path / "harbour"
    up = local("up", directory, "--nodes=0")
    assert up.returncode == 0, up.stderr
    for name in ("etcd", "kubelet", "webhook"):
        end(directory, name)
    again = local("up", directory)
    assert (again.returncode, again.stdout) == (0, up.stdout)
    assert again.stderr == f"harbourmaster in {directory} started again: etcd, kubelet, webhook\n"
    assert local("status", directory).returncode == 0
    end(directory, "webhook")
    status = local("status", directory)
    assert status.returncode == 1
    assert f"ended: see {directory / 'logs' / 'webhook.log'}; ports webhook " in status.stdout
    end(directory, "kube-apiserver")
    before = records(directory)
    down = local("down", directory)
    alive = [name for name in [*OURS, *COMPONENTS] if name not in {"webhook", "kube-apiserver"}]
    assert down.returncode == 0
    assert sorted(down.stderr.strip().removeprefix("ended ").split(", ")) == sorted(alive)
    assert [record.name for record in before if lives(record)] == []


@pytest.mark.full
def test_a_failed_up_says_why_and_leaves_nothing_running(tmp_path):
    directory = tmp_path / "harbour"
    up = local("up", directory, "--nodes=0", "--webhook-args=--no-such-flag=1")
    assert up.returncode == 1
    assert "webhook ended with exit code 2: see " in up.stderr
    assert "--no-such-flag" in up.stderr
    assert up.stdout == ""
    assert living(directory / "pids.json") == living(directory / "harbourmaster.json") == []
    assert local("status", directory).returncode == 1


@pytest.fixture
def installation(throwaway_control_plane):
    plane = throwaway_control_plane(optional=("kube-controller-manager",))
    # A new authority is otherwise made known for 30 s before anything is signed by it.
    flags = {"controller": ["--certificates-publish-seconds=0"]}
    with Installation(plane, webhooks=2, controllers=2, arguments=flags) as installation:
        installation.kubectl = plane.kubectl
        yield installation


@pytest.mark.full
def test_a_new_certificate_is_mounted_for_each_webhook(installation):
    volumes = [webhook.certificates for webhook in installation.webhooks]
    before = [(volume / "tls.crt").read_bytes() for volume in volumes]
    assert before[0] == before[1]
    installation.kubectl("delete", *SECRET[1:3])
    after = eventually(
        lambda: [(volume / "tls.crt").read_bytes() for volume in volumes],
        is_right=lambda value: value[0] == value[1] != before[0],
    )
    data = json.loads(installation.kubectl(*SECRET).stdout)["data"]
    assert base64.b64decode(data["tls.crt"]) == after[0]
