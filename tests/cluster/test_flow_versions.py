"""Flows after a first version: further ones, further owners, more pods, and the way back."""

from __future__ import annotations

import asyncio
import json
from functools import partial

import pytest

from harbourmaster.api.resources import (
    APP_VERSIONS,
    APPS,
    JOBS,
    PODS,
    REPLICA_SETS,
    TASKS,
    WORKLOAD_VERSIONS,
    WORKLOADS,
)
from harbourmaster.lifecycle.conversion import convert
from helpers import rights
from helpers.command import harbourmaster
from helpers.flow.manifests import (
    OUTCOME,
    RESOURCES,
    app,
    container_task,
    deployment,
    keptn,
    owner,
)
from helpers.flow.namespace import gates
from helpers.patience import WAIT
from helpers.schemas import open_definition

pytestmark = pytest.mark.gate
ONE_SECOND = {"gates.harbourmaster.dev/deployment-timeout": "1s"}


async def to_version(flow, kind, name, version, **annotations):
    """Change the annotations of an owner's pods."""
    given = {key: value for key, value in keptn(None, version, **annotations).items() if value}
    template = {"metadata": {"annotations": given}}
    await flow.change(kind, name, {"spec": {"template": template}})


async def until_versions(flow, part, version, count=1):
    """Wait until all pods of a part are released ones of a version."""

    def running():
        pods = flow.pods(part)
        wanted = {"keptn.sh/version": version}
        right = [
            pod
            for pod in pods
            if wanted.items() <= pod["metadata"]["annotations"].items() and not gates(pod)
        ]
        return right if len(right) == len(pods) == count else None

    return await flow.until(running, why=lambda: f"not {count} pods of {part} {version}")


@pytest.mark.full
async def test_a_pipeline_waits_for_the_newest_version_with_the_rights_of_a_reader(
    flow, harbour, tmp_path
):
    kubectl = partial(harbour.plane.kubectl, f"--namespace={flow.namespace}")
    kubectl("apply", "--filename=deploy/rbac/users.yaml")
    account = f"--serviceaccount={flow.namespace}:default"
    for role in ("view", "harbourmaster-lifecycle-viewer", "harbourmaster-policy-viewer"):
        kubectl("create", "rolebinding", role, f"--clusterrole={role}", account)
    token = kubectl("create", "token", "default").stdout.strip()
    kubeconfig = tmp_path / "reader.yaml"
    kubeconfig.write_text(rights.kubeconfig(harbour.plane.kubeconfig, token=token))
    wait = partial(
        asyncio.to_thread,
        harbourmaster,
        *("gate", "wait", "deployment/ledger", "-n", flow.namespace),
        kubeconfig=kubeconfig,
    )
    await flow.create(
        container_task("quick"),
        container_task("failing", "fail"),
        deployment("ledger", keptn("ledger", "1", pre_deployment_tasks="quick")),
    )
    first = await wait()
    assert (first.returncode, first.stderr) == (0, "")
    assert gates(flow.pods("ledger")[0]) == []
    # The pod of the version before runs on, and must not be taken for the newest.
    await to_version(flow, "Deployment", "ledger", "2", pre_deployment_tasks="failing")
    second = await wait()
    assert second.returncode == 1, second.stdout
    assert "pre-deployment task failing failed and will not be retried" in second.stderr
    assert "released" not in second.stdout


async def test_a_second_version_of_a_statefulset_waits_for_its_own_checks(flow):
    """The StatefulSet is the same object in both versions (C50)."""
    await flow.create(
        container_task("quick"),
        container_task("hanging", "hang"),
        owner(
            "StatefulSet",
            "ledger",
            keptn("ledger", "0.4", pre_deployment_tasks="quick"),
            replicas=2,
        ),
    )
    await until_versions(flow, "ledger", "0.4", 2)
    await flow.until_ended(WORKLOAD_VERSIONS, "ledger-ledger-0.4")
    await to_version(flow, "StatefulSet", "ledger", "0.5", pre_deployment_tasks="hanging")
    (held,) = await flow.until_gated("ledger")
    assert held["metadata"]["annotations"]["keptn.sh/version"] == "0.5"
    await flow.until_like(
        WORKLOAD_VERSIONS,
        "ledger-ledger-0.5",
        {"status": {"currentPhase": "WorkloadPreDeployTasks", "status": "Progressing"}},
    )
    await flow.stay_gated_pods(held)
    await flow.let_end()
    await until_versions(flow, "ledger", "0.5", 2)
    version = await flow.until_ended(WORKLOAD_VERSIONS, "ledger-ledger-0.5")
    assert version["spec"]["previousVersion"] == "0.4"
    await flow.until_ended(APP_VERSIONS, "ledger-0.5-d4735e3a")
    assert flow.find(WORKLOAD_VERSIONS, "ledger-ledger-0.4")["status"]["status"] == "Succeeded"
    # Only the last of both pods makes the version deployed.
    uids = {pod["metadata"]["uid"] for pod in flow.pods("ledger")}
    assert len(uids) == 2


async def test_a_daemonset_runs_its_versions_one_after_the_other(flow):
    metadata = "commit-id=1234,stage=dev"
    await flow.create(
        container_task("quick"),
        owner(
            "DaemonSet",
            "work",
            above=keptn("work", "0.4", pre_deployment_tasks="quick", metadata=metadata),
        ),
    )
    await until_versions(flow, "work", "0.4", 3)
    await flow.until_ended(WORKLOAD_VERSIONS, "work-work-0.4")
    (workload,) = flow.all(WORKLOADS)
    assert workload["metadata"]["name"] == "work-work"
    assert workload["spec"]["metadata"] == {"commit-id": "1234", "stage": "dev"}
    assert workload["spec"]["resourceReference"]["kind"] == "DaemonSet"
    template = {"metadata": {"annotations": {"example.com/build": "5"}}}
    change = {
        "metadata": {"annotations": {"keptn.sh/version": "0.5"}},
        "spec": {
            "template": template,
            "updateStrategy": {"rollingUpdate": {"maxUnavailable": 3}},
        },
    }
    await flow.change("DaemonSet", "work", change)
    await until_versions(flow, "work", "0.5", 3)
    version = await flow.until_ended(WORKLOAD_VERSIONS, "work-work-0.5")
    assert version["spec"]["previousVersion"] == "0.4"
    await flow.until_ended(APP_VERSIONS, "work-0.5-d4735e3a")


async def test_a_new_replicaset_of_the_same_version_needs_no_new_checks(flow):
    """C48: its uid joins those of the version."""
    await flow.create(
        container_task("quick"),
        deployment("ledger", keptn("ledger", pre_deployment_tasks="quick")),
    )
    (before,) = await flow.until_released("ledger")
    await flow.until_ended(WORKLOAD_VERSIONS, "ledger-ledger-1.0")
    env = [{"name": "A", "value": "b"}]
    container = {"name": "ledger", "image": "registry.example.com/ledger:3", "env": env}
    await flow.change(
        "Deployment", "ledger", {"spec": {"template": {"spec": {"containers": [container]}}}}
    )

    def is_replaced():
        pods = flow.pods("ledger")
        return len(pods) == 1 and pods[0]["metadata"]["uid"] != before["metadata"]["uid"]

    await flow.until(is_replaced)
    (after,) = await flow.until_released("ledger")
    (new,) = [
        reference
        for reference in after["metadata"]["ownerReferences"]
        if reference["kind"] == "ReplicaSet"
    ]
    await flow.until_like(
        WORKLOAD_VERSIONS,
        "ledger-ledger-1.0",
        {"spec": {"resourceReference": {"uid": new["uid"]}}, "status": {"status": "Succeeded"}},
    )
    assert len(flow.all(TASKS)) == len(flow.all(JOBS)) == 1
    assert len(flow.all(APP_VERSIONS)) == 1


@pytest.mark.full
async def test_two_deployments_of_one_version_both_run(flow):
    """Upstream's issue 3296: only the owner seen last was known."""
    annotations = keptn("ledger", pre_deployment_tasks="hanging")
    await flow.create(
        container_task("hanging", "hang"),
        deployment("blue", annotations, replicas=2),
        deployment("green", annotations, replicas=2),
    )
    await flow.until_gated("blue", 2)
    await flow.until_gated("green", 2)
    await flow.stay_gated("blue", "green")
    await flow.let_end()
    await flow.until_released("blue", 2)
    await flow.until_released("green", 2)
    await flow.until_ended(WORKLOAD_VERSIONS, "ledger-ledger-1.0")
    assert len(flow.all(TASKS)) == 1


async def test_more_pods_of_a_version_that_passed_go_without_new_checks(flow):
    """C47, and pods that are evicted."""
    await flow.create(
        container_task("quick"),
        deployment("ledger", keptn("ledger", pre_deployment_tasks="quick")),
    )
    (first,) = await flow.until_released("ledger")
    await flow.until_ended(WORKLOAD_VERSIONS, "ledger-ledger-1.0")
    await flow.change("Deployment", "ledger", {"spec": {"replicas": 3}})
    pods = await flow.until_released("ledger", 3)
    for pod in pods:
        assert gates(flow.history(PODS, pod["metadata"]["name"])[0]) == ["keptn-prechecks-gate"]
    await flow.delete("Pod", first["metadata"]["name"])
    await flow.until(lambda: flow.find(PODS, first["metadata"]["name"]) is None)
    await flow.until_released("ledger", 3)
    assert len(flow.all(TASKS)) == len(flow.all(APP_VERSIONS)) == 1


async def test_the_way_back_to_a_version_that_passed_is_free(flow):
    await flow.create(
        container_task("quick"),
        deployment("ledger", keptn("ledger", "1", pre_deployment_tasks="quick")),
    )
    await until_versions(flow, "ledger", "1")
    await flow.until_ended(APP_VERSIONS, "ledger-1-6b86b273")
    await to_version(flow, "Deployment", "ledger", "2")
    await until_versions(flow, "ledger", "2")
    await flow.until_ended(APP_VERSIONS, "ledger-2-d4735e3a")
    await to_version(flow, "Deployment", "ledger", "1")
    await until_versions(flow, "ledger", "1")
    await flow.until_like(APPS, "ledger", {"spec": {"version": "1"}, "metadata": {"generation": 3}})
    version = await flow.until_ended(APP_VERSIONS, "ledger-1-4e074085")
    assert version["spec"]["previousVersion"] == "2"
    # The same version of an earlier generation is superseded, though it had succeeded.
    await flow.until_ended(APP_VERSIONS, "ledger-1-6b86b273", "Deprecated")
    tasks = [task["spec"]["context"]["workloadVersion"] for task in flow.all(TASKS)]
    assert sorted(tasks) == ["1", "2"]
    first = flow.find(WORKLOAD_VERSIONS, "ledger-ledger-1")
    assert first["status"]["status"] == "Succeeded"


@pytest.mark.full
async def test_the_way_back_from_a_version_that_failed_is_as_if_it_had_never_been(flow):
    """The old ReplicaSet kept its pods, for the new one's never got ready."""
    await flow.create(container_task("failing", "fail"), deployment("ledger", keptn("ledger", "1")))
    (before,) = await until_versions(flow, "ledger", "1")
    await flow.until_ended(APP_VERSIONS, "ledger-1-6b86b273")
    await to_version(flow, "Deployment", "ledger", "2", pre_deployment_tasks="failing")
    await flow.until_ended(APP_VERSIONS, "ledger-2-d4735e3a", "Failed")
    (held,) = await flow.until_gated("ledger")
    await flow.stay_gated_pods(held)
    assert len(flow.pods("ledger")) == 2
    change = {"keptn.sh/version": "1", "keptn.sh/pre-deployment-tasks": None}
    template = {"metadata": {"annotations": change}}
    await flow.change("Deployment", "ledger", {"spec": {"template": template}})
    await flow.until(lambda: len(flow.pods("ledger")) == 1)
    (after,) = flow.pods("ledger")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    flow.assert_never_bound(held)


async def test_versions_in_quick_succession_all_arrive(flow):
    """Each app's request for the first version may be on its way while the second one comes."""
    parts = [f"part-{number}" for number in range(3)]
    await flow.create(*(deployment(name, keptn(name, "0")) for name in parts))
    for version in range(1, 4):
        for name in parts:
            await until_versions(flow, name, str(version - 1))
            await to_version(flow, "Deployment", name, str(version))
    for name in parts:
        await until_versions(flow, name, "3")
        await flow.until_like(APPS, name, {"spec": {"version": "3"}})
        await flow.until_ended(WORKLOAD_VERSIONS, f"{name}-{name}-3")


@pytest.mark.full
async def test_a_workload_outlives_the_replicasets_of_its_older_versions(flow):
    """A revisionHistoryLimit of 0 has the old owner collected (C49)."""
    await flow.create(deployment("ledger", keptn("ledger", "0.1"), revisionHistoryLimit=0))
    await until_versions(flow, "ledger", "0.1")
    await flow.until_ended(APP_VERSIONS, "ledger-0.1-6b86b273")
    (old,) = flow.all(REPLICA_SETS)
    (workload,) = flow.all(WORKLOADS)
    await to_version(flow, "Deployment", "ledger", "0.2")
    await until_versions(flow, "ledger", "0.2")
    await flow.until_ended(APP_VERSIONS, "ledger-0.2-d4735e3a")
    await flow.until(lambda: flow.find(REPLICA_SETS, old["metadata"]["name"]) is None)
    (new,) = flow.all(REPLICA_SETS)
    await flow.pass_through()
    stored = flow.find(WORKLOADS, workload["metadata"]["name"])
    assert stored["metadata"]["uid"] == workload["metadata"]["uid"]
    owners = [reference["uid"] for reference in stored["metadata"]["ownerReferences"]]
    assert owners == [new["metadata"]["uid"]]
    for name in ("0.1", "0.2"):
        version = flow.find(WORKLOAD_VERSIONS, f"ledger-ledger-{name}")
        assert version["status"]["status"] == "Succeeded"


async def test_a_version_superseded_before_its_checks_ended_holds_its_pods(flow):
    """The new version's way through leaves the old one's pods behind."""
    await flow.create(
        container_task("hanging", "hang"),
        deployment("ledger", keptn("ledger", "1", pre_deployment_tasks="hanging")),
    )
    (held,) = await flow.until_gated("ledger")
    await flow.until_like(
        WORKLOAD_VERSIONS, "ledger-ledger-1", {"status": {"currentPhase": "WorkloadPreDeployTasks"}}
    )
    change = {
        "spec": {
            "template": {
                "metadata": {
                    "annotations": {"keptn.sh/version": "2", "keptn.sh/pre-deployment-tasks": None}
                }
            }
        }
    }
    await flow.change("Deployment", "ledger", change)
    await until_versions(flow, "ledger", "2")
    await flow.until_ended(APP_VERSIONS, "ledger-2-d4735e3a")
    await flow.until_ended(APP_VERSIONS, "ledger-1-6b86b273", "Deprecated")
    flow.assert_never_bound(held)


@pytest.fixture(scope="module")
def rollouts(harbour):
    """Rollouts of Argo as a kind; only tests change them."""
    manifest = json.dumps(open_definition(RESOURCES["Rollout"]))
    kubectl = harbour.plane.kubectl
    kubectl("apply", "-f=-", stdin=manifest)
    kubectl("wait", "--for=condition=Established", WAIT, "-f=-", stdin=manifest)


async def roll_out(flow, annotations, **status):
    """Create a Rollout with a status and its ReplicaSet, as Argo's controller does."""
    stored = await flow.create(owner("Rollout", "ledger", above=annotations))
    await flow.change("Rollout", "ledger", {"status": status}, subresource="status")
    replica_set = owner("ReplicaSet", "ledger")
    reference = {
        "apiVersion": stored["apiVersion"],
        "kind": "Rollout",
        "name": "ledger",
        "uid": stored["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    replica_set["metadata"]["ownerReferences"] = [reference]
    await flow.create(replica_set)


# Argo writes text.
HEALTHY = {"observedGeneration": "1", "replicas": 1, "updatedReplicas": 1, "phase": "Healthy"}


async def test_a_rollout_s_replicasets_inherit_and_wait_for_its_health(flow, rollouts):
    await flow.create(container_task("quick"))
    await roll_out(flow, keptn("ledger", "3.1", pre_deployment_tasks="quick"))
    (pod,) = await flow.until_released("ledger")
    assert pod["metadata"]["annotations"]["keptn.sh/version"] == "3.1"
    name = "ledger-ledger-3.1"
    await flow.until_like(
        WORKLOAD_VERSIONS,
        name,
        {"status": {"currentPhase": "WorkloadDeploy", "deploymentStatus": "Progressing"}},
    )
    await flow.pass_through()
    version = flow.find(WORKLOAD_VERSIONS, name)
    assert version["status"]["deploymentStatus"] == "Progressing"
    assert version["spec"]["resourceReference"]["kind"] == "ReplicaSet"
    await flow.change("Rollout", "ledger", {"status": HEALTHY}, subresource="status")
    await flow.until_ended(WORKLOAD_VERSIONS, name)


async def test_a_version_does_not_fail_while_its_rollout_pauses(flow, rollouts):
    paused = {"phase": "Paused", "replicas": 5, "updatedReplicas": 1}
    await roll_out(flow, {**keptn("ledger"), **ONE_SECOND}, **paused)
    name = "ledger-ledger-1.0"
    await flow.until_like(WORKLOAD_VERSIONS, name, {"status": {"currentPhase": "WorkloadDeploy"}})
    # This one began later, with the same time-out.
    annotations = {**keptn("later"), **ONE_SECOND}
    await flow.create(deployment("later", annotations, labels={OUTCOME: "never-ready"}))
    await flow.until_ended(WORKLOAD_VERSIONS, "later-later-1.0", "Failed")
    await flow.change("Rollout", "ledger", {"status": HEALTHY}, subresource="status")
    await flow.until_ended(WORKLOAD_VERSIONS, name)
    await flow.until_ended(APP_VERSIONS, "ledger-1.0-6b86b273")
    for resource, version in ((WORKLOAD_VERSIONS, name), (APP_VERSIONS, "ledger-1.0-6b86b273")):
        states = {obj.get("status", {}).get("status") for obj in flow.history(resource, version)}
        assert "Failed" not in states


async def test_an_app_does_not_wait_for_a_workload_that_wants_no_pods(flow):
    """KEDA scales the worker from zero later; then its own checks run."""
    worker = keptn("worker", "1", app="shop", pre_deployment_tasks="hanging")
    await flow.create(
        container_task("hanging", "hang"),
        app("shop", "1", ("cart", "1"), ("worker", "1")),
        deployment("cart", keptn("cart", "1", app="shop")),
        deployment("worker", worker, replicas=0),
    )
    ended = await flow.until_ended(APP_VERSIONS, "shop-1-6b86b273")
    assert [state["status"] for state in ended["status"]["workloadStatus"]] == ["Succeeded"] * 2
    assert flow.find(WORKLOADS, "shop-worker") is None
    await flow.change("Deployment", "worker", {"spec": {"replicas": 1}})
    (held,) = await flow.until_gated("worker")
    await flow.until_like(
        WORKLOAD_VERSIONS, "shop-worker-1", {"status": {"currentPhase": "WorkloadPreDeployTasks"}}
    )
    flow.assert_never_bound(held)
    await flow.let_end()
    await flow.until_released("worker")
    await flow.until_ended(WORKLOAD_VERSIONS, "shop-worker-1")
    assert flow.find(APP_VERSIONS, "shop-1-6b86b273")["status"] == ended["status"]


def image(digit):
    return [{"name": "main", "image": f"registry.example.com/cart:main@sha256:{digit * 64}"}]


async def to_image(flow, name, digit):
    await flow.change(
        "Deployment", name, {"spec": {"template": {"spec": {"containers": image(digit)}}}}
    )


async def test_another_digest_under_the_same_tag_is_checked(flow):
    annotations = keptn("cart", None, container="main", pre_deployment_tasks="scan")
    await flow.create(
        container_task("scan"), deployment("cart", annotations, containers=image("a"))
    )
    await until_versions(flow, "cart", "main-aaaaaaaaaaaa")
    await flow.change("KeptnTaskDefinition", "scan", {"metadata": {"labels": {OUTCOME: "fail"}}})
    await to_image(flow, "cart", "b")
    (held,) = await flow.until_gated("cart")
    await flow.until_ended(WORKLOAD_VERSIONS, "cart-cart-main-bbbbbbbbbbbb", "Failed")
    await flow.stay_gated_pods(held)


async def test_the_checks_of_an_older_app_hold_its_pods(flow):
    older = app("shop", "0.1.0", ("cart", "0.1.0"))
    older["apiVersion"] = "lifecycle.keptn.sh/v1alpha3"
    older["spec"]["preDeploymentTasks"] = ["migrate"]
    await flow.create(
        container_task("migrate", "fail"),
        convert(older, "lifecycle.keptn.sh/v1"),
        deployment("cart", keptn("cart", "0.1.0", app="shop")),
    )
    await flow.until_ended(APP_VERSIONS, "shop-0.1.0-6b86b273", "Failed")
    await flow.stay_gated("cart")


@pytest.mark.parametrize(
    ("listed", "written", "name"),
    [
        ("1.0.0-RC1", "1.0.0-rc1", "1.0.0-rc1"),
        ("1.0.0-rc1", "1.0.0-RC1", "1.0.0-rc1"),
        ("1.0.0+build.5", "1.0.0+build.5", "1.0.0-build.5-b653a5d7"),
    ],
)
async def test_an_app_meets_its_workload_however_the_version_is_written(
    flow, listed, written, name
):
    await flow.create(
        app("shop", listed, ("cart", listed)),
        deployment("cart", keptn("cart", written, app="shop")),
    )
    await flow.until_released("cart")
    await flow.until_ended(WORKLOAD_VERSIONS, f"shop-cart-{name}")
    await flow.until_ended(APP_VERSIONS, f"shop-{name}-6b86b273")


async def test_a_version_that_is_replaced_before_its_end_is_deprecated(flow):
    await flow.create(
        deployment("web", keptn("web", "1.0.0"), labels={OUTCOME: "never-ready"}),
    )
    await flow.until_like(
        WORKLOAD_VERSIONS, "web-web-1.0.0", {"status": {"currentPhase": "WorkloadDeploy"}}
    )
    template = {"labels": {OUTCOME: None}, "annotations": {"keptn.sh/version": "1.0.1"}}
    await flow.change("Deployment", "web", {"spec": {"template": {"metadata": template}}})
    await flow.until_ended(WORKLOAD_VERSIONS, "web-web-1.0.1")
    await flow.until_ended(WORKLOAD_VERSIONS, "web-web-1.0.0", "Deprecated")
    # A rollback resumes it, and it ends this time.
    template = {"labels": {OUTCOME: "ready"}, "annotations": {"keptn.sh/version": "1.0.0"}}
    await flow.change("Deployment", "web", {"spec": {"template": {"metadata": template}}})
    await flow.until_ended(WORKLOAD_VERSIONS, "web-web-1.0.0")
    assert [event for event in flow.events() if event["type"] != "Normal"] == []


async def test_of_a_burst_of_versions_only_the_last_is_left(flow):
    versions = [f"1.0.{patch}" for patch in range(5)]
    await flow.create(deployment("cart", keptn("cart", versions[0], app="shop")))
    for version in versions:
        await to_version(flow, "Deployment", "cart", version)
        await flow.until_like(WORKLOAD_VERSIONS, f"shop-cart-{version}", {})
    await flow.until_ended(WORKLOAD_VERSIONS, f"shop-cart-{versions[-1]}")
    for version in versions[:-1]:
        await flow.until_ended(WORKLOAD_VERSIONS, f"shop-cart-{version}", "Deprecated")
