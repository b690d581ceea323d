"""Old versions go with all that belongs to them, and what a rollback needs stays."""

from __future__ import annotations

import pytest

from harbourmaster.api.resources import APP_VERSIONS, TASKS, WORKLOAD_VERSIONS
from helpers.flow.manifests import container_task, keptn, of_kind, owner

pytestmark = pytest.mark.full

NAMES = {"Deployment": "cart", "StatefulSet": "ledger"}


def annotations(name, version):
    """Return the annotations of a version; every second one has a check."""
    tasks = {"pre_deployment_tasks": "quick"} if int(version) % 2 else {}
    return {"keptn.sh/pre-deployment-tasks": None, **keptn(name, version, **tasks)}


async def roll_out(flow, version):
    """Give both owners the template of a version, and wait for the end of all its versions."""
    for kind, name in NAMES.items():
        template = {"metadata": {"annotations": annotations(name, version)}}
        await flow.change(kind, name, {"spec": {"template": template}})
    await until_ended(flow, version)


async def until_ended(flow, version):
    """Wait until the current versions of both workloads and apps have ended."""
    for name in NAMES.values():
        await flow.until_ended(WORKLOAD_VERSIONS, f"{name}-{name}-{version}")
        await flow.until(
            lambda name=name: [
                obj
                for obj in flow.all(APP_VERSIONS, {"spec": {"appName": name, "version": version}})
                if obj.get("status", {}).get("status") == "Succeeded"
            ]
        )


def versions(flow, name):
    like = {"spec": {"workloadName": f"{name}-{name}"}}
    return [obj["spec"]["version"] for obj in flow.all(WORKLOAD_VERSIONS, like)]


def tasks(flow):
    """The uids of all tasks by the version for which they run."""
    return {
        (obj["spec"]["context"]["workloadName"], obj["spec"]["context"]["workloadVersion"]): obj[
            "metadata"
        ]["uid"]
        for obj in flow.all(TASKS)
    }


@pytest.mark.parametrize("controller_flags", [("--lifecycle-history-limit=1",)], ids=["one"])
async def test_old_versions_go_and_a_rollback_runs_no_check_again(flow):
    context = {"workloadName": "own", "workloadVersion": "1", "appName": "", "appVersion": ""}
    context |= {"taskType": "", "objectType": ""}
    own = of_kind("KeptnTask", "own", {"taskDefinition": "quick", "context": context})
    await flow.create(container_task("quick"), own)
    for kind, name in NAMES.items():
        await flow.create(owner(kind, name, annotations(name, "1"), revisionHistoryLimit=1))
    await until_ended(flow, "1")
    for version in "234":
        await roll_out(flow, version)
    for name in NAMES.values():
        # Version 2 goes now or at the next end, as soon as its ReplicaSet or revision is gone.
        await flow.until(lambda name=name: set(versions(flow, name)) - {"2"} == {"3", "4"})
        of_app = {"spec": {"appName": name}}
        await flow.until(lambda of_app=of_app: len(flow.all(APP_VERSIONS, of_app)) == 1)
    keys = [("own", "1"), *((f"{name}-{name}", "3") for name in NAMES.values())]
    await flow.until(lambda: sorted(tasks(flow)) == sorted(keys), why=lambda: [*tasks(flow)])
    before = tasks(flow)
    await roll_out(flow, "3")
    assert tasks(flow) == before
