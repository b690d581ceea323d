"""Objects that run on a real node, restricted as Pod Security wants them."""

from __future__ import annotations

from helpers.node import BUSYBOX, TOLERATION

RESTRICTED = {
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
RUN_FOR_EVER = ["sh", "-c", "trap exit TERM; while :; do sleep 1; done"]


def namespace(name):
    """A namespace with gates, and with the profile that Pod Security enforces."""
    metadata = {
        "name": name,
        "annotations": {"keptn.sh/lifecycle-toolkit": "enabled"},
        "labels": {"pod-security.kubernetes.io/enforce": "restricted"},
    }
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def policy():
    """The policy whose toleration the load looks for."""
    return {
        "apiVersion": "kupid.gardener.cloud/v1alpha1",
        "kind": "ClusterPodSchedulingPolicy",
        "metadata": {"name": "load"},
        "spec": {
            "namespaceSelector": {},
            "podSelector": {"matchLabels": {"load": "yes"}},
            "tolerations": [{"key": TOLERATION, "operator": "Exists", "effect": "NoSchedule"}],
        },
    }


def task(place, name, **spec):
    """A KeptnTaskDefinition that is tried once."""
    return {
        "apiVersion": "lifecycle.keptn.sh/v1",
        "kind": "KeptnTaskDefinition",
        "metadata": {"name": name, "namespace": place},
        "spec": {"retries": 0, "timeout": "1m", **spec},
    }


def shell_task(place, name, script, **spec):
    """A task of a container that runs a script."""
    container = {
        "name": "check",
        "image": BUSYBOX,
        "command": ["sh", "-c", script],
        "securityContext": RESTRICTED,
    }
    return task(place, name, container=container, **spec)


def deployment(place, name, *, tasks=(), after=(), replicas=1, version="1.0"):
    """A Deployment with the policy's label; with tasks, it is gated."""
    annotations = {
        "keptn.sh/workload": name,
        "keptn.sh/version": version,
        "keptn.sh/pre-deployment-tasks": ",".join(tasks),
        "keptn.sh/post-deployment-tasks": ",".join(after),
    }
    container = {
        "name": name,
        "image": BUSYBOX,
        "command": RUN_FOR_EVER,
        "securityContext": RESTRICTED,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": place},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {
                    "labels": {"app": name, "load": "yes"},
                    "annotations": {key: value for key, value in annotations.items() if value}
                    if tasks or after
                    else {},
                },
                "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]},
            },
        },
    }


def version_name(name, version="1.0"):
    """The KeptnWorkloadVersion of a Deployment from ``deployment``, which is an app of its own."""
    return f"{name}-{name}-{version}"
