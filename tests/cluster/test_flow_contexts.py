"""Contexts of apps that come after the workloads, as Helm and Argo CD apply them.

They run with the default delay, which other tests switch off.
"""

from __future__ import annotations

import asyncio

import pytest

from harbourmaster.api.resources import APP_VERSIONS
from helpers.flow.manifests import app_context, container_task, deployment, keptn

GAPS = (0.5, 2.0)
"""Seconds between the Deployment and the context of its app."""


@pytest.fixture
def controller_flags():
    return ("--lifecycle-app-context-delay-seconds=3",)


@pytest.mark.parametrize("count", [pytest.param(1, marks=pytest.mark.gate), 6])
async def test_contexts_that_come_after_their_workloads_hold_them(flow, count):
    """Each context belongs to a first version of an app, or changes with a later one."""
    await flow.create(container_task("failing", "fail"), container_task("quick"))
    apps = [(f"{stem}-{at}", GAPS[at % 2]) for stem in ("new", "old") for at in range(2 * count)]

    async def deploy_first_version(name):
        await flow.create(app_context(name, preDeploymentTasks=["quick"]))
        await flow.create(deployment(name, keptn(name, "1")))
        await flow.until_released(name)

    async def release(name, gap):
        if name.startswith("new"):
            await flow.create(deployment(name, keptn(name, "1")))
            await asyncio.sleep(gap)
            await flow.create(app_context(name, preDeploymentTasks=["failing"]))
            version = "1-6b86b273"
        else:
            template = {"metadata": {"annotations": keptn(name, "2")}}
            await flow.change("Deployment", name, {"spec": {"template": template}})
            await asyncio.sleep(gap)
            change = {"spec": {"preDeploymentTasks": ["failing"]}}
            await flow.change("KeptnAppContext", name, change)
            version = "2-d4735e3a"
        await flow.until_ended(APP_VERSIONS, f"{name}-{version}", "Failed")
        (held,) = await flow.until_gated(name)
        flow.assert_never_bound(held)
        return flow.find(APP_VERSIONS, f"{name}-{version}")["status"]["status"]

    await asyncio.gather(
        *(deploy_first_version(name) for name, _ in apps if name.startswith("old"))
    )
    states = await asyncio.gather(*(release(name, gap) for name, gap in apps))
    assert states == ["Failed"] * len(apps)
