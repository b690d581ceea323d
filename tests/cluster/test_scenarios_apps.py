"""Apps, evaluations, namespaces and old versions of kinds as Keptn's own tests have them."""

from __future__ import annotations

import msgspec
import pytest

from harbourmaster.api.patches import MergePatch
from harbourmaster.api.resources import (
    APP_CREATION_REQUESTS,
    APP_VERSIONS,
    APPS,
    EVALUATIONS,
    NAMESPACES,
    PODS,
    TASKS,
    WORKLOAD_VERSIONS,
    WORKLOADS,
    Resource,
)
from helpers.flow.manifests import (
    app,
    app_context,
    container_task,
    deployment,
    evaluation_definition,
    keptn,
    of_kind,
    owner,
    template,
)
from helpers.flow.namespace import GATE, gates, phases
from helpers.schemas import GROUP, OLD, SPECS, definition, keptn_object

pytestmark = pytest.mark.gate


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
    evaluations = await flow.until_all(EVALUATIONS, {"status": {"overallStatus": "Succeeded"}}, 2)
    assert sorted(evaluation["spec"]["checkType"] for evaluation in evaluations) == [
        "post-eval",
        "pre-eval",
    ]
    for obj in evaluations:
        spec = {key: obj["spec"][key] for key in ("appName", "workload", "workloadVersion")}
        assert spec == {"appName": "waiter", "workload": "waiter-waiter", "workloadVersion": "0.4"}
        assert (obj["spec"]["retries"], obj["spec"]["retryInterval"]) == (10, "5s")
        assert obj["status"]["retryCount"] == 1
        assert obj["status"]["evaluationStatus"] == {
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
    assert phases(version["status"])["currentPhase"] == "AppPreDeployEvaluations"
    (evaluation,) = flow.all(EVALUATIONS)
    assert (evaluation["spec"]["retries"], evaluation["spec"]["retryInterval"]) == (2, "1s")
    assert evaluation["status"]["retryCount"] == 2
    # The API server keeps the record of both.
    tries = evaluation["status"]["measurements"]["available-cpus"]["tries"]
    assert [made["value"] for made in tries] == ["4", "4"]
    # One interval after each of both measurements.
    counts = [
        state["status"].get("retryCount", 0)
        for state in flow.history(EVALUATIONS, evaluation["metadata"]["name"])
        if "status" in state
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
    (evaluation,) = flow.all(EVALUATIONS)
    assert evaluation["status"]["evaluationStatus"]["first"]["value"] == "10"


async def test_two_objectives_for_one_metric_both_count(flow):
    await flow.measure("cpus", "7")
    definition = evaluation_definition("cpus", "cpus", ">=7", retries=0, retryInterval="1m30s")
    second = {"keptnMetricRef": {"name": "cpus"}, "evaluationTarget": "<10,!=8"}
    definition["spec"]["objectives"].append(second)
    await flow.create(
        definition, deployment("waiter", keptn("waiter", pre_deployment_evaluations="cpus"))
    )
    await flow.until_released("waiter")
    (evaluation,) = flow.all(EVALUATIONS)
    assert evaluation["status"]["evaluationStatus"].keys() == {"cpus", "cpus#2"}
    assert (evaluation["spec"]["retries"], evaluation["spec"]["retryInterval"]) == (0, "1m30s")


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


@pytest.mark.parametrize("direction", ["v1alpha-to-v1", "v1-to-v1alpha"])
async def test_api_conversion(flow, direction):
    client = flow.client
    for plural, version in OLD.items():
        kind = definition(plural)["spec"]["names"]["kind"]
        old, stored = (Resource(GROUP, name, plural, kind) for name in (version, "v1"))
        written, read = (old, stored) if direction == "v1alpha-to-v1" else (stored, old)
        body = keptn_object(definition(plural), "it", flow.namespace, written.version)
        await client.create(written, body, flow.namespace)
        obj = msgspec.json.decode(await client.get(read, "it", flow.namespace))
        assert obj["apiVersion"] == read.api_version
        assert SPECS[plural].items() <= obj["spec"].items()


PODTATO = tuple(
    f"podtato-head-{part}"
    for part in ("entry", "hat", "left-arm", "left-leg", "right-arm", "right-leg")
)
VERSION = "podtato-head-95a0b0ddca-6b86b273"


async def running(flow, part, count=1):
    """Wait until an owner's pods run; return them."""

    def running():
        pods = flow.pods(part)
        phases_now = {pod["status"].get("phase") for pod in pods}
        return pods if len(pods) == count and phases_now == {"Running"} else None

    return await flow.until(running, why=lambda: f"{count} pods of {part} do not run")


def assert_untouched(flow, pod):
    first = flow.history(PODS, pod["metadata"]["name"])[0]
    assert gates(first) == []
    assert pod["spec"]["schedulerName"] == "default-scheduler"


@pytest.mark.full
async def test_namespace_not_enabled(harbour, client):
    async with harbour.flow(client, "not-enabled", enabled=False) as flow:
        # C02: a label of that name is no annotation.
        label = {"metadata": {"labels": {"keptn.sh/lifecycle-toolkit": "enabled"}}}
        await client.patch(NAMESPACES, flow.namespace, MergePatch(label))
        await flow.create(deployment("waiter", keptn("waiter", "0.4")))
        (pod,) = await running(flow, "waiter")
        assert_untouched(flow, pod)
        for resource in (WORKLOADS, APPS, APP_CREATION_REQUESTS):
            assert flow.all(resource) == []


@pytest.mark.full
async def test_unsupported_owner_of_pod(flow):
    """C04: a Job's pod, a bare pod, and one of a ReplicaSet for comparison."""
    spec = template("job", keptn("waiter", "0.4"))
    spec["spec"]["restartPolicy"] = "Never"
    bare = template("bare", keptn("waiter", "0.4"))
    pod = of_kind("Pod", "bare", bare["spec"])
    pod["metadata"].update(bare["metadata"])
    await flow.create(of_kind("Job", "job", {"template": spec}), pod)
    await flow.until_all(PODS, {"status": {"phase": "Succeeded"}})
    (bare,) = await running(flow, "bare")
    assert_untouched(flow, bare)
    (ended,) = flow.pods("job")
    assert_untouched(flow, ended)
    assert flow.all(WORKLOADS) == []


@pytest.mark.full
async def test_podtato_head_application_auto_app_discovery(flow):
    await flow.create(
        container_task("hello"),
        app_context("podtato-head", preDeploymentTasks=["hello"], metadata={"a": "b"}),
        *(
            deployment(name, keptn(name, "0.1.0", app="podtato-head", metadata="stage=dev"))
            for name in PODTATO
        ),
    )
    await flow.until_ended(APP_VERSIONS, VERSION)
    (app,) = flow.all(APPS)
    assert app["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "keptn"}
    assert app["spec"] == {
        "revision": 1,
        "version": "95a0b0ddca",
        "workloads": [{"name": name, "version": "0.1.0"} for name in PODTATO],
    }
    for name in PODTATO:
        version = await flow.until_ended(WORKLOAD_VERSIONS, f"podtato-head-{name}-0.1.0")
        assert version["status"]["appContextMetadata"] == {"a": "b"}
        await flow.until_released(name)
    # No version of the app was made before all were there.
    assert len(flow.all(APP_VERSIONS)) == 1


@pytest.mark.full
async def test_a_foreign_gate_stays_when_ours_goes(flow):
    """C22."""
    manifest = owner("Deployment", "waiter", keptn("waiter"))
    manifest["spec"]["template"]["spec"]["schedulingGates"] = [{"name": "example.com/theirs"}]
    await flow.create(manifest)

    def ours_gone():
        pods = flow.pods("waiter")
        return pods and gates(pods[0]) == ["example.com/theirs"] and pods[0]

    pod = await flow.until(ours_gone)
    first = flow.history(PODS, pod["metadata"]["name"])[0]
    assert gates(first) == ["example.com/theirs", GATE]
    assert "nodeName" not in pod["spec"]
