"""The claims of a pending pod are judged by their volumes, or reported with the reason.

These tests prove rescheduler-spec 4.3.
"""

from __future__ import annotations

import json

import pytest

from harbourmaster.api.resources import NODES, PODS, VOLUME_CLAIMS, VOLUMES
from harbourmaster.controller.rescheduling.volumes import with_volumes
from harbourmaster.kube.errors import ForbiddenError, NotFoundError
from harbourmaster.rescheduling.decoding import decode_pending
from harbourmaster.rescheduling.model import NodeRequirement, NodeTerm
from helpers.evicting import event_reasons, leading, until

BOUND = {"pv.kubernetes.io/bind-completed": "yes"}
ZONE = {"key": "zone", "operator": "In", "values": ["a"]}
TERMS = (NodeTerm((NodeRequirement("zone", "In", ("a",)),)),)


def pod(*volumes):
    spec = {"volumes": [{"name": f"v{index}", **source} for index, source in enumerate(volumes)]}
    metadata = {"name": "c", "namespace": "kube-system", "uid": "u"}
    return decode_pending(json.dumps({"metadata": metadata, "spec": spec}))


OF_CLAIM = {"persistentVolumeClaim": {"claimName": "data"}}
OWN = {"ephemeral": {"volumeClaimTemplate": {}}}


def claim(annotations=BOUND, phase="Bound", modes=("ReadWriteOnce",), volume="pv", **metadata):
    spec = {"accessModes": list(modes), **({"volumeName": volume} if volume else {})}
    bound_claim = {"metadata": {**metadata, "annotations": annotations}, "spec": spec}
    return {**bound_claim, "status": {"phase": phase}}


def volume(source="csi", labels=None, affinity=True):
    required = {"required": {"nodeSelectorTerms": [{"matchExpressions": [ZONE]}]}}
    spec = {source: {}, **({"nodeAffinity": required} if affinity else {})}
    return {"metadata": {"name": "pv", "labels": labels or {}}, "spec": spec}


async def read_volumes(pending, **objects):
    """Read claims and volumes from objects by name, and raise those that are errors."""

    async def get(resource, name, namespace):
        assert (resource, namespace) in {(VOLUME_CLAIMS, "kube-system"), (VOLUMES, None)}
        answer = objects.get(name.replace("-", "_"), NotFoundError("not found"))
        if isinstance(answer, Exception):
            raise answer
        return json.dumps(answer).encode()

    return await with_volumes(pending, get)


async def test_a_bound_claim_brings_the_node_affinity_of_its_volume():
    pod_with_volumes = await read_volumes(pod(OF_CLAIM), data=claim(), pv=volume())
    assert (pod_with_volumes.volumes, pod_with_volumes.unsupported) == ({"pv": TERMS}, ())
    pod_with_volumes = await read_volumes(
        pod(OF_CLAIM), data=claim(), pv=volume("nfs", affinity=False)
    )
    assert (pod_with_volumes.volumes, pod_with_volumes.unsupported) == ({"pv": None}, ())


async def test_the_claim_that_a_pod_makes_must_be_its_own():
    owners = [{"uid": "u"}]
    pod_with_volumes = await read_volumes(pod(OWN), c_v0=claim(ownerReferences=owners), pv=volume())
    assert pod_with_volumes.unsupported == ()
    pod_with_volumes = await read_volumes(pod(OWN), c_v0=claim(), pv=volume())
    assert pod_with_volumes.unsupported == (
        "PersistentVolumeClaim c-v0 (it belongs to another object)",
    )


@pytest.mark.parametrize(
    ("data", "of", "text"),
    [
        (claim(annotations={}), volume(), "it is not bound to a volume"),
        (claim(volume="", phase="Pending"), volume(), "it is not bound to a volume"),
        (claim(phase="Lost"), volume(), "it is being deleted, or its volume is lost"),
        (claim(deletionTimestamp="t"), volume(), "it is being deleted, or its volume is lost"),
        (claim(modes=["ReadWriteOncePod"]), volume(), "it is ReadWriteOncePod"),
        (claim(), volume("awsElasticBlockStore"), "its volume is of an in-tree plugin"),
        (
            claim(),
            volume(labels={"topology.kubernetes.io/zone": "a"}),
            "its volume has zone labels",
        ),
        (claim(), NotFoundError("no such volume"), "no such volume"),
        (NotFoundError("no such claim"), volume(), "no such claim"),
        (ForbiddenError("is forbidden"), volume(), "is forbidden"),
    ],
)
async def test_what_is_not_judged_names_its_reason(data, of, text):
    judged_pod = await read_volumes(pod(OF_CLAIM, {"rbd": {}}), data=data, pv=of)
    assert judged_pod.unsupported == ("volume rbd", f"PersistentVolumeClaim data ({text})")


async def test_a_pod_is_helped_on_the_node_of_its_volume(api, make_controller):
    for name in ("n1", "n2"):
        api.add_node(name)
        api.add_pod(f"on-{name}", name, cpu="2")
    api.add_critical()
    pending = api.get(PODS, "c", "kube-system")
    api.put(PODS, {**pending, "spec": {**pending["spec"], "volumes": [{"name": "v", **OF_CLAIM}]}})
    node = api.get(NODES, "n2")
    api.put(NODES, {**node, "metadata": {**node["metadata"], "labels": {"zone": "a"}}})
    async with leading(make_controller()):
        await until(lambda: "UnsupportedConstraint" in event_reasons(api))
        assert api.writes() == []
    named = {"name": "data", "namespace": "kube-system", "annotations": BOUND}
    api.put(VOLUME_CLAIMS, {**claim(), "metadata": named})
    api.put(VOLUMES, volume())
    async with leading(make_controller()):
        assert await until(api.evicted_names) == ["on-n2"]
