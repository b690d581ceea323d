"""An API server of a dictionary, and mirrors that are as far behind as a test wants.

No loop, no sockets: a reconciler's whole flow takes milliseconds, so it can be killed anywhere.
"""

from __future__ import annotations

import copy
import itertools
import json

import jsonpatch
import msgspec

from harbourmaster.api.resources import (
    APP_VERSIONS,
    DAEMON_SETS,
    EVALUATION_DEFINITIONS,
    EVALUATIONS,
    REPLICA_SETS,
    ROLLOUTS,
    STATEFUL_SETS,
    TASK_DEFINITIONS,
    TASKS,
    WORKLOAD_VERSIONS,
    WORKLOADS,
)
from harbourmaster.controller.lifecycle.owners import Owner
from harbourmaster.kube.errors import AlreadyExistsError, ConflictError, NotFoundError
from harbourmaster.lifecycle.model import (
    AppVersion,
    Evaluation,
    EvaluationDefinition,
    Task,
    TaskDefinition,
    Workload,
    WorkloadVersion,
)
from helpers.lifecycle import context_of
from helpers.signals import RecordedSignals

MIRRORS = {
    APP_VERSIONS: ("app_versions", AppVersion),
    WORKLOAD_VERSIONS: ("workload_versions", WorkloadVersion),
    WORKLOADS: ("workloads", Workload),
    TASKS: ("tasks", Task),
    EVALUATIONS: ("evaluations", Evaluation),
    TASK_DEFINITIONS: ("task_definitions", TaskDefinition),
    EVALUATION_DEFINITIONS: ("evaluation_definitions", EvaluationDefinition),
    REPLICA_SETS: ("replica_sets", Owner),
    STATEFUL_SETS: ("stateful_sets", Owner),
    DAEMON_SETS: ("daemon_sets", Owner),
    ROLLOUTS: ("rollouts", Owner),
}
CREATED = "2026-11-21T17:59:00Z"


class KilledError(BaseException):
    """The process is gone."""


class Server:
    """The objects, and a client of them. ``requests`` are verb, kind and name, in order.

    ``fault`` is called with the number of each write and "before" or "after", and may raise.
    """

    def __init__(self):
        self.objects = {}
        self.requests = []
        self.changes = 0
        self.fault = None
        self.refusals = {}
        self.is_dead = False
        self._writes = itertools.count()

    def put(self, resource, obj, namespace="prod"):
        """Create or replace an object, as somebody else would; returns what is stored."""
        obj = copy.deepcopy(msgspec.to_builtins(obj))
        obj |= {"apiVersion": resource.api_version, "kind": resource.kind}
        metadata = obj["metadata"]
        metadata.setdefault("namespace", namespace)
        key = (resource, metadata["namespace"], metadata["name"])
        metadata.setdefault("uid", f"uid-{metadata['name']}")
        metadata.setdefault("creationTimestamp", CREATED)
        self.changes += 1
        metadata["resourceVersion"] = str(self.changes)
        self.objects[key] = obj
        return obj

    def find(self, resource, name, namespace="prod"):
        return self.objects[resource, namespace, name]

    def all(self, resource):
        return [obj for (kind, *_), obj in self.objects.items() if kind == resource]

    def remove(self, resource, name, namespace="prod"):
        del self.objects[resource, namespace, name]

    def change(self, resource, name, **fields):
        """Replace fields of an object, as somebody else would."""
        return self.put(resource, {**self.find(resource, name), **fields})

    def seen(self, verb, resource=None):
        return [
            name
            for found, kind, name in self.requests
            if found == verb and resource in {None, kind}
        ]

    def writes(self):
        return [each for each in self.requests if each[0] != "get"]

    # The client.

    async def get(self, resource, name, namespace=None):
        self._note("get", resource, name)
        try:
            return json.dumps(self.objects[resource, namespace, name]).encode()
        except KeyError:
            raise NotFoundError(f"{resource.plural} {name} not found", status=404) from None

    async def create(self, resource, obj, namespace=None):
        name = obj["metadata"]["name"]
        self._note("create", resource, name)
        if error := self.refusals.get((resource, name)) or self.refusals.get(resource):
            raise error

        def apply():
            if (resource, namespace, name) in self.objects:
                raise AlreadyExistsError(f"{name} already exists", status=409)
            return self.put(resource, obj, namespace)

        return self._write(apply)

    async def patch(self, resource, name, patch, namespace=None, *, subresource=None):
        self._note("patch", resource, f"{name}/{subresource}" if subresource else name)

        def apply():
            try:
                before = self.objects[resource, namespace, name]
            except KeyError:
                raise NotFoundError(f"{name} not found", status=404) from None
            after = jsonpatch.apply_patch(before, json.loads(patch.encoded()))
            if after["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]:
                raise ConflictError("the object has been modified", status=409)
            if after == before:
                return before
            return self.put(resource, after, namespace)

        return self._write(apply)

    def _note(self, verb, resource, name):
        if self.is_dead:
            raise KilledError
        self.requests.append((verb, resource, name))

    def _write(self, apply):
        number = next(self._writes)
        if self.fault is not None:
            self.fault(number, "before")
        stored = json.dumps(apply()).encode()
        if self.fault is not None:
            self.fault(number, "after")
        return stored


class Mirrored:
    """One life of some reconcilers; ``sync`` brings their mirrors up to date."""

    def __init__(self, server, *reconcilers, now, signals=None, **options):
        self.server = server
        self.signals = signals or RecordedSignals()
        self.context = context_of(server, now=now, signals=self.signals, **options)
        self.caches = self.context.caches
        self.reconcilers = [each(self.context) for each in reconcilers]
        self.sync()

    def sync(self):
        for resource, (attribute, kind_of) in MIRRORS.items():
            found = {
                f"{namespace}/{name}": msgspec.convert(obj, kind_of)
                for (kind, namespace, name), obj in self.server.objects.items()
                if kind == resource
            }
            getattr(self.caches, attribute).store.replace_all(found)

    async def sweep(self):
        """One pass over all that is due; mirrors are synced after each."""
        waits = {}
        for each in self.reconcilers:
            for key in sorted(each.due(None)):
                waits[key] = await each.reconcile(key)
                self.sync()
        return waits

    def app_version(self, name):
        return msgspec.convert(self.server.find(APP_VERSIONS, name), AppVersion)

    def workload_version(self, name):
        return msgspec.convert(self.server.find(WORKLOAD_VERSIONS, name), WorkloadVersion)


def task_definition(name, **spec):
    return {"metadata": {"name": name}, "spec": {"container": {"name": "a"}, **spec}}


def evaluation_definition(name):
    objective = {"keptnMetricRef": {"name": "m"}, "evaluationTarget": ">1"}
    return {"metadata": {"name": name}, "spec": {"objectives": [objective]}}


def owner(name, *, uid="rs-1", generation=1, wanted=2, owners=(), **status):
    """A ReplicaSet, StatefulSet or DaemonSet; by default none of its pods is ready."""
    return {
        "metadata": {
            "name": name,
            "uid": uid,
            "generation": generation,
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": kind, "name": each, "uid": each}
                for kind, each in owners
            ],
        },
        "spec": {"replicas": wanted},
        "status": {"observedGeneration": generation, **status},
    }
