"""Evaluations, namespaces, old versions of kinds, validation: as Keptn's own tests have them."""

from __future__ import annotations

import json

import msgspec
import pytest

from harbourmaster.api.resources import (
    APP_CREATION_REQUESTS,
    APP_VERSIONS,
    APPS,
    EVALUATIONS,
    PODS,
    TASK_DEFINITIONS,
    TASKS,
    WORKLOAD_VERSIONS,
    WORKLOADS,
    Resource,
)
from harbourmaster.kube.errors import InvalidError
from helpers.flow.manifests import (
    app,
    app_context,
    container_task,
    deployment,
    evaluation_definition,
    keptn,
    of_kind,
    task_definition,
)
from helpers.flow.namespace import gates, phases

pytestmark = [pytest.mark.gate, pytest.mark.cluster, pytest.mark.slow]

GROUP = "lifecycle.keptn.sh"


async def test_simple_deployment_evaluation(flow):
    await flow.measure("available-cpus", "4")
    await flow.create(
        evaluation_definition("cpus", "available-cpus", ">1", retries=10, retryInterval="5s"),
        deployment(
            "waiter",
            keptn(
                "waiter",
                "0.4",
                pre_deployment_evaluations="cpus",
                post_deployment_evaluations="cpus",
            ),
        ),
    )
    await flow.until_ended(WORKLOAD_VERSIONS, "waiter-waiter-0.4")
    found = await flow.until_all(EVALUATIONS, {"status": {"overallStatus": "Succeeded"}}, 2)
    assert sorted(one["spec"]["checkType"] for one in found) == ["post-eval", "pre-eval"]
    for one in found:
        spec = {key: one["spec"][key] for key in ("appName", "workload", "workloadVersion")}
        assert spec == {"appName": "waiter", "workload": "waiter-waiter", "workloadVersion": "0.4"}
        assert (one["spec"]["retries"], one["spec"]["retryInterval"]) == (10, "5s")
        assert one["status"]["retryCount"] == 1
        assert one["status"]["evaluationStatus"] == {
            "available-cpus": {
                "value": "4",
                "status": "Succeeded",
                "message": "value '4' met objective '>1'",
            }
        }


async def test_app_failing_pre_evaluation_retry(flow):
    await flow.measure("available-cpus", "4")
    await flow.create(
        evaluation_definition("cpus", "available-cpus", ">1000", retries=2, retryInterval="1s"),
        app_context("podtato-head", preDeploymentEvaluations=["cpus"]),
        app("podtato-head", "0.1.0", ("entry", "0.1.0")),
    )
    version = await flow.until_ended(APP_VERSIONS, "podtato-head-0.1.0-6b86b273", "Failed")
    assert phases(version["status"]) == {
        "preDeploymentStatus": "Succeeded",
        "preDeploymentEvaluationStatus": "Failed",
        "workloadOverallStatus": "Deprecated",
        "postDeploymentStatus": "Deprecated",
        "postDeploymentEvaluationStatus": "Deprecated",
        "promotionStatus": "Deprecated",
        "status": "Failed",
        "currentPhase": "AppPreDeployEvaluations",
    }
    (found,) = flow.all(EVALUATIONS)
    assert found["spec"]["checkType"] == "pre-eval"
    assert (found["spec"]["retries"], found["spec"]["retryInterval"]) == (2, "1s")
    assert (found["spec"].get("workload", ""), found["spec"]["appName"]) == ("", "podtato-head")
    assert found["status"]["retryCount"] == 2
    # One interval after each of both measurements.
    counts = [
        one["status"].get("retryCount", 0)
        for one in flow.history(EVALUATIONS, found["metadata"]["name"])
        if "status" in one
    ]
    assert sorted(set(counts) - {0}) == [1, 2]


async def test_an_evaluation_may_be_met_later_and_stays_met(flow):
    """C76, with a value for each try."""
    await flow.measure("first", "10")
    await flow.measure("second", "1")
    objectives = [
        {"keptnMetricRef": {"name": name}, "evaluationTarget": ">5"} for name in ("first", "second")
    ]
    definition = evaluation_definition("both", "first", ">5", retries=30)
    definition["spec"]["objectives"] = objectives
    await flow.create(
        definition, deployment("waiter", keptn("waiter", pre_deployment_evaluations="both"))
    )
    first = {"status": {"evaluationStatus": {"first": {"status": "Succeeded"}}}}
    await flow.until_all(EVALUATIONS, first)
    await flow.measure("first", "0")
    await flow.measure("second", "10")
    await flow.until_released("waiter")
    (found,) = flow.all(EVALUATIONS)
    assert found["status"]["evaluationStatus"]["first"]["value"] == "10"


async def test_two_objectives_for_one_metric_both_count(flow):
    await flow.measure("cpus", "7")
    definition = evaluation_definition("cpus", "cpus", ">=7", retries=0, retryInterval="1m30s")
    second = {"keptnMetricRef": {"name": "cpus"}, "evaluationTarget": "<10,!=8"}
    definition["spec"]["objectives"].append(second)
    await flow.create(
        definition, deployment("waiter", keptn("waiter", pre_deployment_evaluations="cpus"))
    )
    await flow.until_released("waiter")
    (found,) = flow.all(EVALUATIONS)
    assert found["status"]["evaluationStatus"].keys() == {"cpus", "cpus#2"}
    assert (found["spec"]["retries"], found["spec"]["retryInterval"]) == (0, "1m30s")


async def test_a_namespace_that_is_not_allowed_has_no_gates(harbour, client):
    """The scenarios of allowed namespaces, and one that is denied by default."""
    async with harbour.flow(client, "denied") as flow:
        setting = f"--denied-namespaces={flow.namespace}"
        harbour.installation.restart("webhook", (setting,))
        try:
            await flow.create(deployment("waiter", keptn("waiter", "0.4")))
            await flow.until_all(PODS, {"status": {"phase": "Running"}})
            (pod,) = flow.pods("waiter")
            assert gates(flow.history(PODS, pod["metadata"]["name"])[0]) == []
            for resource in (WORKLOADS, APPS, TASKS, APP_CREATION_REQUESTS):
                assert flow.all(resource) == []
            setting = f"--allowed-namespaces={flow.namespace}"
            harbour.installation.restart("webhook", (setting,))
            await flow.create(deployment("allowed", keptn("allowed", "0.4")))
            await flow.until_released("allowed")
        finally:
            harbour.installation.restart("webhook", ())


REFERENCE = {"uid": "7f1a", "kind": "ReplicaSet", "name": "none"}
OLD = {
    "KeptnApp": ("v1alpha3", APPS, {"version": "1.0", "revision": 123, "workloads": []}),
    "KeptnAppVersion": (
        "v1alpha3",
        APP_VERSIONS,
        {"appName": "shop", "version": "1.0", "revision": 1, "previousVersion": "0.9"},
    ),
    "KeptnWorkload": (
        "v1alpha3",
        WORKLOADS,
        {"app": "shop", "version": "1.0", "resourceReference": REFERENCE},
    ),
    "KeptnWorkloadVersion": (
        "v1alpha4",
        WORKLOAD_VERSIONS,
        {
            "app": "shop",
            "version": "1.0",
            "workloadName": "shop-none",
            "previousVersion": "0.9",
            "resourceReference": REFERENCE,
        },
    ),
    "KeptnAppCreationRequest": ("v1alpha3", APP_CREATION_REQUESTS, {"appName": "other"}),
    "KeptnTaskDefinition": (
        "v1alpha3",
        TASK_DEFINITIONS,
        {"deno": {"inline": {"code": "a"}}, "retries": 3, "timeout": "5m"},
    ),
    "KeptnTask": (
        "v1alpha3",
        TASKS,
        {"taskDefinition": "none", "checkType": "pre", "context": {"appName": "shop"}},
    ),
    "KeptnEvaluation": (
        "v1alpha3",
        EVALUATIONS,
        {"workloadVersion": "1.0", "evaluationDefinition": "none", "retries": 3},
    ),
}


@pytest.mark.parametrize("direction", ["v1alpha-to-v1", "v1-to-v1alpha"])
async def test_api_conversion(flow, direction):
    client = flow.client
    for kind, (version, stored, spec) in OLD.items():
        old = Resource(GROUP, version, stored.plural, kind)
        written, read = (old, stored) if direction == "v1alpha-to-v1" else (stored, old)
        body = of_kind(kind, "it", spec)
        body["apiVersion"] = written.api_version
        await client.create(written, body, flow.namespace)
        found = msgspec.json.decode(await client.get(read, "it", flow.namespace))
        assert found["apiVersion"] == read.api_version
        assert {key: found["spec"].get(key) for key in spec} == spec, kind


async def test_what_v1_does_not_know_of_an_app_is_kept(flow):
    """C87: upstream drops it."""
    old = Resource(GROUP, "v1alpha3", APPS.plural, APPS.kind)
    spec = {"version": "1.0", "revision": 1, "workloads": [], "preDeploymentTasks": ["announce"]}
    body = of_kind("KeptnApp", "shop", spec)
    body["apiVersion"] = old.api_version
    await flow.client.create(old, body, flow.namespace)
    found = msgspec.json.decode(await flow.client.get(APPS, "shop", flow.namespace))
    assert "preDeploymentTasks" not in found["spec"]
    found = msgspec.json.decode(await flow.client.get(old, "shop", flow.namespace))
    assert found["spec"]["preDeploymentTasks"] == ["announce"]


CODE = {"inline": {"code": "a"}}
CONTAINER = {"name": "a", "image": "registry.example.com/a:1"}
DEFINITIONS = {
    "deno": ({"deno": CODE}, True),
    "python": ({"python": CODE}, True),
    "container": ({"container": CONTAINER}, True),
    "function-ref": ({"deno": {"functionRef": {"name": "deno"}}}, True),
    "none": ({"retries": 1}, False),
    "deno-and-python": ({"deno": CODE, "python": CODE}, False),
    "container-and-deno": ({"container": CONTAINER, "deno": CODE}, False),
    "container-and-python": ({"container": CONTAINER, "python": CODE}, False),
    "all": ({"container": CONTAINER, "python": CODE, "deno": CODE}, False),
    "no-code": ({"deno": {}}, False),
    "no-duration": ({"deno": CODE, "timeout": "0soon"}, False),
}


async def test_validate_taskdefinition(flow):
    for name, (spec, is_good) in DEFINITIONS.items():
        definition = task_definition(name, **spec)
        if is_good:
            await flow.create(definition)
            continue
        with pytest.raises(InvalidError, match="spec"):
            await flow.create(definition)
    # A change is judged as well.
    with pytest.raises(InvalidError):
        await flow.change("KeptnTaskDefinition", "deno", {"spec": {"python": CODE}})


async def test_printed_columns_of_a_task_are_filled(flow, harbour):
    """Four of upstream's lead nowhere."""
    await flow.create(
        container_task("hello"),
        deployment("waiter", keptn("waiter", "0.4", pre_deployment_tasks="hello")),
    )
    await flow.until_ended(WORKLOAD_VERSIONS, "waiter-waiter-0.4")
    kubectl = harbour.plane.kubectl
    found = kubectl("get", "keptntasks", f"-n={flow.namespace}", "-o=wide", "--no-headers").stdout
    (line,) = found.splitlines()
    assert {"waiter", "waiter-waiter", "0.4", "Succeeded"} <= set(line.split())
    table = json.loads(kubectl("get", "kwv", f"-n={flow.namespace}", "-o=json").stdout)
    assert table["items"][0]["status"]["currentPhase"] == "Completed"
