"""KeptnConfigs of other namespaces, metrics and analyses, as Keptn's own tests have them."""

from __future__ import annotations

import asyncio
import json

import msgspec
import pytest

from harbourmaster.api.patches import MergePatch
from harbourmaster.api.resources import (
    ANALYSIS_DEFINITIONS,
    APP_VERSIONS,
    KEPTN_CONFIGS,
    PODS,
    TASKS,
    WORKLOAD_VERSIONS,
)
from harbourmaster.kube.errors import ApiError, NotFoundError
from helpers.cluster import eventually
from helpers.flow.manifests import (
    OUTCOME,
    PROVIDER,
    app_context,
    container_task,
    deployment,
    keptn,
    metric,
    of_kind,
)
from helpers.flow.namespace import is_released, phases
from helpers.patience import WAIT
from helpers.scripted_prometheus import ScriptedPrometheus, matrix

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.slow]

CONFIG = "elsewhere"
ENTRY = "podtato-head-entry"
APP = "podtato-head-{}"
WORKLOAD = f"podtato-head-{ENTRY}-{{}}"
FIRST, SECOND = "0.1.0", "0.2.0"
# The second part is Keptn's, of the generation of the app.
FIRST_APP, SECOND_APP = f"podtato-head-{FIRST}-6b86b273", f"podtato-head-{SECOND}-d4735e3a"
LOOPBACK = ("--metrics-allowed-addresses=127.0.0.1/32",)
SPAN = {"interval": "5m", "step": "1m", "aggregation": "p90", "storedResults": 5}
FAILURE = {"lessThan": {"fixedValue": 600}}
TARGET = {"failure": FAILURE, "warning": {"greaterThanOrEqual": {"fixedValue": 800}}}
CONTRADICTION = {**TARGET, "failure": {**FAILURE, "greaterThan": {"fixedValue": 600}}}


async def configured(flow, **spec):
    """A KeptnConfig in the namespace of the flow."""
    spec = {"keptnAppCreationRequestTimeoutSeconds": 1, **spec}
    return await flow.create(of_kind("KeptnConfig", CONFIG, spec))


def entry(version, **more):
    labels = more.pop("labels", None)
    return deployment(ENTRY, keptn(ENTRY, version, app="podtato-head", **more), labels=labels)


async def test_non_blocking_deployment(flow, harbour, client):
    """A KeptnConfig elsewhere lets checks only warn once it is adopted, and block again."""
    stored = await configured(flow, blockDeployment=False)
    status = await harbour.until_standing(client, stored, "not in force")
    assert f"harbourmaster config adopt {flow.namespace}/{CONFIG}" in status
    await flow.until_told("ReconcileConfigFailed", CONFIG, type="Warning")
    await flow.create(
        container_task("failing-task", "fail"),
        app_context("podtato-head", preDeploymentTasks=["failing-task"]),
    )
    checks = dict.fromkeys(("pre_deployment_tasks", "post_deployment_tasks"), "failing-task")
    async with harbour.adopt_config(client, flow.namespace, CONFIG):
        await harbour.until_standing(client, stored, "in force")
        await flow.create(entry(FIRST, **checks))
        version = await flow.until_ended(APP_VERSIONS, FIRST_APP)
        workload = await flow.until_ended(WORKLOAD_VERSIONS, WORKLOAD.format(FIRST))
        assert version["status"]["preDeploymentStatus"] == "Warning"
        assert workload["status"]["preDeploymentStatus"] == "Warning"
        assert workload["status"]["postDeploymentStatus"] == "Warning"
        await flow.until_released(ENTRY)

        patch = MergePatch({"spec": {"blockDeployment": True}})
        await client.patch(KEPTN_CONFIGS, CONFIG, patch, flow.namespace)
        annotations = {f"keptn.sh/{key.replace('_', '-')}": None for key in checks}
        metadata = {"annotations": {**annotations, "keptn.sh/version": SECOND}}
        await flow.change("Deployment", ENTRY, {"spec": {"template": {"metadata": metadata}}})
        version = await flow.until_ended(APP_VERSIONS, SECOND_APP, "Failed")
        assert version["spec"]["previousVersion"] == FIRST
        assert phases(version["status"])["currentPhase"] == "AppPreDeployTasks"
        await flow.until_like(WORKLOAD_VERSIONS, WORKLOAD.format(SECOND), {})
        (held,) = await flow.until_gated(ENTRY)
        await flow.stay_gated_pods(held)


async def test_timeout_failure_deployment(flow, harbour, client):
    """The time-out of an adopted KeptnConfig ends a deployment whose pods get never ready."""
    stored = await configured(flow, observabilityTimeout="2s")
    async with harbour.adopt_config(client, flow.namespace, CONFIG):
        await harbour.until_standing(client, stored, "in force")
        await flow.create(entry(FIRST, labels={OUTCOME: "never-ready"}))
        version = await flow.until_ended(APP_VERSIONS, FIRST_APP, "Failed")
        workload = await flow.until_ended(WORKLOAD_VERSIONS, WORKLOAD.format(FIRST), "Failed")
    assert phases(version["status"])["currentPhase"] == "AppDeploy"
    assert version["status"]["workloadOverallStatus"] == "Failed"
    assert phases(workload["status"])["currentPhase"] == "WorkloadDeploy"
    assert workload["status"]["deploymentStatus"] == "Failed"
    assert flow.all(TASKS) == []
    assert all(is_released(pod) for pod in flow.all(PODS))


async def test_validate_analysisdefinition(flow, client):
    """A template's name may have an underscore; a target has one operator."""

    async def define(name, **more):
        reference = {"name": "response_time_p95", "namespace": "keptn-system"}
        objective = {"analysisValueTemplateRef": reference, "weight": 1, "keyObjective": False}
        score = {"passPercentage": 90, "warningPercentage": 75}
        spec = {"objectives": [{**objective, **more}], "totalScore": score}
        return await flow.create(of_kind("AnalysisDefinition", name, spec))

    for name, more in {"empty": {}, "good": {"target": TARGET}}.items():
        await define(name, **more)
        stored = msgspec.json.decode(await client.get(ANALYSIS_DEFINITIONS, name, flow.namespace))
        (objective,) = stored["spec"]["objectives"]
        assert objective["analysisValueTemplateRef"]["name"] == "response_time_p95"
    with pytest.raises(ApiError, match=r"spec\.objectives\[0\]\.target\.failure"):
        await define("bad", target=CONTRADICTION)
    with pytest.raises(NotFoundError):
        await client.get(ANALYSIS_DEFINITIONS, "bad", flow.namespace)


@pytest.mark.parametrize("controller_flags", [LOOPBACK], ids=["loopback"])
async def test_metrics(flow, harbour):
    """Bad ranges are refused, and the value is at the path of Keptn's documentation."""
    kubectl = harbour.plane.kubectl
    path = (
        f"/apis/custom.metrics.k8s.io/v1beta1/namespaces/{flow.namespace}/keptnmetrics.metrics.sh"
    )

    def shown():
        result = kubectl("get", "--raw", f"{path}/podtato-head/podtato-head", check=False)
        return (
            [item["value"] for item in json.loads(result.stdout)["items"]] if result.stdout else []
        )

    async with ScriptedPrometheus() as server:
        server.say["podtato-head"] = matrix("4", "4", "4")
        spec = {"type": "prometheus", "targetServer": server.url}
        await flow.create(of_kind("KeptnMetricsProvider", PROVIDER, spec))
        for span in (
            {"interval": "5mins"},
            {**SPAN, "step": "1mins"},
            {**SPAN, "aggregation": "p91"},
        ):
            manifest = metric("bad")
            with pytest.raises(ApiError, match=r"spec\.range"):
                await flow.create({**manifest, "spec": {**manifest["spec"], "range": span}})
        manifest = metric("podtato-head")
        await flow.create({**manifest, "spec": {**manifest["spec"], "range": SPAN}})
        service = "apiservice/v1beta1.custom.metrics.k8s.io"
        await asyncio.to_thread(kubectl, "wait", "--for=condition=Available", service, WAIT)
        await asyncio.to_thread(eventually, shown, is_right=lambda values: values == ["4"])
