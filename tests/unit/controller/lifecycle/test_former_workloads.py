"""Workloads that their owners have left, by the owners and their templates."""

from __future__ import annotations

import msgspec
import pytest

from harbourmaster.api.resources import (
    DAEMON_SETS,
    DEPLOYMENTS,
    REPLICA_SETS,
    STATEFUL_SETS,
    WORKLOAD_VERSIONS,
    WORKLOADS,
)
from harbourmaster.controller.lifecycle.workload_versions import DeploymentCheck
from harbourmaster.lifecycle.gated_pods import decode_pod
from harbourmaster.lifecycle.model import Workload
from helpers.gated import keptn, owner_ref, pod
from helpers.phased import NOW
from helpers.simulated_server import Mirrored, Server

OWNERS = "gates.harbourmaster.dev/owners"
REVISION = "deployment.kubernetes.io/revision"
SETS = {"StatefulSet": STATEFUL_SETS, "DaemonSet": DAEMON_SETS}
DONE = {"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2}
OVER = {"observedGeneration": 1, "desiredNumberScheduled": 3, "updatedNumberScheduled": 3}


@pytest.fixture
def server():
    fake_server = Server()
    fake_server.put(DEPLOYMENTS, {"metadata": {"name": "cart"}})
    return fake_server


def template(names):
    """A pod template whose annotations name a workload, or nothing."""
    return {
        # As the API server writes it.
        "metadata": {
            "creationTimestamp": None,
            "annotations": keptn(names, None) if names else {"a": "b"},
        },
        "spec": {"containers": [{"name": "main", "image": "main:1"}]},
    }


def put_replica_set(  # noqa: PLR0913 - what a ReplicaSet has
    server, name, revision, *, names="cart", wanted=0, pods=0, above="cart"
):
    metadata = {
        "name": name,
        "annotations": {REVISION: str(revision)},
        "ownerReferences": [owner_ref("Deployment", above, f"uid-{above}")],
    }
    spec = {"replicas": wanted, "template": template(names)}
    server.put(REPLICA_SETS, {"metadata": metadata, "spec": spec, "status": {"replicas": pods}})


def put_set(server, kind, status, *, names, strategy=None):
    spec = {"replicas": 2, "template": template(names), "updateStrategy": strategy or {}}
    server.put(SETS[kind], {"metadata": {"name": "cart"}, "spec": spec, "status": status})


def put_version(server, version, *owners, workload="cart", kind="ReplicaSet"):
    """A version of a workload with the names of the owners of its pods, the newest last."""
    reference = {"kind": kind, "name": owners[-1], "uid": f"uid-{owners[-1]}"}
    spec = {"app": "shop", "version": version, "resourceReference": reference}
    uids = ",".join(f"uid-{name}" for name in owners)
    name = f"shop-{workload}"
    metadata = {"name": f"{name}-{version}", "annotations": {OWNERS: uids}}
    server.put(WORKLOAD_VERSIONS, {"metadata": metadata, "spec": {**spec, "workloadName": name}})
    own = {"name": name, "ownerReferences": [owner_ref(kind, owners[-1], f"uid-{owners[-1]}")]}
    status = {"owners": [f"uid-{owners[-1]}"]}
    server.put(WORKLOADS, {"metadata": own, "spec": spec, "status": status})


async def is_gone(server, name="shop-cart", gated=None):
    life = Mirrored(server, now=lambda: NOW)
    if gated is not None:
        waiting = decode_pod(msgspec.json.encode(pod("cart-1", keptn(gated))))
        life.caches.pods.store.replace_all({"prod/cart-1": waiting})
    workload = msgspec.convert(server.get(WORKLOADS, name), Workload)
    return await DeploymentCheck(life.context).is_gone(workload)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ({}, {"names": "store"}, True),
        # Its pods are not tracked any more.
        ({}, {"names": None}, True),
        ({"pods": 1}, {"names": "store"}, False),
        ({"wanted": 1}, {"names": "store"}, False),
        # Scaled to zero, and updated then: its next pods are of this workload.
        ({}, {"names": "cart"}, False),
        # Rolled back to.
        ({"revision": 3}, {"names": "store"}, False),
        # Of another Deployment.
        ({}, {"names": "store", "above": "other"}, False),
    ],
)
async def test_a_workload_is_gone_when_its_replica_set_is_replaced_by_one_that_names_another(
    server, first, second, expected
):
    put_replica_set(server, "cart-1", **{"revision": 1, **first})
    put_replica_set(server, "cart-2", 2, wanted=1, pods=1, **second)
    put_version(server, "1", "cart-1")
    assert await is_gone(server) is expected


async def test_a_deployment_that_is_scaled_to_zero_asks_nothing_and_keeps_its_workload(server):
    put_replica_set(server, "cart-1", 1)
    put_version(server, "1", "cart-1")
    assert not await is_gone(server)
    assert server.requests == []


async def test_a_rollback_to_an_earlier_version_is_seen_though_the_workload_names_the_later(server):
    put_replica_set(server, "cart-1", 3, wanted=1, pods=1)
    put_replica_set(server, "cart-2", 2)
    put_version(server, "1", "cart-1")
    put_version(server, "2", "cart-2")
    assert not await is_gone(server)


async def test_one_of_two_deployments_keeps_the_workload(server):
    put_replica_set(server, "cart-1", 1)
    put_replica_set(server, "cart-2", 2, names="store", wanted=1, pods=1)
    put_replica_set(server, "twin-1", 1, wanted=1, pods=1, above="twin")
    put_version(server, "1", "twin-1", "cart-1")
    assert not await is_gone(server)


@pytest.mark.parametrize(("above", "expected"), [("cart", False), ("store", True), (None, True)])
async def test_a_template_that_names_nothing_inherits_from_its_deployment(server, above, expected):
    put_replica_set(server, "cart-1", 1)
    put_replica_set(server, "cart-2", 2, names=None, wanted=1, pods=1)
    annotations = keptn(above, None) if above else {}
    server.put(DEPLOYMENTS, {"metadata": {"name": "cart", "annotations": annotations}})
    put_version(server, "1", "cart-1")
    assert await is_gone(server) is expected


@pytest.mark.parametrize(("gated", "expected"), [("cart", False), ("store", True)])
async def test_a_pod_that_waits_keeps_its_workload(server, gated, expected):
    put_replica_set(server, "cart-1", 1)
    put_replica_set(server, "cart-2", 2, names="store", wanted=1, pods=1)
    put_version(server, "1", "cart-1")
    assert await is_gone(server, gated=gated) is expected


async def test_what_the_caches_or_the_server_lack_is_not_gone(server):
    put_version(server, "1", "cart-1")
    assert not await is_gone(server)
    put_replica_set(server, "cart-1", 1)
    put_replica_set(server, "cart-2", 2, names="store", wanted=1, pods=1)
    life = Mirrored(server, now=lambda: NOW)
    server.remove(REPLICA_SETS, "cart-2")
    workload = msgspec.convert(server.get(WORKLOADS, "shop-cart"), Workload)
    assert not await DeploymentCheck(life.context).is_gone(workload)


async def test_a_workload_that_a_person_created_is_never_gone(server):
    put_replica_set(server, "cart-1", 1)
    put_replica_set(server, "cart-2", 2, names="store", wanted=1, pods=1)
    put_version(server, "1", "cart-1")
    stored = server.get(WORKLOADS, "shop-cart")
    metadata = {key: value for key, value in stored["metadata"].items() if key != "ownerReferences"}
    server.put(WORKLOADS, {**stored, "metadata": metadata})
    assert not await is_gone(server)


@pytest.mark.parametrize(
    ("kind", "status", "names", "expected"),
    [
        ("StatefulSet", DONE, "store", True),
        ("StatefulSet", {**DONE, "updatedReplicas": 1}, "store", False),
        ("StatefulSet", {**DONE, "observedGeneration": 0}, "store", False),
        # Renamed back.
        ("StatefulSet", DONE, "cart", False),
        ("DaemonSet", OVER, "store", True),
        ("DaemonSet", {**OVER, "updatedNumberScheduled": 2}, "store", False),
    ],
)
async def test_a_workload_of_a_set_is_gone_when_all_pods_are_of_a_template_that_names_another(
    server, kind, status, names, expected
):
    put_set(server, kind, status, names=names)
    put_version(server, "1", "cart", kind=kind)
    assert not await is_gone(server)
    assert server.requests == []
    put_version(server, "2", "cart", kind=kind, workload="store")
    assert await is_gone(server) is expected


async def test_many_versions_ask_for_the_newest_template_once(server):
    for number in range(1, 12):
        put_replica_set(server, f"cart-{number}", number)
        put_version(server, str(number), f"cart-{number}")
    put_replica_set(server, "cart-12", 12, names="store", wanted=1, pods=1)
    assert await is_gone(server)
    assert server.seen("get") == ["cart-12"]
