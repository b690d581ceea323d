"""``harbourmaster local up --with`` everything, used as a user would."""

from __future__ import annotations

import json
import re
import urllib.parse
import urllib.request

import pytest

from harbourmaster.playground.build import ensure_prometheus
from helpers.command import harbourmaster, kubectl_of
from helpers.patience import PATIENCE, WAIT

# A first run builds Prometheus.
pytestmark = pytest.mark.timeout(900)

FERRY = {
    "apiVersion": "placement.harbourmaster.dev/v1alpha1",
    "kind": "Application",
    "metadata": {"name": "ferry"},
    "spec": {
        "manifests": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ferry"}}]
    },
}
CONTAINER = {"name": "a", "image": "registry.example.com/a"}
# The annotation makes it critical for us and not for the scheduler, which would make room itself.
CRITICAL = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "dns",
        "namespace": "kube-system",
        "annotations": {"scheduler.alpha.kubernetes.io/critical-pod": ""},
    },
    "spec": {
        "tolerations": [{"key": "CriticalAddonsOnly", "operator": "Exists"}],
        "containers": [{**CONTAINER, "resources": {"requests": {"cpu": "10"}}}],
    },
}
FILLER = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "filler"},
    "spec": {
        "selector": {"matchLabels": {"app": "filler"}},
        "template": {
            "metadata": {"labels": {"app": "filler"}},
            "spec": {"containers": [{**CONTAINER, "resources": {"requests": {"cpu": "30"}}}]},
        },
    },
}


@pytest.fixture(scope="module")
def up(tmp_path_factory):
    """The result of ``up``, and the folder."""
    ensure_prometheus()
    directory = tmp_path_factory.mktemp("capabilities") / "harbour"
    flags = ("--with=rescheduling,placement,monitoring", "--dashboard", "--members=1", "--nodes=1")
    said = harbourmaster("local", "up", f"--dir={directory}", *flags, seconds=4 * PATIENCE)
    yield said, directory
    down = harbourmaster("local", "down", f"--dir={directory}", seconds=2 * PATIENCE)
    assert {"member-1 etcd", "prometheus"} <= set(down.stderr.removeprefix("ended ").split(", "))


@pytest.fixture
def kubectl(up):
    said, directory = up
    assert said.returncode == 0, said.stderr
    return kubectl_of(directory / "kubeconfig")


def address(up, name):
    return re.search(rf"^{name}.*: (\S+)$", up[0].stderr, re.MULTILINE)[1]


def test_the_token_opens_the_dashboard(up, kubectl):
    url, token = address(up, "dashboard"), address(up, "token")
    request = urllib.request.Request(  # noqa: S310
        f"{url}login",
        data=urllib.parse.urlencode({"token": token}).encode(),
        headers={"Origin": url.rstrip("/")},
    )
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with opener.open(request, timeout=PATIENCE) as answer:
        assert (answer.status, answer.url) == (200, url)


def test_prometheus_has_our_metrics_and_rules(up, kubectl):
    with urllib.request.urlopen(f"{address(up, 'Prometheus')}/api/v1/rules") as answer:  # noqa: S310
        groups = json.load(answer)["data"]["groups"]
    assert "harbourmaster-objective" in {group["name"] for group in groups}


def test_an_application_runs_on_the_member_cluster(kubectl):
    kubectl("apply", "-f=-", stdin=json.dumps(FERRY))
    wanted = "--for=jsonpath={.status.runningOn.name}=member-1"
    assert "condition met" in kubectl("wait", wanted, "kapp/ferry", WAIT).stdout


def test_room_is_made_for_a_critical_pod(kubectl):
    kubectl("apply", "-f=-", stdin=json.dumps(FILLER))
    kubectl("wait", "--for=condition=Available", "deployment/filler", WAIT)
    kubectl("apply", "-f=-", stdin=json.dumps(CRITICAL))
    kubectl("wait", "--for=condition=Ready", "pod/dns", "--namespace=kube-system", WAIT)
    selected = "--field-selector=reason=EvictedByRescheduler"
    assert "pod/filler-" in kubectl("get", "events", selected).stdout
