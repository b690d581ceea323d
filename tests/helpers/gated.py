"""Gated pods, their owners and the phases of their versions, for a fake API server.

``Dying`` is a client whose process ends at a write.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from uuid import uuid4

from harbourmaster.api.resources import (
    APP_VERSIONS,
    APPS,
    PODS,
    WORKLOAD_VERSIONS,
    WORKLOADS,
)
from harbourmaster.controller.lifecycle import watches
from harbourmaster.lifecycle.workloads import OWNERS_KEY

GATE = "keptn-prechecks-gate"
REMOVED = "keptn.sh/scheduling-gate-removed"
PROD = "prod"
CREATED = "2026-03-01T10:00:00Z"
LATER = "2026-03-01T10:00:05Z"
PROVISIONAL = {"gates.harbourmaster.dev/parent": "unresolved"}
MINE = (watches.GATES, watches.WORKLOADS, watches.APPS, watches.CREATION_REQUESTS)
"""The jobs by which gated pods become workloads and apps, without the phases."""
CHECKED = {
    "preDeploymentStatus": "Succeeded",
    "preDeploymentEvaluationStatus": "Succeeded",
    "deploymentStatus": "Progressing",
    "status": "Progressing",
}
FAILED = {
    "preDeploymentStatus": "Failed",
    "preDeploymentEvaluationStatus": "Deprecated",
    "deploymentStatus": "Deprecated",
    "status": "Failed",
}


def keptn(workload="waiter", version="1.0", app="shop", **more):
    """Keptn's annotations."""
    given = {"workload": workload, "version": version, "app": app, **more}
    return {f"keptn.sh/{key.replace('_', '-')}": value for key, value in given.items() if value}


def owner_ref(kind, name, uid, version="apps/v1"):
    """An owner reference."""
    return {"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": True}


def pod(  # noqa: PLR0913 - a pod has many sides
    name="waiter-1",
    annotations=None,
    *,
    owners=None,
    gates=(GATE,),
    labels=None,
    created=CREATED,
    image="registry.example.com/main:1",
    **metadata,
):
    """A pod that no node has; ``annotations`` may be missing by {}."""
    all_annotations = keptn() if annotations is None else annotations
    references = [owner_ref("ReplicaSet", "waiter-rs", "rs-1")] if owners is None else owners
    return {
        "metadata": {
            "name": name,
            "namespace": PROD,
            **({"annotations": all_annotations} if all_annotations else {}),
            "labels": labels or {},
            "ownerReferences": references,
            "creationTimestamp": created,
            **metadata,
        },
        "spec": {
            "containers": [{"name": "main", "image": image}],
            "schedulingGates": [{"name": gate} for gate in gates],
        },
        "status": {"phase": "Pending"},
    }


def replica_set(name="waiter-rs", uid="rs-1", revision="1", above=("Deployment", "waiter", "d-1")):
    """A ReplicaSet of a Deployment, or without an owner."""
    return {
        "metadata": {
            "name": name,
            "namespace": PROD,
            "uid": uid,
            "annotations": {"deployment.kubernetes.io/revision": revision},
            **({"ownerReferences": [owner_ref(*above)]} if above else {}),
        }
    }


def deployment(name="waiter", uid="d-1", revision="1", annotations=None):
    """A Deployment at a revision."""
    revisions = {"deployment.kubernetes.io/revision": revision}
    return {
        "metadata": {
            "name": name,
            "namespace": PROD,
            "uid": uid,
            "annotations": {**revisions, **(annotations or {})},
        }
    }


def put(api, resource, obj):
    """Store an object; a new one keeps the uid and the creation time that it names."""
    metadata = obj["metadata"]
    key = (PROD, metadata["name"])
    if key in api.objects.all(resource):
        return api.put(resource, obj)
    given = {"uid": str(uuid4()), "creationTimestamp": CREATED, "generation": 1, **metadata}
    obj = {"apiVersion": resource.api_version, "kind": resource.kind, **obj, "metadata": given}
    return api.objects._keep(resource, key, None, obj)


def names(api, resource):
    """The names of the objects of a kind."""
    return sorted(name for _, name in api.objects.all(resource))


def gates(api, name="waiter-1"):
    """The gates of a pod."""
    return [gate["name"] for gate in api.get(PODS, name, PROD)["spec"]["schedulingGates"]]


def waiting(api):
    """The pods that have our gate."""
    return [name for name in names(api, PODS) if GATE in gates(api, name)]


def set_status(api, resource, name, status):
    """Write a status as another client would."""
    stored = api.get(resource, name, PROD)
    api.put(resource, {**stored, "status": status})


def version_of(api, name="shop-waiter-1.0"):
    """A workload version."""
    return api.get(WORKLOAD_VERSIONS, name, PROD)


def workload_of(api, name="shop-waiter"):
    """A workload."""
    return api.get(WORKLOADS, name, PROD)


def owners_of(api, name="shop-waiter-1.0"):
    """The owners that a version has recorded."""
    return version_of(api, name)["metadata"]["annotations"][OWNERS_KEY].split(",")


class Phases:
    """Stand-in for the phases: every version passes its checks as soon as it exists."""

    def __init__(self, context):
        self._versions = context.caches.workload_versions.store
        self._client = context.client

    def map_changes(self, keys):
        return list(self._versions) if keys is None else keys

    async def reconcile(self, key):
        version = self._versions.get(key)
        if version is not None and version.status.deployment_status == "Pending":
            name = key.partition("/")[2]
            set_status(self._client.api, WORKLOAD_VERSIONS, name, CHECKED)


class Dying:
    """A client whose process ends before or after its ``at``th write: nothing returns any more.

    ``writes`` has the verb and the kind of each, and ``died`` is set at the end.
    """

    VERBS = ("create", "patch", "replace", "delete")

    def __init__(self, client, api, *, at=0, after=False):
        self._client = client
        self.api = api
        self._at = at
        self._after = after
        self.writes = []
        self.died = asyncio.Event()

    def __getattr__(self, name):
        attribute = getattr(self._client, name)
        if name not in self.VERBS:
            return attribute

        async def write(resource, *arguments, **options):
            await self._until_dead()
            self.writes.append((name, resource.kind))
            is_last = len(self.writes) == self._at
            if is_last and not self._after:
                self.died.set()
            await self._until_dead()
            answer = await attribute(resource, *arguments, **options)
            if is_last:
                self.died.set()
            await self._until_dead()
            return answer

        return write

    async def _until_dead(self):
        if self.died.is_set():
            await asyncio.Event().wait()


async def until_death(dying, steps):
    """Run the steps to their end, or until the process dies."""
    died, ended = asyncio.create_task(dying.died.wait()), asyncio.create_task(steps)
    await asyncio.wait([died, ended], return_when=asyncio.FIRST_COMPLETED)
    for task in (died, ended):
        task.cancel()
    await asyncio.gather(died, ended, return_exceptions=True)


def outline(api):
    """The objects at the end, without what differs from run to run."""

    def plain(resource, *parts):
        return {
            name: {
                **{part: api.get(resource, name, PROD).get(part) for part in parts},
                "owners": [
                    (reference["kind"], reference["name"])
                    for reference in api.get(resource, name, PROD)["metadata"].get(
                        "ownerReferences", ()
                    )
                ],
            }
            for name in names(api, resource)
        }

    return {
        "workloads": plain(WORKLOADS, "spec", "status"),
        "versions": plain(WORKLOAD_VERSIONS, "spec", "status"),
        "apps": plain(APPS, "spec", "status"),
        "app versions": plain(APP_VERSIONS, "spec"),
        "gates": {name: gates(api, name) for name in names(api, PODS)},
        "owners": {name: sorted(owners_of(api, name)) for name in names(api, WORKLOAD_VERSIONS)},
    }


def make(api, *pods):
    """Store pods."""
    for pod in pods:
        put(api, PODS, pod)


def let_pass(api, name="shop-waiter-1.0"):
    """Let a version's checks have passed."""
    set_status(api, WORKLOAD_VERSIONS, name, CHECKED)


async def release(api, world, name="shop-waiter-1.0"):
    """Let a version's checks have passed, and wait until no pod waits at its gate."""
    let_pass(api, name)
    await world.until(lambda: not waiting(api))


def annotations_of(api, name="waiter-1"):
    """The annotations of a pod."""
    return api.get(PODS, name, PROD)["metadata"].get("annotations", {})


def tick(world):
    """Wake what waits for signals, which wake nothing themselves."""
    asyncio.get_running_loop().call_later(0.01, world.changes.tell)
    return False


async def version_there(api, world, name="shop-waiter-1.0"):
    """Wait until a version is there, and known."""
    await world.until(lambda: name in names(api, WORKLOAD_VERSIONS))
    await world.until(lambda: f"{PROD}/{name}" in world.caches.workload_versions.store)


class SetClock:
    """Tells the time ``seconds`` after CREATED."""

    def __init__(self, seconds=0.0):
        self.seconds = seconds

    def __call__(self):
        return datetime.fromisoformat(CREATED) + timedelta(seconds=self.seconds)
