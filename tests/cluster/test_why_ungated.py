"""``harbourmaster why`` of pods that started without their checks, on a real control plane."""

from __future__ import annotations

import asyncio
import json

import pytest

from harbourmaster.api.patches import MergePatch
from harbourmaster.api.resources import DEPLOYMENTS, NAMESPACES, PODS
from harbourmaster.cli.main import main
from helpers.flow.manifests import deployment, keptn

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.slow]

OPT_IN = "keptn.sh/lifecycle-toolkit"
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


async def test_pods_that_are_older_than_the_opt_in_are_to_be_restarted(harbour, client, gate):
    async with harbour.flow(client, "late", enabled=False) as flow:
        await flow.create(deployment("ledger", keptn("ledger")))
        await flow.until_all(PODS, {"spec": {"nodeName": str}})
        (pod,) = flow.all(PODS)
        name = pod["metadata"]["name"]
        facts = await gate("pod", flow.namespace, name)
        assert (facts["code"], facts["state"]) == ("not-opted-in", "note")
        assert facts["next"] == f"kubectl annotate namespace {flow.namespace} {OPT_IN}=enabled"
        patch = MergePatch({"metadata": {"annotations": {OPT_IN: "enabled"}}})
        await client.patch(NAMESPACES, flow.namespace, patch)
        for kind, of in (("pod", name), ("deployment", "ledger")):
            facts = await gate(kind, flow.namespace, of)
            assert (facts["code"], facts["state"]) == ("admitted-before", "fault")
            restart = f"kubectl -n {flow.namespace} rollout restart deployment/ledger"
            assert facts["next"] == restart


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
