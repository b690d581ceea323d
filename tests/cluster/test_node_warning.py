"""Warnings of selectors that no node matches and of opt-ins without effect, from a real plane."""

from __future__ import annotations

import itertools
import json

import pytest

from harbourmaster.gates.mistakes import opt_in_mistakes
from harbourmaster.playground.installation import Installation
from helpers.cluster import eventually, fresh_namespace, plane_for, selecting
from helpers.flow.installation import FLAGS
from helpers.objects import cluster_policy, required, workload
from helpers.patience import WAIT

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


def apply_object(plane, document, namespace):
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

    def apply_deployment():
        # kubectl sends nothing of an object that is there already as it is.
        return apply_object(plane, deployment(next(names)), namespace)

    try:
        assert eventually(apply_deployment) == [text]
        plane.kubectl("label", "nodes", f"--selector={DISK}=hdd", "disk=ssd")
        eventually(apply_deployment, is_right=lambda value: value == [])
        plane.kubectl("label", "nodes", "--all", "disk-")
        assert eventually(apply_deployment) == [text]
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
        warned[name] = bool(apply_object(plane, workload("Pod", name=name, **spec), namespace))
    placed = {}
    for name in warned:
        condition = "jsonpath={.status.conditions[?(@.type=='PodScheduled')].status}"
        plane.kubectl("wait", f"--for={condition}", WAIT, f"pod/{name}", f"--namespace={namespace}")
        result = plane.kubectl("get", "pod", name, f"--namespace={namespace}", "-o=json")
        placed[name] = "nodeName" in json.loads(result.stdout)["spec"]
    assert {name: not is_placed for name, is_placed in placed.items()} == warned
    assert len(warned) >= 40
    assert {True, False} == {*warned.values()}


KEY = "keptn.sh/lifecycle-toolkit"
CASES = {
    "none": ({}, {}),
    "enabled": ({KEY: "enabled"}, {}),
    "disabled": ({KEY: "disabled"}, {}),
    "False": ({KEY: "False"}, {}),
    "true": ({KEY: "true"}, {}),
    "Enabled": ({KEY: "Enabled"}, {}),
    "empty": ({KEY: ""}, {}),
    "label": ({}, {KEY: "enabled"}),
    "label true": ({}, {KEY: "true"}),
    "label off": ({}, {KEY: "false"}),
    "both": ({KEY: "enabled"}, {KEY: "enabled"}),
    "misspelt": ({"keptn.sh/lifecyle-toolkit": "enabled"}, {}),
    "misspelt off": ({"keptn.sh/lifecyle-toolkit": "disabled"}, {}),
    "misspelt beside": ({"keptn.sh/lifecyle-toolkit": "enabled", KEY: "enabled"}, {}),
    "other key": ({"keptn.sh/app": "shop", "example.com/lifecycle-toolkit": "enabled"}, {}),
    "large": ({KEY: "x" * 100_000}, {}),
}


@pytest.mark.parametrize("case", CASES)
def test_the_policy_warns_where_our_own_rules_find_a_mistake(harbour, case):
    annotations, labels = CASES[case]
    metadata = {"name": "asked", "annotations": annotations, "labels": labels}
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    result = harbour.plane.kubectl("create", "--dry-run=server", "-f=-", stdin=json.dumps(manifest))
    warnings = [line for line in result.stderr.splitlines() if "harbourmaster:" in line]
    expected = opt_in_mistakes("asked", annotations, labels)
    assert len(warnings) == len(expected), result.stderr
    for text, mistake in zip(warnings, expected, strict=True):
        # The next step is the same.
        assert text.endswith(mistake.text.rpartition(": ")[2])


STAGES = {"gates.harbourmaster.dev/stages": "1, 25%", "keptn.sh/workload": "web"}
STRATEGIES = {
    "Deployment": ("spec.strategy", "up to 25%"),
    "StatefulSet": ("spec.updateStrategy", ""),
    "DaemonSet": ("spec.updateStrategy", "up to 1"),
}


def staged(kind, **spec):
    """A workload of that kind, whose pods are released in stages and fit on no node."""
    manifest = workload(kind, {"app": "web"}, nodeSelector={"example.com/none": "a"})
    manifest["spec"] |= {"selector": {"matchLabels": {"app": "web"}}, **spec}
    manifest["spec"]["template"]["metadata"]["annotations"] = STAGES
    if kind != "DaemonSet":
        manifest["spec"]["replicas"] = 12
    if kind == "StatefulSet":
        manifest["spec"]["serviceName"] = "web"
    return manifest


@pytest.mark.parametrize("kind", STRATEGIES)
def test_the_defaults_of_the_api_server_are_told_to_who_asks_for_stages(plane, kind):
    namespace = fresh_namespace(plane.kubectl, "stages")
    plane.kubectl("annotate", "namespace", namespace, f"{KEY}=enabled")
    field, lacking = STRATEGIES[kind]
    named = field.removeprefix("spec.")

    def apply_staged(**spec):
        lines = apply_object(plane, staged(kind, **spec), namespace)
        plane.kubectl("delete", kind, "web", f"--namespace={namespace}", "--cascade=foreground")
        return [line for line in lines if "no node has" not in line]

    refused = {named: {"type": "Recreate" if kind == "Deployment" else "OnDelete"}}
    told = eventually(lambda: apply_staged(**refused))
    assert [f": {field}.type: write RollingUpdate" in line for line in told] == [True]
    text = f"{lacking} of the old pods are missing while a stage waits: {field}.rollingUpdate: "
    advice = "set maxUnavailable: 0, maxSurge: 1"
    warning = f"Warning: harbourmaster: {text}{advice}"
    assert apply_staged() == ([warning] if lacking else [])
    suited = {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    assert apply_staged(**({named: suited} if lacking else {})) == []


def test_pods_of_a_staged_workload_get_the_label(plane):
    namespace = fresh_namespace(plane.kubectl, "staged")
    plane.kubectl("annotate", "namespace", namespace, f"{KEY}=enabled")
    eventually(lambda: apply_object(plane, staged("Deployment"), namespace))
    plane.kubectl("delete", "deployment", "web", f"--namespace={namespace}", "--cascade=foreground")
    apply_object(plane, staged("StatefulSet"), namespace)
    selector = "--selector=gates.harbourmaster.dev/staged=true"
    arguments = ("get", "pods", selector, f"--namespace={namespace}", "-o=name")
    labelled = eventually(lambda: plane.kubectl(*arguments).stdout)
    assert labelled.split() == ["pod/web-0"]
