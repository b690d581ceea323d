"""``make undeploy``; it is the last test, as nothing is installed after it."""

from __future__ import annotations

import json

from harbourmaster.gates.metadata import REMOVED_KEY
from helpers import node_objects as objects
from helpers.node import figure

OURS = ("harbourmaster", "kupid", "keptn")


def ours(node):
    """The objects that speak of us, but events, and the rest of our own namespace's deletion."""
    kinds = node.kubectl("api-resources", "--verbs=list", "--output=name").stdout.split()
    objects = set()
    for kind in kinds:
        if kind.partition(".")[0] == "events":
            continue
        items = node.kubectl("get", kind, "--all-namespaces", "--output=json", check=False).stdout
        for item in json.loads(items or "{}").get("items", ()):
            if kind == "nodes":
                # Images that it has pulled.
                del item["status"]
            if any(word in json.dumps(item) for word in OURS):
                metadata = item["metadata"]
                objects.add((item["kind"], metadata.get("namespace", ""), metadata["name"]))
    return objects


def test_make_undeploy_leaves_nothing_and_a_gated_pod_runs(node):
    place = "left"
    stall = objects.deployment(place, "stall", tasks=["fails"])
    node.apply(objects.namespace(place), objects.shell_task(place, "fails", "exit 1"), stall)
    selected = (f"--namespace={place}", "--selector=app=stall")
    node.wait("create", "pod", *selected)
    (pod,) = node.get("pods", *selected)
    assert pod["spec"]["schedulingGates"]
    node.make("undeploy")
    node.wait("condition=Available", f"--namespace={place}", "deployment/stall")
    (running,) = node.get("pods", *selected)
    assert running["metadata"]["uid"] == pod["metadata"]["uid"]
    assert not {
        key for key in running["metadata"]["annotations"] if key == REMOVED_KEY or OURS[0] in key
    }
    # What is left of the user's own: these speak of tasks.
    mine = {("Deployment", place), ("ReplicaSet", place), ("Pod", place), ("Namespace", "")}
    left = {our for our in ours(node) if our[:2] not in mine}
    figure(f"after make undeploy: {sorted(left) or 'nothing'}")
    assert left == set()
