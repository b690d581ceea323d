"""Users of node selectors that no node matches are warned, as the real scheduler places pods."""

from __future__ import annotations

import itertools
import json

import pytest

from harbourmaster.playground.installation import Installation
from helpers.cluster import eventually, fresh_namespace, plane_for, selecting
from helpers.flow.installation import FLAGS
from helpers.objects import cluster_policy, required, workload
from helpers.patience import WAIT

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.slow]

DISK, ZONE = "example.com/disk", "example.com/zone"
LABELS = ({DISK: "ssd", ZONE: "a"}, {DISK: "hdd", ZONE: "a"}, {DISK: "hdd", ZONE: "b"}, {})
TAINT = "example.com/dedicated=db:NoSchedule"
EXISTS = {"key": "example.com/dedicated", "operator": "Exists"}
DISKS, ZONES = (None, "ssd", "hdd", "nvme"), (None, "a", "b")


@pytest.fixture(scope="module")
def plane(request, tmp_path_factory):
    """An installation with four nodes, of which that with an SSD has a taint."""
    with plane_for(request, tmp_path_factory, "nodes") as plane:
        for labels in LABELS:
            plane.add_nodes(1, labels)
        plane.kubectl("taint", "nodes", f"--selector={DISK}=ssd", TAINT)
        with Installation(plane, arguments={"controller": FLAGS}):
            yield plane


def said(plane, document, namespace):
    """The warnings that kubectl prints, after the object was applied."""
    document["metadata"]["namespace"] = namespace
    applied = plane.kubectl("apply", "-f=-", stdin=json.dumps(document))
    return [line for line in applied.stderr.splitlines() if "harbourmaster:" in line]


def deployment(name):
    manifest = workload("Deployment", {"app": "web"}, name=name)
    manifest["spec"] |= {"replicas": 0, "selector": {"matchLabels": {"app": "web"}}}
    return manifest


def test_a_deployment_is_warned_of_until_a_node_is_labelled(plane):
    namespace = fresh_namespace(plane.kubectl, "node-warning")
    policy = cluster_policy("web-on-ssd", nodeSelector={"disk": "ssd"})
    policy["spec"]["namespaceSelector"] = selecting(namespace)
    plane.kubectl("create", "-f=-", stdin=json.dumps(policy))
    text = (
        "Warning: harbourmaster: no node has disk=ssd (ClusterPodSchedulingPolicy web-on-ssd): "
        "pods stay Pending until a node matches"
    )

    names = (f"web-{number}" for number in itertools.count())

    def applied():
        # kubectl sends nothing of an object that is there already as it is.
        return said(plane, deployment(next(names)), namespace)

    try:
        assert eventually(applied) == [text]
        plane.kubectl("label", "nodes", f"--selector={DISK}=hdd", "disk=ssd")
        eventually(applied, is_right=lambda value: value == [])
        plane.kubectl("label", "nodes", "--all", "disk-")
        assert eventually(applied) == [text]
    finally:
        plane.kubectl("delete", "-f=-", stdin=json.dumps(policy))


def specs():
    """Pods that ask for a disk or a zone, in either way, or for none, and tolerate or do not."""
    for disk, zone, tolerates, as_affinity in itertools.product(
        DISKS, ZONES, (False, True), (False, True)
    ):
        asked = {key: value for key, value in ((DISK, disk), (ZONE, zone)) if value}
        spec = {"affinity": required(asked)} if as_affinity and asked else {"nodeSelector": asked}
        yield {**spec, "tolerations": [EXISTS] if tolerates else []}


def test_warnings_agree_with_the_scheduler(plane):
    namespace = fresh_namespace(plane.kubectl, "node-verdicts")
    warned = {}
    for number, spec in enumerate(specs()):
        name = f"pod-{number}"
        warned[name] = bool(said(plane, workload("Pod", name=name, **spec), namespace))
    placed = {}
    for name in warned:
        condition = "jsonpath={.status.conditions[?(@.type=='PodScheduled')].status}"
        plane.kubectl("wait", f"--for={condition}", WAIT, f"pod/{name}", f"--namespace={namespace}")
        result = plane.kubectl("get", "pod", name, f"--namespace={namespace}", "-o=json")
        placed[name] = "nodeName" in json.loads(result.stdout)["spec"]
    assert {name: not is_placed for name, is_placed in placed.items()} == warned
    assert len(warned) >= 40
    assert {True, False} == {*warned.values()}
