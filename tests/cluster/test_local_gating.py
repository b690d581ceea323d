"""``harbourmaster local up --gating schedulerName``: pods wait in a scheduler that asks us."""

from __future__ import annotations

import json
import subprocess

import pytest

from harbourmaster.playground.build import ensure_binaries, find_kubectl
from helpers.cluster import eventually
from helpers.command import harbourmaster
from helpers.flow.manifests import container_task, deployment, keptn
from helpers.patience import PATIENCE, WAIT

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.slow]

SHOP = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": "shop", "annotations": {"keptn.sh/lifecycle-toolkit": "enabled"}},
}


@pytest.fixture
def directory(tmp_path):
    path = tmp_path / "harbour"
    flags = ("--gating=schedulerName", "--nodes=1")
    said = harbourmaster("local", "up", f"--dir={path}", *flags, seconds=2 * PATIENCE)
    assert said.returncode == 0, said.stderr
    assert "scheduler keptn-scheduler, which asks the controller" in said.stderr
    yield path
    harbourmaster("local", "down", f"--dir={path}", seconds=2 * PATIENCE)


@pytest.fixture
def kubectl(directory):
    def run(*arguments, stdin=None):
        kubeconfig = f"--kubeconfig={directory}/kubeconfig"
        command = [find_kubectl(ensure_binaries()), kubeconfig, "--namespace=shop", *arguments]
        text = None if stdin is None else json.dumps(stdin)
        return subprocess.run(
            command, input=text, capture_output=True, text=True, check=True
        ).stdout

    return run


def test_a_pod_waits_in_the_scheduler_until_its_checks_pass(directory, kubectl):
    status = harbourmaster("local", "status", f"--dir={directory}", seconds=PATIENCE)
    assert status.returncode == 0
    (line,) = [text for text in status.stdout.splitlines() if text.startswith("keptn-scheduler ")]
    assert "running, ready" in line
    kubectl("create", "--filename=-", stdin=SHOP)
    kubectl(
        "create",
        "--filename=-",
        stdin=deployment("cart", keptn("cart", "1", pre_deployment_tasks="migrate")),
    )

    def pod():
        listed = json.loads(kubectl("get", "pods", "--output=json"))["items"]
        return next((pod for pod in listed if "cart" in pod["metadata"]["name"]), None)

    def text():
        conditions = (pod() or {"status": {}})["status"].get("conditions", ())
        return "".join(condition.get("message", "") for condition in conditions)

    eventually(text, is_right=lambda value: "waits for" in value)
    assert pod()["spec"]["schedulerName"] == "keptn-scheduler"
    assert "schedulingGates" not in pod()["spec"]
    kubectl("create", "--filename=-", stdin=container_task("migrate"))
    assert "condition met" in kubectl("wait", "--for=condition=Available", "deployment/cart", WAIT)
