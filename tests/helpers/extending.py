"""A scheduler's questions, and a mirror of workload versions to answer them from."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta

from harbourmaster.api.metadata import Metadata
from harbourmaster.api.times import format_rfc3339
from harbourmaster.kube.store import Store
from harbourmaster.lifecycle.model import (
    ItemStatus,
    ResourceReference,
    WorkloadVersion,
    WorkloadVersionSpec,
    WorkloadVersionStatus,
)
from helpers.generated_by import owner

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
NAMESPACE = "prod"
NAME = "shop-waiter-1.0"
UID = "u1"
TRACKED = {"keptn.sh/app": "shop", "keptn.sh/workload": "waiter", "keptn.sh/version": "1.0"}
NODES = ("n1", "n2", "n3")
PASSED = {
    "pre_deployment_status": "Succeeded",
    "pre_deployment_evaluation_status": "Succeeded",
    "deployment_status": "Progressing",
}
CHECKED = {"pre_deployment_task_status": (ItemStatus(definition_name="smoke", status="Pending"),)}


class Mirror:
    """Stand-in for a reflector; it is filled and in contact unless a test says otherwise."""

    def __init__(self, *versions):
        self.synced = asyncio.Event()
        self.synced.set()
        self.error = None
        self.store = Store()
        for version in versions:
            self.store.put(version.metadata.key, version)


def version(**status):
    """A workload version that began a minute ago."""
    return WorkloadVersion(
        metadata=Metadata(name=NAME, namespace=NAMESPACE, owner_references=(owner(),)),
        spec=WorkloadVersionSpec(
            app="shop",
            version="1.0",
            workload_name="shop-waiter",
            resource_reference=ResourceReference(uid=UID, kind="ReplicaSet", name="waiter-5"),
        ),
        status=WorkloadVersionStatus(
            **{"start_time": format_rfc3339(NOW - timedelta(seconds=60)), **status}
        ),
    )


def pod(annotations=None):
    """A pod of the ReplicaSet of that version, with what a pod has besides."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "waiter-5", "uid": UID}
    return {
        "metadata": {
            "name": "waiter-5-x",
            "namespace": NAMESPACE,
            "uid": "p1",
            "annotations": TRACKED if annotations is None else annotations,
            "ownerReferences": [owner],
        },
        "spec": {
            "schedulerName": "keptn-scheduler",
            "containers": [{"name": "main", "image": "registry.example.com/waiter:1"}],
        },
        "status": {"phase": "Pending"},
    }


def filter_body(names=NODES, annotations=None, **changes):
    """ExtenderArgs."""
    arguments = {"Pod": pod(annotations), "Nodes": None, "NodeNames": list(names), **changes}
    return json.dumps(arguments).encode()


def preempt_body(names=NODES, annotations=None):
    """ExtenderPreemptionArgs."""
    victims = {name: {"Pods": [{"UID": f"v-{name}"}], "NumPDBViolations": 0} for name in names}
    arguments = {
        "Pod": pod(annotations),
        "NodeNameToVictims": None,
        "NodeNameToMetaVictims": victims,
    }
    return json.dumps(arguments).encode()
