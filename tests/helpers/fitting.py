"""Nodes and pods from which cases of fitting are made; ``fit_cases`` has them all.

``@node`` stands for the node's name wherever it occurs in a case.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

OWN, OTHER = "fit-own", "fit-other"
NAMESPACES = {OWN: {"example.com/team": "a"}, OTHER: {"example.com/team": "b"}}
RUNTIME_CLASS = "fit-overhead"
OVERHEAD = {"cpu": "250m"}
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
PLENTY = {"cpu": "4", "memory": "8Gi", "ephemeral-storage": "10Gi", "pods": "110"}
IMAGE = "registry.example.com/app:1"
GPU = "example.com/gpu"
HUGE = "hugepages-2Mi"


class Case(NamedTuple):
    """A node, the pods on it, and the pod that is to fit beside them."""

    name: str
    fits: bool
    pod: dict[str, Any]
    present: tuple[dict[str, Any], ...]
    node: dict[str, Any]
    others: tuple[dict[str, Any], ...] = ()
    """Further nodes; the pods of ``present`` that name one are on it."""

    def on(self, node):
        """All the objects, with that name for the node."""
        text = json.dumps([self.node, list(self.present), self.pod])
        return json.loads(text.replace("@node", node))

    def others_on(self, node):
        """The further nodes, whose names begin so."""
        return json.loads(json.dumps(self.others).replace("@node", node))


def a_case(name, fits, pod, *present, allocatable=None, labels=None, taints=(), cordoned=False):  # noqa: PLR0913
    """One of them; what ``allocatable`` gives as None the node lacks."""
    amounts = {**PLENTY, **(allocatable or {})}
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": "@node",
            "labels": {HOST: "@node", ZONE: "zone-of-@node", **(labels or {})},
        },
        "spec": {"taints": list(taints), **({"unschedulable": True} if cordoned else {})},
        "status": {
            "allocatable": {key: value for key, value in amounts.items() if value is not None},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    node["metadata"]["labels"] = {
        key: value for key, value in node["metadata"]["labels"].items() if value is not None
    }
    return Case(name, fits, pod, present, node)


def container(name="main", ports=(), limits=None, restart=None, **requests):
    """A container that asks for this much; resources whose names are no words go by ``**``."""
    resources = {"requests": requests} if requests else {}
    return {
        "name": name,
        "image": IMAGE,
        "resources": {**resources, **({"limits": limits} if limits else {})},
        **({"ports": list(ports)} if ports else {}),
        **({"restartPolicy": restart} if restart else {}),
    }


def sidecar(name="side", **given):
    return container(name, restart="Always", **given)


def pod(*containers, labels=None, namespace=OWN, inits=(), **spec):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": namespace, "labels": labels or {}},
        "spec": {
            "containers": list(containers) or [container()],
            **({"initContainers": list(inits)} if inits else {}),
            **spec,
        },
    }


def asking(**requests):
    return pod(container(**requests))


def with_status(obj, **status):
    return {**obj, "status": status}


def leaving(obj):
    """A pod that is being deleted, and takes its time."""
    return {**obj, "leaving": True}


def finished(obj, phase="Succeeded"):
    return with_status(obj, phase=phase)


def port(number, ip=None, protocol=None):
    return {
        "containerPort": 80,
        "hostPort": number,
        **({"hostIP": ip} if ip else {}),
        **({"protocol": protocol} if protocol else {}),
    }


def taking(*ports, **more):
    return pod(container(ports=ports), **more)


def expression(key, operator, *values):
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}
