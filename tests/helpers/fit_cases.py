"""Whether one pod fits on one node: cases whose verdicts kube-scheduler gave (rescheduler-spec 4).

They are in the files of ``fixtures/fit``, by topic. A pod is given as its spec, beside which stand
its labels, its namespace and its status, and ``leaving`` for one that is being deleted; a node as
what differs from ``PLENTY``. ``@node`` stands for the name of the case's node, ``@node-1`` and so
on for the ``others``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from harbourmaster.cli.reschedule.fit import judge
from harbourmaster.rescheduling.decoding import (
    decode_namespace,
    decode_node,
    decode_pending,
    decode_present,
)
from harbourmaster.rescheduling.fit import fits
from harbourmaster.rescheduling.topology import Topology

OWN, OTHER = "fit-own", "fit-other"
NAMESPACES = {OWN: {"example.com/team": "a"}, OTHER: {"example.com/team": "b"}}
KNOWN = [{"metadata": {"name": name, "labels": labels}} for name, labels in NAMESPACES.items()]
RUNTIME_CLASS = "fit-overhead"
OVERHEAD = {"cpu": "250m"}
PLENTY = {"cpu": "4", "memory": "8Gi", "ephemeral-storage": "10Gi", "pods": "110"}
_CONTAINER = {"name": "main", "image": "registry.example.com/app:1"}


class Case(NamedTuple):
    """A node, the pods on it, the pod that is to fit beside them, and further nodes.

    The pods of ``present`` that name another node are on it.
    """

    name: str
    fits: bool
    node: dict[str, Any]
    pod: dict[str, Any]
    present: list[dict[str, Any]]
    others: list[dict[str, Any]]

    def on(self, node):
        """Return the node, the present pods and the pod, with that name for the node."""
        return self._rename(node, [self.node, self.present, self.pod])

    def others_on(self, node):
        """Return the further nodes, whose names begin so."""
        return self._rename(node, self.others)

    def _rename(self, node, objects):
        return json.loads(json.dumps(objects).replace("@node", node))


def pod(namespace=OWN, labels=None, containers=({},), **given):
    status = {name: given.pop(name) for name in ("status", "leaving") if name in given}
    spec = {"containers": containers, **given}
    for name in {"containers", "initContainers"} & spec.keys():
        spec[name] = [_CONTAINER | container for container in spec[name]]
    metadata = {"namespace": namespace, "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, **status}


def _node(name="@node", allocatable=None, labels=None, taints=(), cordoned=False):
    """Make a node; it lacks what ``allocatable`` gives as None."""
    amounts = {**PLENTY, **(allocatable or {})}
    places = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": "zone-of-@node"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**places, **(labels or {})}},
        "spec": {"taints": list(taints), **({"unschedulable": True} if cordoned else {})},
        "status": {
            "allocatable": {key: value for key, value in amounts.items() if value is not None},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def _read(topic):
    path = Path(__file__).parents[1] / "fixtures" / "fit" / f"{topic}.yaml"
    return [
        Case(
            case["name"],
            case["fits"],
            _node(**case.get("node", {})),
            pod(**case["pod"]),
            [pod(**present) for present in case.get("present", ())],
            [
                _node(f"@node-{number}", **further)
                for number, further in enumerate(case.get("others", ()), 1)
            ],
        )
        for case in yaml.load(path.read_text(), yaml.CSafeLoader)
    ]


ON_NODES = _read("nodes")
CASES = [*_read("amounts"), *ON_NODES, *_read("neighbours")]
AMONG_DOMAINS = _read("domains")
"""Cases in which the pods of other nodes matter.

Each has domains of its own, by a topology key that no node of another case has. Only the first node
has room for another pod.
"""


def verdict(node, others, present, pending, namespaces):
    """Return our verdict, with the topology where other nodes matter."""
    if not (others or pending["spec"].get("topologySpreadConstraints")):
        line = {"node": node, "pods": present, "pod": pending, "namespaces": namespaces}
        return judge(json.dumps(line).encode())
    nodes = [decode_node(json.dumps(manifest)) for manifest in (node, *others)]
    by_name = {decoded.name: decoded for decoded in nodes}
    waiting = decode_pending(json.dumps(pending))
    labels = dict(decode_namespace(json.dumps(namespace)) for namespace in namespaces)
    running = [decode_present(json.dumps(manifest)) for manifest in present]
    placed = [
        (placed_pod, by_name[placed_pod.node or nodes[0].name])
        for placed_pod in running
        if not placed_pod.is_finished
    ]
    beside = [placed_pod for placed_pod, where in placed if where is nodes[0]]
    topology = Topology(waiting, nodes, placed, labels)
    return fits(waiting, nodes[0], beside, topology=topology, namespaces=labels)
