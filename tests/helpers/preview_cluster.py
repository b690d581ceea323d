"""A small cluster as kubectl prints it: nodes, workloads and the pods that they have."""

from __future__ import annotations

import copy

from helpers.objects import cluster_policy
from helpers.rescheduling.objects import container, node

API_VERSIONS = {"Deployment": "apps/v1", "StatefulSet": "apps/v1", "DaemonSet": "apps/v1"}
HOST = "kubernetes.io/hostname"


def namespace(name="shop", **labels):
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def ready_node(name, cpu=4, **labels):
    return node(name, cpu, labels=labels)


def owner(document):
    """The reference to an object as a controller writes it."""
    meta = document["metadata"]
    return {
        "apiVersion": document["apiVersion"],
        "kind": document["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
    }


def deployment(name="web", *, on=(), cpu=1, place="shop", kind="Deployment", labels=None, **spec):
    """A workload, the ReplicaSet of a Deployment, and a pod on each of the nodes."""
    labels = labels or {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container(cpu)], **spec}}
    meta = {"name": name, "namespace": place, "uid": f"{kind}-{place}-{name}"}
    set_owner = {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": meta,
        "spec": {"template": template},
    }
    chain = [set_owner]
    if kind == "Deployment":
        meta = {**meta, "name": f"{name}-1", "uid": f"rs-{place}-{name}"}
        meta["ownerReferences"] = [owner(set_owner)]
        chain.append({**set_owner, "kind": "ReplicaSet", "metadata": meta})
    pods = [
        bare(f"{name}-{index}", node, labels=labels, place=place, owners=[owner(chain[-1])], **spec)
        for index, node in enumerate(on)
    ]
    for pod in pods:
        pod["spec"]["containers"] = [container(cpu)]
    return [*chain, *pods]


def bare(name, on="", *, cpu=1, labels=None, place="shop", owners=(), **spec):
    """A pod, perhaps with an owner."""
    meta = {"name": name, "namespace": place, "uid": f"pod-{place}-{name}"}
    meta |= {"labels": labels or {"app": name}}
    if owners:
        meta["ownerReferences"] = list(owners)
    spec = copy.deepcopy({"containers": [container(cpu)], **spec})
    if on:
        spec["nodeName"] = on
    status = {"phase": "Running" if on else "Pending"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}


SSD = cluster_policy("ssd", pods={"app": "web"}, nodeSelector={"disk": "ssd"})
NOWHERE = cluster_policy("ssd", pods={"app": "web"}, nodeSelector={"disk": "tape"})
"""A policy by which the pods fit no node of the cluster."""
CLUSTER = [
    namespace(),
    ready_node("n1", disk="ssd"),
    ready_node("n2"),
    *deployment("web", on=["n1", "n2"]),
    *deployment("other", on=["n2"]),
]


def names(report):
    """The workloads that would change, as people name them."""
    return [
        f"{workload['kind']} {workload['namespace']}/{workload['name']}"
        for workload in report["workloads"]
    ]
