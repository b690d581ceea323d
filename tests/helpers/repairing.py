"""Workloads on a real control plane that were admitted while no webhook answered."""

from __future__ import annotations

import json

import yaml

from helpers.command import harbourmaster
from helpers.objects import cluster_policy, required
from helpers.patience import PATIENCE

POOL = "example.com/pool"
TOLERATION = {"key": POOL, "operator": "Exists"}


def template(app, **spec):
    container = {"name": "c", "image": "registry.example.com/app:1"}
    return {"metadata": {"labels": {"app": app}}, "spec": {"containers": [container], **spec}}


def made(kind, name, namespace, **spec):
    """A workload of ``apps`` whose pods have its name as a label."""
    pod = template(name, **spec.pop("pod", {}))
    spec |= {"selector": {"matchLabels": {"app": name}}, "template": pod}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def bare(name, namespace, **spec):
    """A pod without a controller."""
    pod = template(name, **spec)
    metadata = {**pod["metadata"], "name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod["spec"]}


def budget(name, namespace, least):
    """A PodDisruptionBudget for the pods of a workload."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"minAvailable": least, "selector": {"matchLabels": {"app": name}}},
    }


def policy_for(name, *namespaces):
    """All that can be added to a gated pod."""
    manifest = cluster_policy(
        name, nodeSelector={POOL: "a"}, tolerations=[TOLERATION], affinity=required({POOL: "a"})
    )
    label = "kubernetes.io/metadata.name"
    values = {"key": label, "operator": "In", "values": list(namespaces)}
    manifest["spec"]["namespaceSelector"] = {"matchExpressions": [values]}
    return manifest


def apply(kubectl, *objects):
    kubectl("apply", "-f=-", stdin=yaml.safe_dump_all(objects))


def repair(plane, *arguments):
    """The exit code, the report and what was said meanwhile."""
    command = ("repair", "--kubeconfig", str(plane.kubeconfig), "-o", "json", *arguments)
    done = harbourmaster(*command, seconds=2 * PATIENCE)
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


def pods(kubectl, namespace):
    result = json.loads(kubectl("get", "pods", f"--namespace={namespace}", "-o=json").stdout)
    return result["items"]


def is_right(pod):
    """Whether a pod has all of the policy."""
    spec = pod["spec"]
    return (
        (spec.get("nodeSelector") or {}).get(POOL) == "a"
        and any(toleration.get("key") == POOL for toleration in spec["tolerations"])
        and "nodeAffinity" in (spec.get("affinity") or {})
    )
