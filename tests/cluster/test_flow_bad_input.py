"""Mistakes of users: each is reported clearly, crashes nothing, and ends once it is corrected."""

from __future__ import annotations

import json

import pytest

from harbourmaster.api.patches import MergePatch
from harbourmaster.api.resources import (
    APP_VERSIONS,
    JOBS,
    NAMESPACES,
    PODS,
    TASKS,
    WORKLOAD_VERSIONS,
    WORKLOADS,
)
from helpers.flow.manifests import app, container_task, deployment, keptn, of_kind
from helpers.flow.namespace import gates
from helpers.patience import COLLECTED

pytestmark = pytest.mark.gate


LONG = {
    "app": {"app": "a" * 300},
    "workload": {"workload": "w" * 300},
    "version": {"version": "9" * 300},
    "all": {"app": "b" * 300, "workload": "w" * 300, "version": "9" * 300},
    "definition": {"pre_deployment_tasks": "t" * 200},
}


async def test_names_too_long_are_made_fit(flow):
    """C30 and C69: whatever is cut, the pods go their ways."""
    await flow.create(container_task("t" * 200))
    await flow.create(
        *(
            deployment(name, keptn(**{"workload": name, "version": "1.0", **given}))
            for name, given in LONG.items()
        )
    )
    for name in LONG:
        await flow.until_released(name)
    await flow.until_all(WORKLOAD_VERSIONS, {"status": {"status": "Succeeded"}}, len(LONG))
    await flow.until_all(APP_VERSIONS, {"status": {"status": "Succeeded"}}, len(LONG))
    for resource in (WORKLOADS, WORKLOAD_VERSIONS, APP_VERSIONS, TASKS):
        assert all(len(obj["metadata"]["name"]) <= 253 for obj in flow.all(resource))
    assert all(len(job["metadata"]["name"]) <= 63 for job in flow.all(JOBS))


ILLEGAL = {
    "characters": {"app": "Ärger & Co"},
    "slash": {"workload": "front/end"},
    "dashes": {"app": "-"},
    "blank": {"app": " "},
}


async def test_names_that_no_object_can_have_are_told_and_hold_the_pod(flow):
    await flow.create(
        *(
            deployment(name, keptn(**{"workload": name, "version": "1.0", **given}))
            for name, given in ILLEGAL.items()
        )
    )
    for name in ILLEGAL:
        (pod,) = await flow.until_gated(name)
        event = await flow.until_told("CreateWorkloadFailed", pod["metadata"]["name"])
        assert event["type"] == "Warning"
        assert "letters, digits" in event["note"]
    await flow.stay_gated(*ILLEGAL)
    assert all("series" not in event for event in flow.events(reason="CreateWorkloadFailed"))
    for name in ILLEGAL:
        right = keptn(name, "1.1", app=name)
        template = {"metadata": {"annotations": right}}
        await flow.change("Deployment", name, {"spec": {"template": template}})
    for name in ILLEGAL:
        await flow.until_released(name)


async def test_a_check_of_an_illegal_name_is_a_missing_one(flow):
    await flow.create(deployment("ledger", keptn("ledger", pre_deployment_tasks="No Such/Task")))
    event = await flow.until_told("CreateTaskNotFound", "ledger-ledger-1.0")
    assert "No Such/Task" in event["note"]
    await flow.stay_gated("ledger")


async def test_a_workload_that_never_comes_keeps_its_app_waiting_and_nobody_else(flow):
    """C43: the app says which, once."""
    await flow.create(
        app("shop", "1.0", ("cart", "2.0"), ("nowhere", "1.0")),
        deployment("cart", keptn("cart", "2.0", app="shop")),
    )
    await flow.until_released("cart")
    await flow.until_ended(WORKLOAD_VERSIONS, "shop-cart-2.0")
    name = "shop-1.0-6b86b273"
    states = [
        {"workload": {"name": "cart", "version": "2.0"}, "status": "Succeeded"},
        {"workload": {"name": "nowhere", "version": "1.0"}, "status": "Pending"},
    ]
    status = {"workloadStatus": states, "currentPhase": "AppDeploy", "status": "Progressing"}
    await flow.until_like(APP_VERSIONS, name, {"status": status})
    event = await flow.until_told("ReconcileWorkloadNotFound", name)
    assert event["type"] == "Normal"
    await flow.pass_through()
    version = flow.find(APP_VERSIONS, name)
    assert version["status"]["status"] == "Progressing"
    # Time alone writes nothing.
    writes = len(flow.history(APP_VERSIONS, name))
    await flow.pass_through()
    assert len(flow.history(APP_VERSIONS, name)) == writes
    told = [event for event in flow.events(name) if "nowhere" in event["note"]]
    assert len(told) == 1


async def test_a_version_without_an_app_says_so_and_waits(flow):
    """C44: the user's app does not have the workload."""
    await flow.create(
        app("shop", "1.0", ("cart", "2.0")),
        deployment("pay", keptn("pay", "0.3", app="shop")),
    )
    event = await flow.until_told("AppPreDeployEvaluationsAppVersionNotFound", "shop-pay-0.3")
    assert event["type"] == "Normal"
    await flow.stay_gated("pay")
    entries = [{"name": "cart", "version": "2.0"}, {"name": "pay", "version": "0.3"}]
    await flow.change("KeptnApp", "shop", {"spec": {"workloads": entries}})
    await flow.until_released("pay")


async def test_a_job_or_task_deleted_by_hand_is_made_anew(flow):
    """C57 and C59; the flow goes on."""
    await flow.create(
        container_task("hanging", "hang"),
        deployment("ledger", keptn("ledger", pre_deployment_tasks="hanging")),
    )
    (task,) = await flow.until_all(TASKS, {"status": {"status": "Progressing"}})
    name = task["status"]["jobName"]
    await flow.delete("Job", name, propagation="Background")
    (task,) = await flow.until_all(TASKS, {"status": {"jobName": lambda now: now != name}})
    await flow.until(lambda: len(flow.all(JOBS)) == 1 and flow.find(JOBS, name) is None)
    await flow.delete("KeptnTask", task["metadata"]["name"])
    (again,) = await flow.until_all(
        TASKS, {"metadata": {"name": lambda now: now != task["metadata"]["name"]}}
    )
    await flow.until_like(
        WORKLOAD_VERSIONS,
        "ledger-ledger-1.0",
        {"status": {"preDeploymentTaskStatus": [{"name": again["metadata"]["name"]}]}},
    )
    await flow.stay_gated("ledger")
    await flow.let_end()
    await flow.until_released("ledger")


async def test_a_namespace_deleted_in_the_middle_of_a_flow(flow, harbour, client):
    async with harbour.flow(client, "doomed") as doomed:
        await doomed.create(
            container_task("hanging", "hang"),
            deployment("ledger", keptn("ledger", pre_deployment_tasks="hanging"), replicas=3),
        )
        await doomed.until_all(TASKS, {"status": {"status": "Progressing"}})
        await client.delete(NAMESPACES, doomed.namespace)
        await doomed.until(lambda: doomed.all(TASKS) == doomed.all(PODS) == [], COLLECTED)
    # The others' flows go on, and nothing crashed.
    await flow.pass_through()


async def test_without_the_right_to_create_jobs_all_waits_and_then_goes_on(flow, harbour):
    kubectl = harbour.plane.kubectl
    name = "clusterrole/harbourmaster-lifecycle"
    role = json.loads(kubectl("get", name, "-o=json").stdout)
    less = json.loads(json.dumps(role))
    for rule in less["rules"]:
        if "jobs" in rule["resources"]:
            rule["verbs"] = [verb for verb in rule["verbs"] if verb != "create"]
    kubectl("replace", "-f=-", stdin=json.dumps(less))
    try:
        await flow.create(
            container_task("quick"),
            deployment("ledger", keptn("ledger", pre_deployment_tasks="quick")),
        )
        (task,) = await flow.until_all(TASKS, {"status": {"reason": "JobRefused"}})
        assert task["status"].get("status", "Pending") == "Pending"
        assert "forbidden" in task["status"]["message"]
        event = await flow.until_told("CreateTaskFailed", task["metadata"]["name"])
        assert "forbidden" in event["note"]
        await flow.stay_gated("ledger")
        assert "series" not in event
    finally:
        role["metadata"].pop("resourceVersion")
        kubectl("replace", "-f=-", stdin=json.dumps(role))
    await flow.until_released("ledger")
    assert len(flow.all(TASKS)) == len(flow.all(JOBS)) == 1


async def test_a_workload_without_a_spec_keeps_no_other_workload_gated(flow, harbour):
    await flow.create(of_kind("KeptnWorkload", "broken"), deployment("ledger", keptn("ledger")))
    event = await flow.until_told("ReadWorkloadFailed", "broken")
    assert (event["type"], event["regarding"]["kind"]) == ("Warning", "KeptnWorkload")
    assert "Object missing required field `spec`: correct or delete it" in event["note"]
    await flow.until_released("ledger")
    await flow.delete("KeptnWorkload", "broken")
    # The caches leave it out as well.
    faults = harbour.new_faults()
    assert all("object dropped, decoding failed" in fault for fault in faults), faults


async def test_a_namespace_that_opts_out_keeps_what_waits_and_gates_no_more(flow, client):
    await flow.create(
        container_task("hanging", "hang"),
        deployment("ledger", keptn("ledger", pre_deployment_tasks="hanging")),
    )
    await flow.until_gated("ledger")
    off = {"metadata": {"annotations": {"keptn.sh/lifecycle-toolkit": None}}}
    await client.patch(NAMESPACES, flow.namespace, MergePatch(off))
    await flow.until_all(TASKS, {"status": {"status": "Progressing"}})
    await flow.let_end()
    # Checks that were begun are ended, and the pod goes.
    await flow.until_released("ledger")
    await flow.create(deployment("free", keptn("free", pre_deployment_tasks="hanging")))

    def runs():
        pods = flow.pods("free")
        return pods and pods[0]["status"].get("phase") == "Running" and pods[0]

    pod = await flow.until(runs)
    assert gates(flow.history(PODS, pod["metadata"]["name"])[0]) == []
