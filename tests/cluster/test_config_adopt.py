"""A KeptnConfig of another namespace: ignored aloud, then adopted by an administrator."""

from __future__ import annotations

import asyncio

import pytest

from harbourmaster.api.resources import KEPTN_CONFIGS, WORKLOAD_VERSIONS
from helpers.command import harbourmaster
from helpers.flow.installation import CONFIG, DEFAULTS, HOME
from helpers.flow.manifests import container_task, deployment, keptn, of_kind
from helpers.patience import WAIT

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture
async def unconfigured(harbour, client):
    """No KeptnConfig is in force."""
    await client.delete(KEPTN_CONFIGS, CONFIG, HOME)
    yield
    await client.delete(KEPTN_CONFIGS, "adopted", HOME, missing_ok=True)
    await harbour.configure(client, DEFAULTS)


@pytest.mark.usefixtures("unconfigured")
async def test_one_of_another_namespace_counts_once_it_is_adopted(flow, harbour):
    name = f"{flow.namespace}/keptn-config"

    async def adopt(*words):
        return await asyncio.to_thread(
            harbourmaster, "config", "adopt", *words, kubeconfig=harbour.plane.kubeconfig
        )

    await flow.create(of_kind("KeptnConfig", "keptn-config", {"blockDeployment": False}))
    told = await flow.until_told("ReconcileConfigFailed")
    assert f"harbourmaster config adopt {name}" in told["note"]
    waiting = await adopt()
    assert (waiting.returncode, waiting.stdout.partition(":")[0]) == (1, name)
    adopted = await adopt(name)
    assert adopted.returncode == 0, adopted.stderr
    where = ("keptnconfig/keptn-config", f"--namespace={flow.namespace}")
    ready = "--for=jsonpath={.status}=in force"
    await asyncio.to_thread(harbour.plane.kubectl, "wait", ready, *where, WAIT)
    await flow.create(
        container_task("failing", "fail"),
        deployment("ledger", keptn("ledger", pre_deployment_tasks="failing")),
    )
    version = await flow.until_ended(WORKLOAD_VERSIONS, "ledger-ledger-1.0")
    assert version["status"]["preDeploymentStatus"] == "Warning"
    assert (await adopt()).returncode == 0
