"""A second kube-scheduler on a control plane, and a scheduler's questions to the extender."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from datetime import UTC, datetime, timedelta

import yaml

from harbourmaster.api.times import format_rfc3339
from harbourmaster.kube.store import Store
from harbourmaster.lifecycle.model import (
    ItemStatus,
)
from harbourmaster.playground.capabilities import SCHEDULER_NAME as NAME
from harbourmaster.playground.capabilities import scheduler_configuration
from harbourmaster.playground.pki import write_private
from helpers import rights
from helpers.lifecycle_objects import waiter_version
from helpers.manifests import DEPLOY

HOME = "harbourmaster-system"
SECRET = "harbourmaster-webhook-cert"  # noqa: S105 - the name of an object
PART = DEPLOY / "components/scheduler"


def shipped_configuration():
    """The KubeSchedulerConfiguration of the component."""
    manifest = yaml.safe_load((PART / "configuration.yaml").read_text())
    return yaml.safe_load(manifest["data"]["kube-scheduler.yaml"])


def configuration(port, authority, **extender):
    """The shipped configuration, led to a port here; ``authority`` is a file with PEM.

    ``extender`` are changes of its fields, None for one that is left out.
    """
    base = scheduler_configuration(port, authority)
    changed = {**base["extenders"][0], **extender}
    base["extenders"] = [{key: value for key, value in changed.items() if value is not None}]
    return base


def configuration_without_extender():
    """The shipped configuration without an extender."""
    return {key: value for key, value in shipped_configuration().items() if key != "extenders"}


def authority_of(plane, namespace=HOME):
    """Write the authorities that are served now into the control plane's folder; the file."""
    path = "--output=jsonpath={.data['ca\\.crt']}"
    result = plane.kubectl("get", "secret", SECRET, f"--namespace={namespace}", path).stdout
    file = plane.layout.directory / "extender-ca.crt"
    write_private(file, base64.b64decode(result))
    return file


def account(plane):
    """Give the shipped ServiceAccount the shipped rights; a kubeconfig of it."""
    for name in ("service-account.yaml", "rights.yaml"):
        plane.kubectl("apply", "--server-side", "--filename", str(PART / name))
    token = plane.kubectl(
        "create", "token", "harbourmaster-scheduler", f"--namespace={HOME}", "--duration=3h"
    ).stdout.strip()
    file = plane.layout.directory / "harbourmaster-scheduler.kubeconfig"
    write_private(file, rights.kubeconfig(plane.kubeconfig, token=token).encode())
    return file


@contextlib.contextmanager
def second_scheduler(plane, settings, kubeconfig=None):
    """Let a scheduler of this configuration run meanwhile."""
    if kubeconfig is not None:
        connection = {**settings.get("clientConnection", {}), "kubeconfig": str(kubeconfig)}
        settings = {**settings, "clientConnection": connection}
    plane.add_scheduler(NAME, settings)
    try:
        yield
    finally:
        plane.end(NAME)


NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
NAMESPACE = "prod"
VERSION_NAME = "shop-waiter-1.0"
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
    begun = format_rfc3339(NOW - timedelta(seconds=60))
    return waiter_version(uid=UID, **{"start_time": begun, **status})


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
