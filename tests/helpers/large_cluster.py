"""A cluster of 150,000 pods on a fake API server, and questions about it to ``why``."""

from __future__ import annotations

import random
from collections import defaultdict
from datetime import UTC, datetime

from bench import planning
from harbourmaster.api import resources as kinds
from harbourmaster.gates.metadata import OPT_IN, OPT_IN_KEY
from helpers.explanations import registration
from helpers.fake_api import FakeApi
from helpers.flow import manifests
from helpers.objects import cluster_policy

NODES, PODS, NAMESPACES = 5000, 150_000, 500
LARGE, IN_LARGE, WAITING = "big", 5000, 4000
"""The largest namespace, its pods, and how many of them wait for one version."""
HOME = "harbourmaster-system"
CREATED = "2026-03-01T12:00:00Z"
RUNNING, LATER, EXCLUDED = "web-0000", "ledger-0000", "excluded"
SUBJECTS = {
    "waiting pod": ("pod", f"{LARGE}/{LATER}"),
    "running pod": ("pod", f"{LARGE}/{RUNNING}"),
    "unschedulable pod": ("pod", f"{LARGE}/{EXCLUDED}"),
    "waiting deployment": ("deployment", f"{LARGE}/ledger"),
    "running deployment": ("deployment", f"{LARGE}/web"),
    "app": ("keptnapp", f"{LARGE}/bank"),
    "app version": ("keptnappversion", f"{LARGE}/bank-1.0-1"),
    "workload": ("keptnworkload", f"{LARGE}/bank-ledger"),
    "workload version": ("keptnworkloadversion", f"{LARGE}/bank-ledger-1.0"),
    "namespace": ("namespace", LARGE),
    "cluster policy": ("clusterpodschedulingpolicy", "pools"),
}


class LargeApi(FakeApi):
    """A server that finds the objects of a namespace as fast as a real one does."""

    def __init__(self):
        super().__init__()
        self.places = defaultdict(dict)
        self.objects.items_of = self._items_of

    def place(self, resource, obj):
        """Store an object whose parts belong to others too."""
        self.objects.version += 1
        metadata = {
            "creationTimestamp": CREATED,
            "uid": f"uid-{obj['metadata']['name']}",
            **obj["metadata"],
            "resourceVersion": str(self.objects.version),
        }
        obj = {**resource.type_fields, **obj, "metadata": metadata}
        key = (metadata.get("namespace", ""), metadata["name"])
        self.objects.all(resource)[key] = self.places[resource, key[0]][key] = obj
        return obj

    def _items_of(self, resource, namespace):
        if namespace:
            return self.places.get((resource, namespace), {}).items()
        return self.objects.all(resource).items()


def fill(api, *, nodes=NODES, pods=PODS, namespaces=NAMESPACES, large=IN_LARGE, waiting=WAITING):
    """Fill a cluster: one large namespace, whose pods wait and run, and many others."""
    chance = random.Random(1)  # noqa: S311 - a fixed seed
    images = [
        {"names": [f"registry.example.com/team/{n:040x}:1"], "sizeBytes": n} for n in range(50)
    ]
    for number in range(nodes):
        node = planning.node_json(number)
        node["metadata"]["name"] = f"node-{number}"
        api.place(kinds.NODES, {**node, "status": {**node["status"], "images": images}})
    for name in (HOME, LARGE, *(f"team-{number}" for number in range(namespaces))):
        metadata = {"name": name, "annotations": {OPT_IN_KEY: OPT_IN}}
        api.place(kinds.NAMESPACES, {"metadata": metadata})
    api.place(kinds.MUTATING_WEBHOOKS, registration())
    api.place(
        kinds.CLUSTER_POLICIES,
        cluster_policy("pools", pods={"app": "web"}, nodeSelector={"pool": "a"}),
    )
    for name in ("harbourmaster-webhook", "harbourmaster-controller"):
        container = {"name": "main", "image": "example.com/harbourmaster:1", "args": [name[14:]]}
        spec = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
        api.place(kinds.DEPLOYMENTS, {"metadata": {"name": name, "namespace": HOME}, "spec": spec})
    workloads = planning.apps(chance, max(pods // 100, 1))
    shapes = [
        planning.pod_json(chance, workload, number, "", (100, 256))
        for number, workload in enumerate(workloads)
    ]
    for number in range(pods - large):
        shape = shapes[number % len(shapes)]
        metadata = {
            **shape["metadata"],
            "name": f"pod-{number:06}",
            "namespace": f"team-{number % namespaces}",
            "uid": f"uid-{number}",
        }
        spec = {**shape["spec"], "nodeName": f"node-{number % nodes}"}
        api.place(kinds.PODS, {**shape, "metadata": metadata, "spec": spec})
    _fill_large(api, shapes[0], large - waiting - 1, waiting)


def _fill_large(api, shape, running, waiting):
    place = {"namespace": LARGE}
    checks = {"pre_deployment_tasks": "scan", "app": "bank"}
    for name, count in (("web", running), ("ledger", waiting)):
        given = manifests.keptn(name, **checks) if name == "ledger" else {}
        template = {
            "metadata": {"labels": {"app": name}, "annotations": given},
            "spec": {**shape["spec"], "nodeName": None},
        }
        spec = {"replicas": count, "selector": {"matchLabels": {"app": name}}, "template": template}
        status = {"replicas": count, "observedGeneration": 1, "updatedReplicas": count}
        deployment = {"name": name, **place, "uid": f"uid-{name}"}
        api.place(kinds.DEPLOYMENTS, {"metadata": deployment, "spec": spec, "status": status})
        for former in range(10):
            metadata = {
                "name": f"{name}-{former}",
                **place,
                "labels": {"app": name},
                "ownerReferences": [_reference("Deployment", name)],
            }
            counted = {**spec, "replicas": 0 if former else count}
            api.place(kinds.REPLICA_SETS, {"metadata": metadata, "spec": counted, "status": {}})
        for number in range(count):
            metadata = {
                **template["metadata"],
                **place,
                "name": f"{name}-{number:04}",
                "ownerReferences": [_reference("ReplicaSet", f"{name}-0")],
            }
            pod = {**shape, "metadata": metadata}
            if name == "ledger":
                spec = {key: value for key, value in shape["spec"].items() if key != "nodeName"}
                pod["spec"] = {**spec, "schedulingGates": [{"name": manifests.GATE}]}
                pod["status"] = {"phase": "Pending"}
            else:
                pod["spec"] = {**shape["spec"], "nodeName": f"node-{number % 100}"}
            api.place(kinds.PODS, pod)
    spec = {key: value for key, value in shape["spec"].items() if key != "nodeName"}
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/5000 nodes are available",
        "lastTransitionTime": CREATED,
    }
    api.place(
        kinds.PODS,
        {
            "metadata": {"name": EXCLUDED, **place, "labels": {"app": "excluded"}},
            "spec": {**spec, "nodeSelector": {"disk": "none"}},
            "status": {"phase": "Pending", "conditions": [condition]},
        },
    )
    for number in range(2000):
        event = {
            "metadata": {"name": f"event-{number}", **place},
            "involvedObject": {"uid": f"uid-web-{number % running:04}", "kind": "Pod"},
            "reason": "Pulled",
            "message": "pulled",
            "reportingComponent": "kubelet",
        }
        api.place(kinds.CORE_EVENTS, event)
    _fill_versions(api, place)


def _fill_versions(api, place):
    task = manifests.container_task("scan")
    api.place(kinds.TASK_DEFINITIONS, {**task, "metadata": {**task["metadata"], **place}})
    entries = [{"name": "ledger", "version": "1.0"}]
    for number in range(100):
        app = "bank" if not number else f"app-{number}"
        for version in range(10):
            metadata = {
                "name": f"{app}-1.{version}-1",
                **place,
                "generation": 1,
                "ownerReferences": [_reference("KeptnApp", app)],
            }
            spec = {"appName": app, "version": f"1.{version}", "workloads": entries}
            api.place(kinds.APP_VERSIONS, {"metadata": metadata, "spec": spec, "status": {}})
    spec = {"version": "1.0", "revision": 1, "workloads": entries}
    metadata = {"name": "bank", **place, "generation": 1}
    api.place(kinds.APPS, {"metadata": metadata, "spec": spec, "status": {}})
    spec = {
        "app": "bank",
        "version": "1.0",
        "preDeploymentTasks": ["scan"],
        "resourceReference": {"kind": "ReplicaSet", "name": "ledger-0", "uid": "uid-ledger-0"},
    }
    workload = {"metadata": {"name": "bank-ledger", **place}, "spec": spec, "status": {}}
    api.place(kinds.WORKLOADS, workload)
    spec = {**spec, "workloadName": "bank-ledger"}
    owners = [_reference("KeptnWorkload", "bank-ledger")]
    metadata = {"name": "bank-ledger-1.0", **place, "ownerReferences": owners}
    running = {"taskDefinitionName": "scan", "name": "pre-scan-1", "status": "Progressing"}
    status = {
        "currentPhase": "WorkloadPreDeployTasks",
        "status": "Progressing",
        "preDeploymentStatus": "Progressing",
        "preDeploymentTaskStatus": [running],
    }
    version = {"metadata": metadata, "spec": spec, "status": status}
    version = api.place(kinds.WORKLOAD_VERSIONS, version)
    spec = {"taskDefinition": "scan", "checkType": "pre", "workload": "ledger", "app": "bank"}
    owners = [_reference("KeptnWorkloadVersion", "bank-ledger-1.0")]
    metadata = {"name": "pre-scan-1", **place, "ownerReferences": owners}
    status = {"status": "Progressing", "jobName": "pre-scan-1"}
    api.place(kinds.TASKS, {"metadata": metadata, "spec": spec, "status": status})
    renewed = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S}.000000Z"
    spec = {"holderIdentity": "controller-0", "leaseDurationSeconds": 15, "renewTime": renewed}
    metadata = {"name": "harbourmaster-controller", "namespace": HOME}
    api.place(kinds.LEASES, {"metadata": metadata, "spec": spec})


def _reference(kind, name):
    group = "lifecycle.keptn.sh" if kind.startswith("Keptn") else "apps"
    types = {"apiVersion": f"{group}/v1", "kind": kind}
    return {**types, "name": name, "uid": f"uid-{name}", "controller": True}
