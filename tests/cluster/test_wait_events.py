"""Events of pods that wait, as ``kubectl describe`` shows them on a real control plane."""

from __future__ import annotations

import asyncio
import re
from functools import partial

import pytest

from harbourmaster.api.resources import KEPTN_METRICS, TASKS
from helpers.flow.manifests import (
    app,
    container_task,
    deployment,
    evaluation_definition,
    keptn,
    metric,
    of_kind,
)

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

OURS = "harbourmaster.dev/"
HELD_BY = "gates.harbourmaster.dev/held-by"
AGAIN = {"retries": 100, "retryInterval": "60s"}


@pytest.fixture
def described(harbour, flow):
    """Wait for an event on a pod and on its Deployment; return what kubectl says of it on both."""
    kubectl = partial(harbour.plane.kubectl, f"--namespace={flow.namespace}")

    async def describe(name, reason):
        (pod,) = await flow.until_gated(name)
        lines = {}
        for kind, its_name in (("pod", pod["metadata"]["name"]), ("deployment", name)):
            await flow.until_told(reason, its_name)
            result = await asyncio.to_thread(kubectl, "describe", kind, its_name)
            text = " ".join(result.stdout.partition("\nEvents:")[2].split())
            command = f"run harbourmaster why {kind} {its_name} -n {flow.namespace}"
            assert command in text, text
            (line,) = re.findall(rf"(\w+ {reason}) \S+ {OURS}lifecycle (.*?); {command}", text)
            lines[kind] = ": ".join(line)
        assert lines["pod"] == lines["deployment"]
        await flow.until_told(reason, pod["metadata"]["name"])
        annotations = (await flow.until_gated(name))[0]["metadata"]["annotations"]
        return lines["pod"], annotations[HELD_BY]

    return describe


@pytest.mark.gate
async def test_a_missing_task_definition_is_said_on_the_pod_and_its_deployment(flow, described):
    await flow.create(deployment("ledger", keptn("ledger", pre_deployment_tasks="migrate")))
    line, version = await described("ledger", "GateDefinitionMissing")
    assert line == (
        "Warning GateDefinitionMissing: waits for pre-deployment task migrate: KeptnTaskDefinition "
        "migrate not found; waiting for it to be created"
    )
    assert version == "ledger-ledger-1.0"
    await flow.create(container_task("migrate"))
    await flow.until_released("ledger")


@pytest.mark.full
async def test_an_unmet_evaluation_is_said_with_its_value_and_next_try_and_then_as_blocked(
    flow, described
):
    await flow.measure("load", "3")
    await flow.create(
        evaluation_definition("room", "load", ">5"),
        evaluation_definition("rooms", "load", ">5", **AGAIN),
        deployment("blocked", keptn("blocked", pre_deployment_evaluations="room")),
        deployment("trying", keptn("trying", pre_deployment_evaluations="rooms")),
    )
    line, version = await described("blocked", "GateBlocked")
    assert line == (
        "Warning GateBlocked: Blocked: pre-deployment evaluation room failed and will not be "
        "retried: load is 3, must be >5"
    )
    assert version == "blocked-blocked-1.0"
    line, _ = await described("trying", "GateWaiting")
    assert re.fullmatch(
        "Normal GateWaiting: waits for pre-deployment evaluation rooms: load is 3, must be >5; "
        r"try 1 of 100, next try \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ",
        line,
    ), line


@pytest.mark.full
async def test_a_provider_that_does_not_answer_is_said_with_its_error(flow, described):
    spec = {"type": "prometheus", "targetServer": "http://127.0.0.1:1"}
    await flow.create(
        of_kind("KeptnMetricsProvider", "down", spec),
        {**metric("errors"), "spec": {**metric("errors")["spec"], "provider": {"name": "down"}}},
    )
    await flow.until_like(KEPTN_METRICS, "errors", {"status": {"errMsg": bool}})
    await flow.create(
        evaluation_definition("quiet", "errors", "<5", **AGAIN),
        deployment("ledger", keptn("ledger", pre_deployment_evaluations="quiet")),
    )
    line, _ = await described("ledger", "GateMetricUnavailable")
    assert line.startswith(
        "Warning GateMetricUnavailable: waits for pre-deployment evaluation quiet: errors has no "
        "value, must be <5 ("
    )
    assert "127.0.0.1" in line
    assert "; try 1 of 100, next try " in line


@pytest.mark.full
async def test_a_failed_task_an_app_without_the_workload_and_a_failed_app_are_said(flow, described):
    await flow.create(
        container_task("failing", "fail"),
        of_kind("KeptnAppContext", "bank", {"preDeploymentTasks": ["failing"]}),
        app("bank", "1.0", ("till", "1.0")),
        app("shop", "1.0", ("cart", "9.9")),
        deployment("ledger", keptn("ledger", pre_deployment_tasks="failing")),
        deployment("till", keptn("till", app="bank")),
        deployment("cart", keptn("cart", app="shop")),
    )
    line, _ = await described("ledger", "GateBlocked")
    assert line.startswith(
        "Warning GateBlocked: Blocked: pre-deployment task failing failed and will not be retried: "
    )
    line, version = await described("till", "GateBlocked")
    assert line.startswith(
        "Warning GateBlocked: Blocked: pre-deployment task failing of the app failed and will not "
    )
    assert version == "bank-till-1.0"
    line, _ = await described("cart", "GateAppMissing")
    assert line == (
        "Warning GateAppMissing: waits for the checks of the app shop: no KeptnAppVersion has "
        "shop-cart in version 1.0 yet: KeptnApp shop must list the workload in this version"
    )


@pytest.mark.full
async def test_a_task_that_takes_its_time_is_said_once_as_normal(flow, described):
    await flow.create(
        container_task("slow", "hang"),
        deployment("ledger", keptn("ledger", pre_deployment_tasks="slow")),
    )
    (task,) = await flow.until_all(TASKS, {"status": {"status": "Progressing"}})
    line, _ = await described("ledger", "GateWaiting")
    assert line == (
        "Normal GateWaiting: waits for pre-deployment task slow: its Job "
        f"{task['status']['jobName']} runs"
    )
    await flow.let_end()
    await flow.until_released("ledger")
    assert [event for event in flow.events() if event["type"] == "Warning"] == []
