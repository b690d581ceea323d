"""Apps and workloads as Keptn's own end-to-end tests have them."""

from __future__ import annotations

import json

import pytest

from harbourmaster.api.patches import MergePatch
from harbourmaster.api.resources import (
    APP_CREATION_REQUESTS,
    APP_VERSIONS,
    APPS,
    EVALUATIONS,
    JOBS,
    NAMESPACES,
    PODS,
    TASKS,
    WORKLOAD_VERSIONS,
    WORKLOADS,
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
    task_definition,
    template,
)
from helpers.flow.namespace import GATE, gates, phases

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.slow]

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


@pytest.mark.parametrize("kind", ["annotated", "labelled"])
async def test_namespace_not_enabled(harbour, client, kind):
    given = keptn("waiter", "0.4")
    more = {"labels": given} if kind == "labelled" else {}
    annotations = None if kind == "labelled" else given
    async with harbour.flow(client, f"{kind}-not-enabled", enabled=False) as flow:
        # C02: a label of that name is no annotation.
        await client.patch(*labelled(flow.namespace))
        await flow.create(deployment("waiter", annotations, **more))
        (pod,) = await running(flow, "waiter")
        assert_untouched(flow, pod)
        for resource in (WORKLOADS, APPS, APP_CREATION_REQUESTS):
            assert flow.all(resource) == []


def labelled(namespace):
    label = {"metadata": {"labels": {"keptn.sh/lifecycle-toolkit": "enabled"}}}
    return NAMESPACES, namespace, MergePatch(label)


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


async def test_simple_deployment_annotated_with_app_context(flow):
    await flow.create(
        task_definition("hello", deno={"inline": {"code": "console.log(1)"}}),
        app_context("waiter", metadata={"test-metadata": "test-metadata"}),
        deployment(
            "waiter",
            above=keptn(
                "waiter",
                "0.4",
                pre_deployment_tasks="hello",
                metadata="commit-id=1234,stage=dev",
            ),
            replicas=2,
        ),
    )
    await flow.until_released("waiter", 2)
    await flow.until_ended(WORKLOAD_VERSIONS, "waiter-waiter-0.4")
    (job,) = flow.all(JOBS)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    context = {
        "workloadName": "waiter-waiter",
        "appName": "waiter",
        "appVersion": "",
        "workloadVersion": "0.4",
        "taskType": "pre",
        "objectType": "Workload",
        "metadata": {"commit-id": "1234", "stage": "dev", "test-metadata": "test-metadata"},
    }
    assert container["env"] == [
        {"name": "KEPTN_CONTEXT", "value": json.dumps(context, separators=(",", ":"))},
        {"name": "CMD_ARGS"},
        {"name": "SCRIPT", "value": "/var/data/function.ts"},
    ]


async def test_simple_deployment_container_annotation(flow):
    def containers(tag):
        return [
            {"name": "busybox", "image": f"registry.example.com/busybox:{tag}"},
            {"name": "other", "image": "registry.example.com/other:1"},
        ]

    annotations = keptn("waiter", None, container="busybox")
    await flow.create(deployment("waiter", annotations, containers=containers("1.36")))
    await flow.until_ended(WORKLOAD_VERSIONS, "waiter-waiter-1.36")
    await flow.until_ended(APP_VERSIONS, "waiter-1.36-6b86b273")
    change = {"spec": {"template": {"spec": {"containers": containers("1.37")}}}}
    await flow.change("Deployment", "waiter", change)
    await flow.until_ended(WORKLOAD_VERSIONS, "waiter-waiter-1.37")
    await flow.until_ended(APP_VERSIONS, "waiter-1.37-d4735e3a")


NAMES = {
    "k8s-recommended-label": (
        {"app.kubernetes.io/name": "waiter", "app.kubernetes.io/version": "0.4"},
        "waiter-waiter-0.4",
        "waiter-0.4-6b86b273",
    ),
    "sanitize-version-number": (
        keptn("waiter", "0.4.0_1"),
        "waiter-waiter-0.4.0-1",
        "waiter-0.4.0-1-6b86b273",
    ),
    "upper-case": (
        keptn("Front_End", "V1_RC", app="My_App"),
        "my-app-front-end-v1-rc",
        "my-app-v1-rc-6b86b273",
    ),
    "no-version": (
        keptn("waiter", None),
        "waiter-waiter-",
        "waiter-",
    ),
}


@pytest.mark.parametrize("scenario", NAMES)
async def test_simple_deployment_names(flow, scenario):
    """C06, C19: what the objects are called."""
    annotations, workload_version, app_version = NAMES[scenario]
    await flow.create(deployment("waiter", annotations))
    await flow.until_released("waiter")

    def ended():
        kinds = flow.all(WORKLOAD_VERSIONS), flow.all(APP_VERSIONS)
        names = [version["metadata"]["name"] for versions in kinds for version in versions]
        done = [
            version
            for versions in kinds
            for version in versions
            if version["status"]["status"] == "Succeeded"
        ]
        return names if len(done) == 2 else None

    names = await flow.until(ended)
    for name, expected in zip(names, (workload_version, app_version), strict=True):
        assert name.startswith(expected)
        if scenario != "no-version":
            assert name == expected


async def test_app_creation_request(flow):
    """Both times its workloads make the app, and the request goes."""

    def request():
        return of_kind("KeptnAppCreationRequest", "my-kacr", {"appName": "my-app"})

    def workload(name, version):
        reference = {"uid": "7f1a", "kind": "ReplicaSet", "name": "none"}
        spec = {"app": "my-app", "version": version, "resourceReference": reference}
        return of_kind("KeptnWorkload", f"my-app-{name}", spec)

    await flow.create(workload("my-workload", "1.0.0"), request())
    expected = {
        "metadata": {"labels": {"app.kubernetes.io/managed-by": "keptn"}},
        "spec": {"version": "1.0.0", "workloads": [{"name": "my-workload", "version": "1.0.0"}]},
    }
    await flow.until_like(APPS, "my-app", expected)
    await flow.until(lambda: flow.all(APP_CREATION_REQUESTS) == [])
    await flow.change("KeptnWorkload", "my-app-my-workload", {"spec": {"version": "2.0.0"}})
    await flow.create(workload("my-workload-2", "1.0.0"), request())
    entries = [
        {"name": "my-workload", "version": "2.0.0"},
        {"name": "my-workload-2", "version": "1.0.0"},
    ]
    expected = {"spec": {"version": "2f1832c487", "workloads": entries}}
    await flow.until_like(APPS, "my-app", expected)
    await flow.until(lambda: flow.all(APP_CREATION_REQUESTS) == [])


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


async def test_restartable_app(flow):
    """A revision restarts the checks, and each supersedes the one before, even a finished one."""
    await flow.create(
        container_task("hanging", "hang"),
        app("podtato-head", "1.3", ("entry", "0.1.0")),
        deployment(
            "entry",
            keptn("entry", "0.1.0", app="podtato-head", pre_deployment_tasks="hanging"),
        ),
    )
    first, second, third = (
        f"podtato-head-1.3-{suffix}" for suffix in ("6b86b273", "d4735e3a", "4e074085")
    )
    await flow.until_like(
        APP_VERSIONS, first, {"status": {"currentPhase": "AppDeploy", "status": "Progressing"}}
    )
    await flow.change("KeptnApp", "podtato-head", {"spec": {"revision": 2}})
    await deprecated(flow, first, "AppDeploy")
    await flow.let_end()
    await flow.until_ended(APP_VERSIONS, second)
    await flow.until_ended(WORKLOAD_VERSIONS, "podtato-head-entry-0.1.0")
    await flow.until_released("entry")
    await flow.change("KeptnApp", "podtato-head", {"spec": {"revision": 34}})
    await flow.until_ended(APP_VERSIONS, third)
    await deprecated(flow, second, "Completed")
    assert len(flow.all(TASKS)) == 1


async def deprecated(flow, name, phase):
    version = await flow.until_ended(APP_VERSIONS, name, "Deprecated")
    stored = phases(version["status"])
    assert stored.pop("currentPhase") == phase
    assert set(stored.values()) == {"Deprecated"}


MISSING = {
    "task": (
        {"pre_deployment_tasks": "missing"},
        {"currentPhase": "WorkloadPreDeployTasks", "preDeploymentStatus": "Pending"},
        "CreateTaskNotFound",
        container_task("missing"),
    ),
    "evaluation": (
        {"pre_deployment_evaluations": "missing"},
        {
            "currentPhase": "WorkloadPreDeployEvaluations",
            "preDeploymentEvaluationStatus": "Pending",
        },
        "CreateEvaluationNotFound",
        evaluation_definition("missing", "load", ">5"),
    ),
}


@pytest.mark.parametrize("kind", MISSING)
async def test_workload_version_missing_definition(flow, kind):
    """It waits, tells so once, and goes on when the definition comes."""
    annotations, status, reason, definition = MISSING[kind]
    await flow.measure("load", "10")
    await flow.create(deployment("waiter", keptn("waiter", "0.4", **annotations)))
    name = "waiter-waiter-0.4"
    await flow.until_like(WORKLOAD_VERSIONS, name, {"status": {**status, "status": "Progressing"}})
    await flow.until_like(
        APP_VERSIONS,
        "waiter-0.4-6b86b273",
        {"status": {"currentPhase": "AppDeploy", "status": "Progressing"}},
    )
    await flow.until_told(reason, name)
    await flow.stay_gated("waiter")
    (event,) = [candidate for candidate in flow.events(name) if candidate["reason"] == reason]
    assert event["type"] == "Warning"
    assert "missing" in event["note"]
    assert "series" not in event
    assert flow.all(TASKS) == flow.all(EVALUATIONS) == []
    await flow.create(definition)
    await flow.until_released("waiter")
    await flow.until_ended(WORKLOAD_VERSIONS, name)


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
