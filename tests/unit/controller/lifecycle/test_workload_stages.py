"""Owners of a version's pods decide on its stages."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from harbourmaster.api.resources import (
    APP_VERSIONS,
    DAEMON_SETS,
    DEPLOYMENTS,
    REPLICA_SETS,
    STATEFUL_SETS,
    WORKLOAD_VERSIONS,
    WORKLOADS,
)
from harbourmaster.controller.lifecycle.workload_versions import WorkloadVersionReconciler
from harbourmaster.lifecycle.gated_pods import Pod
from harbourmaster.lifecycle.model import AppVersionStatus, ResourceReference
from harbourmaster.webhook.settings import FIRST_WITH_GATES, gating_of
from helpers.phased import NOW, app_version, workload_version
from helpers.simulated_server import Mirrored, Server, owner

NAME = "shop-cart-2.0"
KEY = f"prod/{NAME}"
REVISION = "deployment.kubernetes.io/revision"
DESIRED = "deployment.kubernetes.io/desired-replicas"


@pytest.fixture
def server():
    fake_server = Server()
    passed = {
        "pre_deployment_status": "Succeeded",
        "pre_deployment_evaluation_status": "Succeeded",
    }
    status = AppVersionStatus(**passed)
    fake_server.put(APP_VERSIONS, app_version(workloads=[("cart", "2.0")], status=status))
    return fake_server


@pytest.fixture
def life(server):
    """Return a function that begins a life with a version whose pods have an owner."""

    def begin(kind, *, reference="cart", uid="s-1"):
        version = workload_version(stages="1, 50%")
        owner_reference = ResourceReference(uid=uid, kind=kind, name=reference)
        version = replace(version, spec=replace(version.spec, resource_reference=owner_reference))
        server.put(WORKLOAD_VERSIONS, version)
        return Mirrored(server, WorkloadVersionReconciler, now=lambda: NOW)

    return begin


def stage_of(life):
    stage = life.workload_version(NAME).status.stage
    return (stage.number, stage.state, stage.wanted) if stage is not None else None


def replica_set(name, uid, revision, *, wanted=4, desired=8, **status):
    obj = owner(name, uid=uid, wanted=wanted, owners=[("Deployment", "cart")], **status)
    obj["metadata"]["annotations"] = {REVISION: str(revision), DESIRED: str(desired)}
    return obj


@pytest.mark.parametrize(
    ("kind", "former"),
    [
        ("StatefulSet", {"replicas": 4, "updatedReplicas": 1}),
        (
            "DaemonSet",
            {
                "desiredNumberScheduled": 4,
                "currentNumberScheduled": 4,
                "updatedNumberScheduled": 1,
            },
        ),
    ],
)
async def test_pods_of_the_former_template_are_others(server, life, kind, former):
    resource = {"StatefulSet": STATEFUL_SETS, "DaemonSet": DAEMON_SETS}[kind]
    server.put(resource, owner("cart", uid="s-1", wanted=4, **former))
    begun = life(kind)
    await begun.sweep()
    assert stage_of(begun) == (1, "Releasing", 4)


@pytest.mark.parametrize("kind", ["StatefulSet", "DaemonSet"])
async def test_an_owner_whose_watch_is_behind_is_waited_for(server, life, kind):
    resource = {"StatefulSet": STATEFUL_SETS, "DaemonSet": DAEMON_SETS}[kind]
    counts = {
        "replicas": 4,
        "updatedReplicas": 4,
        "availableReplicas": 4,
        "desiredNumberScheduled": 4,
        "currentNumberScheduled": 4,
        "updatedNumberScheduled": 4,
        "numberReady": 4,
    }
    server.put(resource, owner("cart", uid="s-1", wanted=4, **counts))
    begun = life(kind)
    # The newest template comes, and the mirror does not know it yet.
    metadata = server.get(resource, "cart")["metadata"]
    server.change(resource, "cart", metadata={**metadata, "generation": 2})
    (reconciler,) = begun.reconcilers
    await reconciler.reconcile(KEY)
    assert stage_of(begun) is None
    status = {"observedGeneration": 2, **counts, "updatedReplicas": 0, "updatedNumberScheduled": 0}
    server.change(resource, "cart", status=status)
    begun.sync()
    await begun.sweep()
    assert stage_of(begun) == (1, "Releasing", 4)


async def test_a_partition_keeps_pods_from_the_stages(server, life):
    obj = owner("cart", uid="s-1", wanted=8, replicas=8, updatedReplicas=0)
    obj["spec"]["updateStrategy"] = {"type": "RollingUpdate", "rollingUpdate": {"partition": 6}}
    server.put(STATEFUL_SETS, obj)
    begun = life("StatefulSet")
    await begun.sweep()
    assert stage_of(begun) == (1, "Releasing", 2)


async def test_a_deployment_wants_its_own_number_of_pods(server, life):
    server.put(DEPLOYMENTS, owner("cart", uid="d-1"))
    server.put(REPLICA_SETS, replica_set("cart-1", "rs-1", 1, availableReplicas=4))
    server.put(REPLICA_SETS, replica_set("cart-2", "rs-2", 2, wanted=1))
    begun = life("ReplicaSet", reference="cart-2", uid="rs-2")
    await begun.sweep()
    assert stage_of(begun) == (1, "Releasing", 8)


async def test_a_first_version_is_not_released_in_stages(server, life):
    server.put(DEPLOYMENTS, owner("cart", uid="d-1"))
    server.put(REPLICA_SETS, replica_set("cart-1", "rs-1", 1, wanted=0))
    server.put(REPLICA_SETS, replica_set("cart-2", "rs-2", 2))
    begun = life("ReplicaSet", reference="cart-2", uid="rs-2")
    await begun.sweep()
    assert stage_of(begun) == (0, "Skipped", 8)


@pytest.mark.parametrize(
    ("kind", "change", "reason"),
    [
        ("ReplicaSet", {"strategy": {"type": "Recreate"}}, "the strategy Recreate"),
        ("StatefulSet", {"updateStrategy": {"type": "OnDelete"}}, "the update strategy OnDelete"),
        ("DaemonSet", {"updateStrategy": {"type": "OnDelete"}}, "the update strategy OnDelete"),
    ],
)
async def test_owners_with_other_strategies_refuse_stages(server, life, kind, change, reason):
    if kind == "ReplicaSet":
        deployment = owner("cart", uid="d-1")
        deployment["spec"] |= change
        server.put(DEPLOYMENTS, deployment)
        server.put(REPLICA_SETS, replica_set("cart-1", "s-1", 1))
        begun = life(kind, reference="cart-1")
    else:
        obj = owner("cart", uid="s-1", wanted=4, replicas=4)
        obj["spec"] |= change
        resource = {"StatefulSet": STATEFUL_SETS, "DaemonSet": DAEMON_SETS}[kind]
        server.put(resource, obj)
        begun = life(kind)
    await begun.sweep()
    stage = begun.workload_version(NAME).status.stage
    assert stage.state == "Refused"
    assert stage.message.startswith(reason)
    assert "WorkloadStageRefused" in begun.signals.reasons


async def test_two_owners_of_one_workload_refuse_stages(server, life):
    server.put(STATEFUL_SETS, owner("cart", uid="s-1", wanted=4, replicas=4))
    others = {"gates.harbourmaster.dev/other-owners": '{"s-2": ["1.0", ""]}'}
    references = [
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": name, "uid": uid}
        for name, uid in (("cart", "s-1"), ("cart-two", "s-2"))
    ]
    metadata = {"name": "shop-cart", "annotations": others, "ownerReferences": references}
    followed = {"uid": "s-1", "kind": "StatefulSet", "name": "cart"}
    spec = {"app": "shop", "version": "2.0", "resourceReference": followed}
    workload = {"metadata": metadata, "spec": spec, "status": {"owners": ["s-1", "s-2"]}}
    server.put(WORKLOADS, workload)
    begun = life("StatefulSet")
    await begun.sweep()
    stage = begun.workload_version(NAME).status.stage
    assert stage.state == "Refused"
    assert "StatefulSet cart (version 2.0), StatefulSet cart-two (version 1.0)" in stage.message


async def test_pods_that_wait_in_a_scheduler_refuse_stages(server, life):
    server.put(STATEFUL_SETS, owner("cart", uid="s-1", wanted=4, replicas=4))
    begun = life("StatefulSet")
    keys = {"keptn.sh/app": "shop", "keptn.sh/workload": "cart", "keptn.sh/version": "2.0"}
    pod = Pod("cart-3", "prod", annotations=keys, is_in_scheduler=True)
    begun.caches.pods.store.put(pod.key, pod)
    await begun.sweep()
    stage = begun.workload_version(NAME).status.stage
    assert stage.state == "Refused"
    setting = stage.message.partition("set ")[2].split(" to ")
    assert setting == ["gating", gating_of(FIRST_WITH_GATES)]


async def test_a_rollout_of_argo_refuses_stages(server, life):
    obj = replica_set("cart-1", "s-1", 1)
    obj["metadata"]["ownerReferences"][0]["kind"] = "Rollout"
    server.put(REPLICA_SETS, obj)
    begun = life("ReplicaSet", reference="cart-1")
    await begun.sweep()
    assert begun.workload_version(NAME).status.stage.message.startswith("a Rollout of Argo")


async def test_pods_that_came_without_a_gate_end_the_stages(server, life):
    server.put(STATEFUL_SETS, owner("cart", uid="s-1", wanted=4, replicas=4, updatedReplicas=1))
    begun = life("StatefulSet")
    await begun.sweep()
    counts = {"replicas": 4, "updatedReplicas": 4, "availableReplicas": 4}
    server.change(STATEFUL_SETS, "cart", status={"observedGeneration": 1, **counts})
    begun.sync()
    await begun.sweep()
    status = begun.workload_version(NAME).status
    assert (status.stage.state, status.status) == ("Completed", "Succeeded")


async def test_a_replica_set_without_pods_and_with_a_newer_one_is_deployed(server, life):
    server.put(DEPLOYMENTS, owner("cart", uid="d-1", wanted=0))
    server.put(REPLICA_SETS, replica_set("cart-1", "rs-1", 1, wanted=0, desired=0))
    server.put(REPLICA_SETS, replica_set("cart-2", "rs-2", 2, wanted=0, desired=0))
    begun = life("ReplicaSet", reference="cart-1", uid="rs-1")
    await begun.sweep()
    assert begun.workload_version(NAME).status.status == "Succeeded"
