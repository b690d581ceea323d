"""What cluster tests apply: a workload of each kind, policies, and our webhook registrations."""

from __future__ import annotations

import base64

from helpers.objects import API, RESOURCES

POLICY_RESOURCES = ["podschedulingpolicies", "clusterpodschedulingpolicies"]
LABELS = {"example.com/app": "ledger", "example.com/role": "main"}


def manifests(namespace, *, suffix="", labels=None, **pod_spec):
    """One object of each of the eight workload kinds and both policy kinds."""
    labels = LABELS if labels is None else labels
    template = {
        "metadata": {"labels": labels},
        "spec": {
            "containers": [{"name": "ledger", "image": "registry.example.com/ledger:3"}],
            **pod_spec,
        },
    }
    once = {**template, "spec": {**template["spec"], "restartPolicy": "Never"}}
    selector = {"matchLabels": labels}
    specs = {
        "Pod": template["spec"],
        "ReplicationController": {"replicas": 0, "selector": labels, "template": template},
        "ReplicaSet": {"replicas": 0, "selector": selector, "template": template},
        "Deployment": {"replicas": 0, "selector": selector, "template": template},
        "StatefulSet": {
            "replicas": 0,
            "selector": selector,
            "serviceName": "ledger",
            "template": template,
        },
        "DaemonSet": {"selector": selector, "template": template},
        "Job": {"suspend": True, "template": once},
        "CronJob": {
            "schedule": "0 0 1 1 *",
            "suspend": True,
            "jobTemplate": {"spec": {"template": once}},
        },
    }
    for kind, spec in specs.items():
        group, version, _ = RESOURCES[kind]
        metadata = {"name": f"ledger{suffix}", "namespace": namespace}
        if kind == "Pod":
            metadata["labels"] = labels
        yield {
            "apiVersion": f"{group}/{version}".lstrip("/"),
            "kind": kind,
            "metadata": metadata,
            "spec": spec,
        }
    for kind in ("PodSchedulingPolicy", "ClusterPodSchedulingPolicy"):
        metadata = {"name": f"ledger{suffix}"}
        if kind == "PodSchedulingPolicy":
            metadata["namespace"] = namespace
        yield {
            "apiVersion": API,
            "kind": kind,
            "metadata": metadata,
            "spec": {"podSelector": {}, "nodeSelector": {"example.com/pool": "ledger"}},
        }


def selecting(namespace):
    """A namespace selector for one namespace."""
    return {"matchLabels": {"kubernetes.io/metadata.name": namespace}}


def pod_spec(workload):
    """The pod spec in a workload of any kind."""
    spec = workload["spec"]
    if workload["kind"] == "Pod":
        return spec
    if workload["kind"] == "CronJob":
        spec = spec["jobTemplate"]["spec"]
    return spec["template"]["spec"]


def webhook_configuration(kind, url, bundle, *, name="harbourmaster-test", **fields):
    """A registration by URL; ``kind`` is Mutating or Validating, ``fields`` replace the webhook's."""
    if kind == "Mutating":
        rules = [
            {
                "apiGroups": [group],
                "apiVersions": [version],
                "resources": [resource],
                "operations": ["CREATE", "UPDATE"],
            }
            for group, version, resource in RESOURCES.values()
        ]
        path = "mutate"
    else:
        rules = [
            {
                "apiGroups": ["kupid.gardener.cloud"],
                "apiVersions": ["v1alpha1"],
                "resources": POLICY_RESOURCES,
                "operations": ["CREATE", "UPDATE"],
            }
        ]
        path = "validate"
    webhook = {
        "name": f"{path}.harbourmaster.example.com",
        "clientConfig": {
            "url": f"{url}/{path}",
            "caBundle": base64.b64encode(bundle).decode(),
        },
        "rules": rules,
        "admissionReviewVersions": ["v1", "v1beta1"],
        "sideEffects": "None",
        "timeoutSeconds": 3,
        "failurePolicy": "Fail",
        "namespaceSelector": {
            "matchExpressions": [
                {
                    "key": "kubernetes.io/metadata.name",
                    "operator": "NotIn",
                    "values": ["kube-system", "kube-public", "kube-node-lease"],
                }
            ]
        },
    }
    if kind == "Mutating":
        webhook["reinvocationPolicy"] = "IfNeeded"
    webhook.update(fields)
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind}WebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [webhook],
    }
