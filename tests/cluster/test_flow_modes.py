"""Settings of a KeptnConfig and of the controller: blocking, time-outs, promotion."""

from __future__ import annotations

import asyncio

import pytest

from harbourmaster.api.resources import APP_VERSIONS, PODS, TASKS, WORKLOAD_VERSIONS
from helpers.flow.manifests import (
    OUTCOME,
    app,
    app_context,
    container_task,
    deployment,
    evaluation_definition,
    keptn,
    of_kind,
)
from helpers.flow.namespace import phases
from helpers.patience import PATIENCE
from helpers.tracing import Collector, attributes

NEVER_READY = {OUTCOME: "never-ready"}
CHECKS = {
    "pre_deployment_tasks": "failing",
    "post_deployment_tasks": "failing",
    "pre_deployment_evaluations": "unmet",
    "post_deployment_evaluations": "unmet",
}
CONTEXT = {
    "preDeploymentTasks": ["failing"],
    "postDeploymentTasks": ["failing"],
    "preDeploymentEvaluations": ["unmet"],
    "postDeploymentEvaluations": ["unmet"],
    "promotionTasks": ["failing"],
}
WARNED = {
    "preDeploymentStatus": "Warning",
    "preDeploymentEvaluationStatus": "Warning",
    "postDeploymentStatus": "Warning",
    "postDeploymentEvaluationStatus": "Warning",
    "status": "Succeeded",
    "currentPhase": "Completed",
}


async def failing_checks(flow):
    await flow.measure("load", "3")
    await flow.create(
        container_task("failing", "fail"),
        evaluation_definition("unmet", "load", ">5"),
        app_context("shop", **CONTEXT),
    )


async def test_failed_checks_only_warn_while_deployments_are_not_blocked(flow, harbour, client):
    """C80, C81, and then the same checks in a version that is blocked again."""
    await failing_checks(flow)
    async with harbour.use_config(client, blockDeployment=False):
        await flow.create(
            app("shop", "0.1.0", ("ledger", "1")),
            deployment("ledger", keptn("ledger", "1", app="shop", **CHECKS)),
        )
        await flow.until_released("ledger")
        version = await flow.until_ended(APP_VERSIONS, "shop-0.1.0-6b86b273")
        workload = await flow.until_ended(WORKLOAD_VERSIONS, "shop-ledger-1")
    promotion = {"promotionStatus": "Pending", "workloadOverallStatus": "Succeeded"}
    assert phases(version["status"]) == {**WARNED, **promotion}
    assert phases(workload["status"]) == {**WARNED, "deploymentStatus": "Succeeded"}
    for obj in (version, workload):
        (item,) = obj["status"]["preDeploymentTaskStatus"]
        assert item["status"] == "Failed"
    await assert_next_version_is_blocked(flow)


async def assert_next_version_is_blocked(flow):
    entry = {"name": "ledger", "version": "2"}
    await flow.change("KeptnApp", "shop", {"spec": {"version": "0.2.0", "workloads": [entry]}})
    template = {"metadata": {"annotations": {"keptn.sh/version": "2"}}}
    await flow.change("Deployment", "ledger", {"spec": {"template": template}})
    version = await flow.until_ended(APP_VERSIONS, "shop-0.2.0-d4735e3a", "Failed")
    assert version["spec"]["previousVersion"] == "0.1.0"
    assert version["status"]["preDeploymentStatus"] == "Failed"
    workload = await flow.until_like(WORKLOAD_VERSIONS, "shop-ledger-2", {})
    assert workload["spec"]["previousVersion"] == "1"
    (held,) = await flow.until_gated("ledger")
    await flow.stay_gated_pods(held)


async def test_a_config_elsewhere_counts_once_it_is_adopted(flow, harbour, client):
    stored = await flow.create(of_kind("KeptnConfig", "elsewhere", {"blockDeployment": False}))
    status = await harbour.until_standing(client, stored, "not in force")
    assert f"harbourmaster config adopt {flow.namespace}/elsewhere" in status
    await flow.until_told("ReconcileConfigFailed", "elsewhere", type="Warning")
    await failing_checks(flow)
    async with harbour.adopt_config(client, flow.namespace, "elsewhere"):
        await harbour.until_standing(client, stored, "in force")
        await flow.create(
            app("shop", "0.1.0", ("ledger", "1")),
            deployment("ledger", keptn("ledger", "1", app="shop")),
        )
        version = await flow.until_ended(APP_VERSIONS, "shop-0.1.0-6b86b273")
        assert version["status"]["preDeploymentStatus"] == "Warning"
        await flow.until_released("ledger")
        await flow.change("KeptnConfig", "elsewhere", {"spec": {"blockDeployment": True}})
        await assert_next_version_is_blocked(flow)


@pytest.mark.parametrize("is_blocking", [True, False])
async def test_a_workload_that_gets_never_ready_fails_in_time(flow, harbour, client, is_blocking):
    """C82 and C83: also where checks only warn; the pods stay, and may be ready later."""
    settings = {"observabilityTimeout": "2s", "blockDeployment": is_blocking}
    async with harbour.use_config(client, **settings):
        await flow.create(
            app_context("ledger", postDeploymentTasks=["never"]),
            deployment("ledger", keptn("ledger"), labels=NEVER_READY),
        )
        version = await flow.until_ended(WORKLOAD_VERSIONS, "ledger-ledger-1.0", "Failed")
        whole = await flow.until_ended(APP_VERSIONS, "ledger-1.0-6b86b273", "Failed")
    assert phases(version["status"]) == {
        "preDeploymentStatus": "Succeeded",
        "preDeploymentEvaluationStatus": "Succeeded",
        "deploymentStatus": "Failed",
        "postDeploymentStatus": "Deprecated",
        "postDeploymentEvaluationStatus": "Deprecated",
        "status": "Failed",
        "currentPhase": "WorkloadDeploy",
    }
    assert phases(whole["status"])["currentPhase"] == "AppDeploy"
    assert phases(whole["status"])["promotionStatus"] == "Deprecated"
    late = await flow.until_told("WorkloadDeployFinished", type="Warning")
    assert "has reached timeout" in late["note"]
    await flow.until_told("WorkloadDeployFailed")
    (pod,) = await flow.until_released("ledger")
    assert len(flow.history(PODS, pod["metadata"]["name"])) > 1
    assert flow.all(TASKS) == []
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    await flow.change("Pod", pod["metadata"]["name"], {"status": ready}, subresource="status")
    await flow.until_ended(WORKLOAD_VERSIONS, "ledger-ledger-1.0")
    await flow.until_like(
        APP_VERSIONS, "ledger-1.0-6b86b273", {"status": {"currentPhase": "AppPostDeployTasks"}}
    )
    await flow.until_told("WorkloadCompletedFinished", "ledger-ledger-1.0")
    reasons = flow.reasons("ledger-ledger-1.0")
    assert {"WorkloadDeployFailed", "WorkloadCompletedFailed"} <= set(reasons)
    counted = [sample for sample in harbour.metrics() if flow.namespace in sample]
    for state in ("Failed", "Succeeded"):
        label = f'keptn_deployment_workload_status="{state}"'
        assert [sample for sample in counted if label in sample and "_count_total" in sample]


async def test_the_defaults_are_back_once_the_config_is_gone(flow, harbour, client):
    """C84."""
    await failing_checks(flow)
    async with harbour.use_config(client, blockDeployment=False):
        pass
    await flow.create(
        app("shop", "1", ("ledger", "1")), deployment("ledger", keptn("ledger", "1", app="shop"))
    )
    await flow.until_ended(APP_VERSIONS, "shop-1-6b86b273", "Failed")
    await flow.stay_gated("ledger")


async def test_without_promotion_nothing_of_it_is_done_or_told(flow):
    """C86, as it is by default."""
    await flow.create(
        container_task("promote"),
        app_context("shop", promotionTasks=["promote"]),
        app("shop", "1", ("ledger", "1")),
        deployment("ledger", keptn("ledger", "1", app="shop")),
    )
    version = await flow.until_ended(APP_VERSIONS, "shop-1-6b86b273")
    await flow.until_told("AppCompletedFinished")
    assert version["status"]["promotionStatus"] == "Pending"
    assert flow.all(TASKS) == []
    assert not [reason for reason in flow.reasons("shop-1-6b86b273") if "Promotion" in reason]


@pytest.mark.parametrize("controller_flags", [("--lifecycle-promotion-tasks=true",)], ids=["on"])
async def test_promotion_is_a_last_phase_where_it_is_on(flow):
    await flow.create(
        container_task("promote"),
        container_task("failing", "fail"),
        app_context("shop", promotionTasks=["promote"]),
        app("shop", "1", ("ledger", "1")),
        deployment("ledger", keptn("ledger", "1", app="shop")),
        app_context("other", promotionTasks=["failing"]),
        app("other", "1"),
    )
    version = await flow.until_ended(APP_VERSIONS, "shop-1-6b86b273")
    assert version["status"]["promotionStatus"] == "Succeeded"
    (item,) = version["status"]["promotionTaskStatus"]
    assert item["name"].startswith("promotion-promote-")
    await flow.until_told("PromotionTasksFinished", "shop-1-6b86b273")
    reasons = flow.reasons("shop-1-6b86b273")
    assert reasons.index("AppDeployFinished") < reasons.index("PromotionTasksStarted")
    failed = await flow.until_ended(APP_VERSIONS, "other-1-6b86b273", "Failed")
    assert phases(failed["status"]) == {
        "preDeploymentStatus": "Succeeded",
        "preDeploymentEvaluationStatus": "Succeeded",
        "workloadOverallStatus": "Succeeded",
        "postDeploymentStatus": "Succeeded",
        "postDeploymentEvaluationStatus": "Succeeded",
        "promotionStatus": "Failed",
        "status": "Failed",
        "currentPhase": "PromotionTasks",
    }
    await flow.until_told("PromotionTasksFailed", "other-1-6b86b273")


async def test_the_collector_gets_the_metadata_of_an_app_and_of_its_workload(flow, harbour, client):
    await flow.create(
        container_task("migrate"),
        app_context("shop", metadata={"stage": "dev", "team": "shop"}),
    )
    async with (
        Collector() as collector,
        harbour.use_config(client, OTelCollectorUrl=collector.url),
        asyncio.timeout(PATIENCE),
    ):
        checks = {"pre_deployment_tasks": "migrate", "metadata": "team=ledger,commit-id=d1fc"}
        await flow.create(
            app("shop", "0.1.0", ("ledger", "1")),
            deployment("ledger", keptn("ledger", "1", app="shop", **checks)),
        )
        await flow.until_ended(APP_VERSIONS, "shop-0.1.0-6b86b273")
        (task,) = flow.all(TASKS)
        expected = {
            "shop-0.1.0-6b86b273": {"stage": "dev", "team": "shop"},
            "AppDeploy": {"stage": "dev", "team": "shop"},
            "shop-ledger-1": {"stage": "dev", "team": "ledger", "commit-id": "d1fc"},
            task["metadata"]["name"]: {"stage": "dev", "team": "ledger", "commit-id": "d1fc"},
        }
        for name, metadata in expected.items():
            span, _ = await collector.until(lambda obj, name=name: obj.name == name)
            told = attributes(span)
            assert {key: told[key] for key in told if "keptn." not in key} == metadata
