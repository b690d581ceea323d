"""The volumes of a waiting pod: which claims are judged, and why others are not."""

from __future__ import annotations

import json

import pytest

from harbourmaster.api.resources import NODES, PODS, VOLUME_CLAIMS, VOLUMES
from harbourmaster.controller.rescheduling.volumes import with_volumes
from harbourmaster.kube.errors import ForbiddenError, NotFoundError
from harbourmaster.rescheduling.decoding import decode_pending
from harbourmaster.rescheduling.model import NodeRequirement, NodeTerm
from helpers.evicting import leading, told, until

BOUND = {"pv.kubernetes.io/bind-completed": "yes"}
ZONE = {"key": "zone", "operator": "In", "values": ["a"]}
TERMS = (NodeTerm((NodeRequirement("zone", "In", ("a",)),)),)


def pod(*volumes):
    spec = {"volumes": [{"name": f"v{index}", **each} for index, each in enumerate(volumes)]}
    metadata = {"name": "c", "namespace": "kube-system", "uid": "u"}
    return decode_pending(json.dumps({"metadata": metadata, "spec": spec}))


OF_CLAIM = {"persistentVolumeClaim": {"claimName": "data"}}
OWN = {"ephemeral": {"volumeClaimTemplate": {}}}


def claim(annotations=BOUND, phase="Bound", modes=("ReadWriteOnce",), volume="pv", **metadata):
    spec = {"accessModes": list(modes), **({"volumeName": volume} if volume else {})}
    found = {"metadata": {**metadata, "annotations": annotations}, "spec": spec}
    return {**found, "status": {"phase": phase}}


def volume(source="csi", labels=None, affinity=True):
    required = {"required": {"nodeSelectorTerms": [{"matchExpressions": [ZONE]}]}}
    spec = {source: {}, **({"nodeAffinity": required} if affinity else {})}
    return {"metadata": {"name": "pv", "labels": labels or {}}, "spec": spec}


async def judged(pending, **objects):
    """The pod with what the API has: claims and volumes by name; an error is raised."""

    async def get(resource, name, namespace):
        assert (resource, namespace) in {(VOLUME_CLAIMS, "kube-system"), (VOLUMES, None)}
        found = objects.get(name.replace("-", "_"), NotFoundError("not found"))
        if isinstance(found, Exception):
            raise found
        return json.dumps(found).encode()

    return await with_volumes(pending, get)


async def test_a_bound_claim_brings_the_node_affinity_of_its_volume():
    found = await judged(pod(OF_CLAIM), data=claim(), pv=volume())
    assert (found.volumes, found.unsupported) == ({"pv": TERMS}, ())
    found = await judged(pod(OF_CLAIM), data=claim(), pv=volume("nfs", affinity=False))
    assert (found.volumes, found.unsupported) == ({"pv": None}, ())


async def test_the_claim_that_a_pod_makes_must_be_its_own():
    owners = [{"uid": "u"}]
    found = await judged(pod(OWN), c_v0=claim(ownerReferences=owners), pv=volume())
    assert found.unsupported == ()
    found = await judged(pod(OWN), c_v0=claim(), pv=volume())
    assert found.unsupported == ("PersistentVolumeClaim c-v0 (it belongs to another object)",)


@pytest.mark.parametrize(
    ("found", "of", "text"),
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
async def test_what_is_not_judged_names_its_reason(found, of, text):
    judged_pod = await judged(pod(OF_CLAIM, {"rbd": {}}), data=found, pv=of)
    assert judged_pod.unsupported == ("volume rbd", f"PersistentVolumeClaim data ({text})")


async def test_a_pod_is_helped_on_the_node_of_its_volume(api, controlled):
    for name in ("n1", "n2"):
        api.add_node(name)
        api.add_pod(f"on-{name}", name, cpu="2")
    api.add_critical()
    found = api.get(PODS, "c", "kube-system")
    api.put(PODS, {**found, "spec": {**found["spec"], "volumes": [{"name": "v", **OF_CLAIM}]}})
    node = api.get(NODES, "n2")
    api.put(NODES, {**node, "metadata": {**node["metadata"], "labels": {"zone": "a"}}})
    async with leading(controlled()):
        await until(lambda: "UnsupportedConstraint" in told(api))
        assert api.writes() == []
    named = {"name": "data", "namespace": "kube-system", "annotations": BOUND}
    api.put(VOLUME_CLAIMS, {**claim(), "metadata": named})
    api.put(VOLUMES, volume())
    async with leading(controlled()):
        assert await until(api.evicted) == ["on-n2"]
