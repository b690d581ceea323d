"""Policies, workloads and reviews as plain objects, for tests and benchmarks."""

from __future__ import annotations

import json

from helpers.oracles import NODE_REQUIRED

API = "kupid.gardener.cloud/v1alpha1"
RESOURCES = {
    "Pod": ("", "v1", "pods"),
    "ReplicationController": ("", "v1", "replicationcontrollers"),
    "ReplicaSet": ("apps", "v1", "replicasets"),
    "Deployment": ("apps", "v1", "deployments"),
    "StatefulSet": ("apps", "v1", "statefulsets"),
    "DaemonSet": ("apps", "v1", "daemonsets"),
    "Job": ("batch", "v1", "jobs"),
    "CronJob": ("batch", "v1", "cronjobs"),
}


def required(*terms):
    """Node affinity with one term for each ``{key: value}`` given."""
    node_terms = [
        {
            "matchExpressions": [
                {"key": key, "operator": "In", "values": [value]} for key, value in term.items()
            ]
        }
        for term in terms
    ]
    return {"nodeAffinity": {NODE_REQUIRED: {"nodeSelectorTerms": node_terms}}}


def cluster_policy(name="c1", *, pods=None, namespaces=None, **spec):
    """A cluster policy; it selects everything unless told otherwise."""
    return {
        "apiVersion": API,
        "kind": "ClusterPodSchedulingPolicy",
        "metadata": {"name": name},
        "spec": {
            "podSelector": {"matchLabels": pods} if pods else {},
            "namespaceSelector": {"matchLabels": namespaces} if namespaces else {},
            **spec,
        },
    }


def policy(name="p1", namespace="ns1", *, pods=None, **spec):
    """A namespaced policy; it selects every pod unless told otherwise."""
    return {
        "apiVersion": API,
        "kind": "PodSchedulingPolicy",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"podSelector": {"matchLabels": pods} if pods else {}, **spec},
    }


def workload(kind="Deployment", labels=None, *, name="web", **spec):
    """An object of the kind whose pod has the labels and the pod spec fields."""
    group, version, _ = RESOURCES[kind]
    pod = {
        "metadata": {"labels": {"app": "web"} if labels is None else labels},
        "spec": {"containers": [{"name": "c", "image": "registry.example.com/app:1"}], **spec},
    }
    api_version = f"{group}/{version}".lstrip("/")
    head = {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}}
    if kind == "Pod":
        return {**head, "metadata": {"name": name, **pod["metadata"]}, "spec": pod["spec"]}
    if kind == "CronJob":
        job = {"spec": {"template": pod}}
        return {**head, "spec": {"schedule": "@hourly", "jobTemplate": job}}
    return {**head, "spec": {"template": pod}}


def review(document, *, uid="uid-1", operation="CREATE", namespace="ns1", **request):
    """The AdmissionReview that asks about the object."""
    kind = document["kind"]
    if kind in RESOURCES:
        group, version, _ = RESOURCES[kind]
    else:
        group, _, version = document["apiVersion"].rpartition("/")
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": uid,
            "kind": {"group": group, "version": version, "kind": kind},
            "namespace": namespace,
            "operation": operation,
            "object": document,
            **request,
        },
    }


def body(document, **options):
    """The document as bytes on the wire."""
    return json.dumps(review(document, **options)).encode()


def large_deployment(**spec):
    """A Deployment whose review has about 5 kB."""
    env = [{"name": f"SETTING_{index}", "value": "x" * 60} for index in range(48)]
    manifest = workload("Deployment", {"app": "etcd", "role": "main", "tier": "db"}, **spec)
    manifest["spec"]["template"]["spec"]["containers"][0]["env"] = env
    return manifest
