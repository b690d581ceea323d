"""An app of three workloads, with a context of its own, and what it lets each of them do."""

from __future__ import annotations

import asyncio

import pytest

from harbourmaster.api.resources import (
    APP_CREATION_REQUESTS,
    APP_VERSIONS,
    APPS,
    EVALUATIONS,
    TASKS,
    WORKLOAD_VERSIONS,
)
from helpers.flow.manifests import (
    app,
    app_context,
    container_task,
    deployment,
    evaluation_definition,
    keptn,
)
from helpers.flow.namespace import phases

pytestmark = pytest.mark.gate

PARTS = {"cart": "2.0", "front": "1.4", "pay": "0.3"}
CONTEXT = {
    "preDeploymentTasks": ["announce"],
    "preDeploymentEvaluations": ["capacity"],
    "postDeploymentTasks": ["load-test"],
    "postDeploymentEvaluations": ["latency"],
    "metadata": {"team": "harbour"},
}


def parts(**more):
    return [
        deployment(name, keptn(name, version, app="shop", **more), replicas=2)
        for name, version in PARTS.items()
    ]


def kinds(flow, resource, field, state):
    """The definitions of children in a state."""
    versions = flow.all(resource, {"status": {field: state}})
    key = "taskDefinition" if resource == TASKS else "evaluationDefinition"
    return sorted(version["spec"][key] for version in versions)


async def test_an_app_of_three_passes_its_phases_around_those_of_its_workloads(flow):
    await flow.measure("load", "10")
    await flow.create(
        *(container_task(name) for name in ("announce", "load-test", "migrate", "smoke")),
        evaluation_definition("capacity", "load", ">5"),
        evaluation_definition("latency", "load", "<50"),
        app_context("shop", **CONTEXT),
        app("shop", "1.0", *PARTS.items()),
        *parts(pre_deployment_tasks="migrate", post_deployment_tasks="smoke", metadata="stage=dev"),
    )
    version = await flow.until_ended(APP_VERSIONS, "shop-1.0-6b86b273")
    assert phases(version["status"]) == {
        "preDeploymentStatus": "Succeeded",
        "preDeploymentEvaluationStatus": "Succeeded",
        "workloadOverallStatus": "Succeeded",
        "postDeploymentStatus": "Succeeded",
        "postDeploymentEvaluationStatus": "Succeeded",
        "promotionStatus": "Pending",
        "status": "Succeeded",
        "currentPhase": "Completed",
    }
    assert version["status"]["workloadStatus"] == [
        {"workload": {"name": name, "version": its}, "status": "Succeeded"}
        for name, its in PARTS.items()
    ]
    assert version["metadata"]["ownerReferences"][0]["kind"] == "KeptnApp"
    (theirs,) = flow.all(APPS)
    assert theirs["status"]["currentVersion"] == "1.0"
    # It is the user's, so that nothing about it was changed.
    assert theirs["metadata"]["generation"] == 1
    assert flow.all(APP_CREATION_REQUESTS) == []
    for name, its in PARTS.items():
        workload = flow.find(WORKLOAD_VERSIONS, f"shop-{name}-{its}")
        assert workload["status"]["appContextMetadata"] == {"team": "harbour"}
        assert workload["status"]["status"] == "Succeeded"
        await flow.until_released(name, 2)
    assert len(flow.all(TASKS)) == 2 + 2 * len(PARTS)
    assert len(flow.all(EVALUATIONS)) == 2
    await flow.until_told("AppCompletedFinished")
    order = [event["reason"] for event in flow.events()]
    first = {reason: order.index(reason) for reason in order}
    last = {reason: at for at, reason in enumerate(order)}
    assert (
        first["AppPreDeployEvaluationsFinished"]
        < first["WorkloadPreDeployTasksFinished"]
        < last["WorkloadPostDeployTasksFinished"]
        < first["AppDeployFinished"]
        < first["AppPostDeployTasksStarted"]
        < first["AppPostDeployEvaluationsStarted"]
        < first["AppCompletedFinished"]
    )
    assert order.count("WorkloadCompletedFinished") == len(PARTS)


async def test_no_workload_begins_before_the_checks_of_its_app(flow):
    await flow.create(
        container_task("hanging", "hang"),
        container_task("migrate"),
        app_context("shop", preDeploymentTasks=["hanging"]),
        app("shop", "1.0", *PARTS.items()),
        *parts(pre_deployment_tasks="migrate"),
    )
    await flow.until_all(WORKLOAD_VERSIONS, {}, len(PARTS))
    for name in PARTS:
        await flow.until_gated(name, 2)
    await flow.stay_gated(*PARTS)
    assert kinds(flow, TASKS, "status", "Progressing") == ["hanging"]
    assert len(flow.all(TASKS)) == 1
    for name, its in PARTS.items():
        version = flow.find(WORKLOAD_VERSIONS, f"shop-{name}-{its}")
        assert set(phases(version.get("status", {})).values()) <= {"", "Pending"}
    await flow.let_end()
    await flow.until_ended(APP_VERSIONS, "shop-1.0-6b86b273")
    assert kinds(flow, TASKS, "status", "Succeeded") == ["hanging", *["migrate"] * len(PARTS)]


async def test_one_workload_that_fails_ends_the_app_and_harms_no_other(flow):
    await flow.create(
        container_task("failing", "fail"),
        app("shop", "1.0", *PARTS.items()),
        *parts()[:2],
        deployment("pay", keptn("pay", PARTS["pay"], app="shop", pre_deployment_tasks="failing")),
    )
    version = await flow.until_ended(APP_VERSIONS, "shop-1.0-6b86b273", "Failed")
    await asyncio.gather(*(flow.until_released(name, 2) for name in ("cart", "front")))
    await flow.stay_gated("pay")
    assert phases(version["status"])["workloadOverallStatus"] == "Failed"
    assert version["status"]["workloadStatus"][2] == {
        "workload": {"name": "pay", "version": "0.3"},
        "status": "Failed",
    }
    for name in ("cart", "front"):
        await flow.until_ended(WORKLOAD_VERSIONS, f"shop-{name}-{PARTS[name]}")


async def test_an_app_that_fails_later_than_its_workloads_leaves_all_of_them(flow):
    await flow.create(
        container_task("failing", "fail"),
        app_context("shop", postDeploymentTasks=["failing"], preDeploymentTasks=[]),
        app("shop", "1.0", *PARTS.items()),
        *parts(),
    )
    version = await flow.until_ended(APP_VERSIONS, "shop-1.0-6b86b273", "Failed")
    assert phases(version["status"])["workloadOverallStatus"] == "Succeeded"
    for name in PARTS:
        pods = await flow.until_released(name, 2)
        assert {pod["status"]["phase"] for pod in pods} == {"Running"}


async def test_a_context_that_comes_while_pods_wait_counts(flow):
    await flow.create(
        container_task("hanging", "hang"),
        container_task("failing", "fail"),
        container_task("quick"),
        deployment("cart", keptn("cart", pre_deployment_tasks="hanging")),
    )
    begun = {"status": {"currentPhase": "WorkloadPreDeployTasks"}}
    await flow.until_like(WORKLOAD_VERSIONS, "cart-cart-1.0", begun)
    await flow.create(app_context("cart", preDeploymentTasks=["failing"], metadata={"team": "a"}))
    await flow.until_ended(APP_VERSIONS, "cart-1.0-6b86b273", "Failed")
    await flow.let_end()
    await flow.until_all(TASKS, {"status": {"status": "Succeeded"}})
    await flow.stay_gated("cart")
    await flow.change("KeptnAppContext", "cart", {"spec": {"preDeploymentTasks": ["quick"]}})
    await flow.until_released("cart")
    await flow.until_ended(APP_VERSIONS, "cart-1.0-6b86b273")
    version = await flow.until_ended(WORKLOAD_VERSIONS, "cart-cart-1.0")
    assert version["status"]["appContextMetadata"] == {"team": "a"}


async def test_a_context_that_comes_after_the_release_says_from_when_on_it_counts(flow):
    await flow.create(container_task("quick"), deployment("cart", keptn("cart")))
    await flow.until_ended(APP_VERSIONS, "cart-1.0-6b86b273")
    await flow.create(app_context("cart", preDeploymentTasks=["quick"]))
    event = await flow.until_told("AppContextLate", "cart", type="Warning")
    assert "came too late for version 1.0 of KeptnApp cart" in event["note"]
    assert flow.all(TASKS) == []
    # As the event says.
    await flow.change("KeptnApp", "cart", {"spec": {"revision": 2}})
    version = await flow.until_ended(APP_VERSIONS, "cart-1.0-d4735e3a")
    assert version["spec"]["preDeploymentTasks"] == ["quick"]
    assert kinds(flow, TASKS, "status", "Succeeded") == ["quick"]
