"""The standard objects of the rescheduler's conformance cases (rescheduler-spec 8.1)."""

from __future__ import annotations

import uuid

CRITICAL = "kube-system"
CASE = "example.com/case"
"""The label that keeps the nodes of one case for its critical pods."""
ANNOTATION = "scheduler.alpha.kubernetes.io/critical-pod"
RESERVATIONS = "rescheduler.harbourmaster.dev/reservations"
TAINT = "CriticalAddonsOnly"
OURS = "resched."
TOLERATED = {"key": TAINT, "operator": "Exists"}
NEVER = "never-preempts"
IMPORTANT = "important"
BUSINESS = "business"
"""Priority classes: an add-on's that never preempts, one that does not, and one that preempts."""


def priority_classes():
    """The classes that cases use."""
    return [
        _of_class(NEVER, 1_000_000_000, preemptionPolicy="Never"),
        _of_class(IMPORTANT, 1000, preemptionPolicy="Never"),
        _of_class(BUSINESS, 100_000),
    ]


def _of_class(name, value, **more):
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        **more,
    }


def node(name, cpu="4", *, ready=True, labels=None, taints=(), cordoned=False, **more):
    """A node as a kubelet would have it; ``more`` are further amounts."""
    amounts = {"cpu": str(cpu), "memory": "8Gi", "pods": "110", **more}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": {
            **({"taints": list(taints)} if taints else {}),
            **({"unschedulable": True} if cordoned else {}),
        },
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [readiness(ready)],
        },
    }


def readiness(is_so):
    """The condition of a node or of a pod."""
    return {
        "type": "Ready",
        "status": "True" if is_so else "False",
        "reason": "Test",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


def container(cpu=None, name="main", *, ports=(), **requests):
    """One that asks for this much; of further resources ``_`` stands for ``/`` in the name."""
    asked = {} if cpu is None else {"cpu": str(cpu)}
    asked |= {key.replace("_", "/", 1): str(value) for key, value in requests.items()}
    extended = {key: value for key, value in asked.items() if "/" in key}
    resources = {"requests": asked, **({"limits": extended} if extended else {})}
    container_spec = {"name": name, "image": "registry.example.com/any:1", "resources": resources}
    if ports:
        container_spec["ports"] = [{"containerPort": port, "hostPort": port} for port in ports]
    return container_spec


def removable(name, node, cpu=1, *, owner="ReplicaSet", of=None, grace=5, **options):
    """A pod that may be moved; ``of`` is the uid of its controller, by default a unique one.

    ``options`` are those of ``pod``. An ``owner`` None makes it bare.
    """
    manifest = pod(name, cpu, **options)
    manifest["spec"] |= {"nodeName": node, "terminationGracePeriodSeconds": grace}
    if owner is not None:
        manifest["metadata"]["ownerReferences"] = [
            {
                "apiVersion": "apps/v1",
                "kind": owner,
                "name": f"of-{name}"[:60],
                "uid": of or str(uuid.uuid4()),
                "controller": True,
            }
        ]
    return manifest


def pod(name, cpu=1, *, labels=None, annotations=None, requests=None, ports=(), **spec):
    """A pod of one container, or of those in ``spec``."""
    containers = [container(cpu, ports=ports, **(requests or {}))]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {}, "annotations": annotations or {}},
        "spec": {"containers": containers, "terminationGracePeriodSeconds": 5, **spec},
    }


def critical(name, case, cpu=1, *, annotated=True, tolerant=True, selector=None, **options):
    """A critical pod of ``kube-system`` for the nodes of a case, or for all nodes."""
    manifest = pod(name, cpu, **options)
    if annotated:
        manifest["metadata"]["annotations"] = {
            ANNOTATION: "",
            **manifest["metadata"]["annotations"],
        }
    if tolerant:
        manifest["spec"]["tolerations"] = [TOLERATED, *manifest["spec"].get("tolerations", ())]
    of_case = {} if case is None else {CASE: case}
    manifest["spec"]["nodeSelector"] = {**of_case, **(selector or {})}
    return manifest


def budget(name, least, labels=None, **spec):
    """A PodDisruptionBudget of at least so many pods; without labels for all of the namespace."""
    selector = {"matchLabels": labels} if labels else {}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {"minAvailable": least, "selector": selector, **spec},
    }


def apart_from(labels, topology="kubernetes.io/hostname"):
    """An affinity that keeps away from pods with these labels."""
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": topology}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def beside(labels, namespace):
    """An affinity that needs a pod with these labels, of a namespace, on the same node."""
    term = {
        "labelSelector": {"matchLabels": labels},
        "topologyKey": "kubernetes.io/hostname",
        "namespaces": [namespace],
    }
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def spread(labels):
    """A constraint that spreads pods with these labels over nodes."""
    return {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": labels},
    }


def volume_of(claim):
    """A volume of a pod."""
    return {"name": "data", "persistentVolumeClaim": {"claimName": claim}}


def owned_taints(node):
    """The taints of a node that are ours."""
    return [
        taint
        for taint in node["spec"].get("taints", ())
        if taint["key"] == TAINT and taint.get("value", "").startswith(OURS)
    ]


def is_clean(node):
    """Whether a node carries nothing of ours."""
    annotations = node["metadata"].get("annotations", {})
    return not owned_taints(node) and RESERVATIONS not in annotations
