"""``harbourmaster local up --gating schedulerName``: pods wait in a scheduler that asks us."""

from __future__ import annotations

import json

import pytest

from helpers.cluster import eventually
from helpers.command import harbourmaster, kubectl_of
from helpers.flow.manifests import container_task, deployment, keptn
from helpers.patience import PATIENCE, WAIT

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


def test_a_pod_waits_in_the_scheduler_until_its_checks_pass(directory):
    kubectl = kubectl_of(directory / "kubeconfig", "--namespace=shop")
    status = harbourmaster("local", "status", f"--dir={directory}", seconds=PATIENCE)
    assert status.returncode == 0
    (line,) = [text for text in status.stdout.splitlines() if text.startswith("keptn-scheduler ")]
    assert "running, ready" in line
    kubectl("create", "--filename=-", stdin=json.dumps(SHOP))
    cart = deployment("cart", keptn("cart", "1", pre_deployment_tasks="migrate"))
    kubectl("create", "--filename=-", stdin=json.dumps(cart))

    def pod():
        listed = json.loads(kubectl("get", "pods", "--output=json").stdout)["items"]
        return next((pod for pod in listed if "cart" in pod["metadata"]["name"]), None)

    def text():
        conditions = (pod() or {"status": {}})["status"].get("conditions", ())
        return "".join(condition.get("message", "") for condition in conditions)

    eventually(text, is_right=lambda value: "waits for" in value)
    assert pod()["spec"]["schedulerName"] == "keptn-scheduler"
    assert "schedulingGates" not in pod()["spec"]
    kubectl("create", "--filename=-", stdin=json.dumps(container_task("migrate")))
    assert (
        "condition met"
        in kubectl("wait", "--for=condition=Available", "deployment/cart", WAIT).stdout
    )
