"""``harbourmaster why`` of pods that started without their checks, on a real control plane."""

from __future__ import annotations

import asyncio
import json

import pytest

from harbourmaster.api.patches import MergePatch
from harbourmaster.api.resources import DEPLOYMENTS
from harbourmaster.cli.main import main
from helpers.flow.manifests import deployment, keptn

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.slow]

CHANGED = "registry.example.com/changed:2"


@pytest.fixture
def gate(harbour, capsys):
    """Return ``gate(kind, namespace, name)``: the section on the gate."""

    async def ask(kind, namespace, name):
        command = ["why", kind, f"{namespace}/{name}", "-o", "json"]
        kubeconfig = ["--kubeconfig", str(harbour.plane.kubeconfig)]
        capsys.readouterr()
        assert await asyncio.to_thread(main, [*command, *kubeconfig]) == 0
        sections = json.loads(capsys.readouterr().out)["sections"]
        return next(section for section in sections if section["name"] == "gate")

    return ask


async def test_an_image_that_changed_without_its_version_is_told(flow, client, gate):
    made = deployment("ledger", keptn("ledger"))
    await flow.create(made)
    await flow.until_released("ledger")
    assert (await gate("deployment", flow.namespace, "ledger"))["code"] == "released"
    (container,) = made["spec"]["template"]["spec"]["containers"]
    image = {"containers": [{**container, "image": CHANGED}]}
    patch = MergePatch({"spec": {"template": {"spec": image}}})
    await client.patch(DEPLOYMENTS, "ledger", patch, flow.namespace)
    facts = await gate("deployment", flow.namespace, "ledger")
    assert (facts["code"], facts["state"]) == ("version-not-raised", "fault")
    told = f"version 1.0 passed its checks with {container['image']} (ReplicaSet ledger-"
    assert facts["summary"].startswith(told)
    assert facts["summary"].endswith(f"and {CHANGED} starts without checks")
