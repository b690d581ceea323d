"""The simulated API server in process, and mirrors that are as far behind as a test wants.

No loop, no sockets: a reconciler's whole flow takes milliseconds, so it can be killed anywhere.
"""

from __future__ import annotations

import itertools
import json

import msgspec

from harbourmaster.api.resources import (
    ANALYSES,
    ANALYSIS_DEFINITIONS,
    APP_CONTEXTS,
    APP_CREATION_REQUESTS,
    APP_VERSIONS,
    APPS,
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
from harbourmaster.controller.lifecycle.owners import decode_owner, decode_rollout
from harbourmaster.evaluation.model import Analysis, AnalysisDefinition
from harbourmaster.kube.caches import decoder
from harbourmaster.lifecycle.model import (
    App,
    AppContext,
    AppCreationRequest,
    AppVersion,
    Evaluation,
    EvaluationDefinition,
    Task,
    TaskDefinition,
    Workload,
    WorkloadVersion,
)
from helpers.api_server import ApiServer
from helpers.in_process import InProcessClient, Response
from helpers.lifecycle import context_of
from helpers.signals import RecordedSignals

MIRRORS = {
    ANALYSES: ("analyses", decoder(Analysis)),
    ANALYSIS_DEFINITIONS: ("analysis_definitions", decoder(AnalysisDefinition)),
    APPS: ("apps", decoder(App)),
    APP_CONTEXTS: ("app_contexts", decoder(AppContext)),
    APP_CREATION_REQUESTS: ("creation_requests", decoder(AppCreationRequest)),
    APP_VERSIONS: ("app_versions", decoder(AppVersion)),
    WORKLOAD_VERSIONS: ("workload_versions", decoder(WorkloadVersion)),
    WORKLOADS: ("workloads", decoder(Workload)),
    TASKS: ("tasks", decoder(Task)),
    EVALUATIONS: ("evaluations", decoder(Evaluation)),
    TASK_DEFINITIONS: ("task_definitions", decoder(TaskDefinition)),
    EVALUATION_DEFINITIONS: ("evaluation_definitions", decoder(EvaluationDefinition)),
    REPLICA_SETS: ("replica_sets", decode_owner),
    STATEFUL_SETS: ("stateful_sets", decode_owner),
    DAEMON_SETS: ("daemon_sets", decode_owner),
    ROLLOUTS: ("rollouts", decode_rollout),
}
CREATED = "2026-11-21T17:59:00Z"


class KilledError(BaseException):
    """The process is gone."""


class Server(ApiServer):
    """The objects, and a client of them. ``requests`` are verb, kind and name, in order.

    ``fault`` is called with the number of each write and "before" or "after", and may raise;
    ``refusals`` holds StatusErrors by resource, or by resource and name.
    """

    def __init__(self):
        super().__init__()
        self.requests = []
        self.client = InProcessClient(self._carry)
        self.fault = lambda _number, _moment: None
        self.refusals = {}
        self.is_dead = False
        self._writes = itertools.count()

    def put(self, resource, obj, namespace="prod"):
        """Create or replace an object, as another client would; returns the stored object."""
        obj = msgspec.to_builtins(obj)
        name = obj["metadata"]["name"]
        marks = {"uid": f"uid-{name}", "creationTimestamp": CREATED, "generation": 1}
        metadata = {"namespace": namespace, **marks, **obj["metadata"]}
        key = (metadata["namespace"], name)
        kind = {"apiVersion": resource.api_version, "kind": resource.kind}
        before = self.objects.all(resource).get(key)
        return self.objects._keep(resource, key, before, obj | kind | {"metadata": metadata})

    def get(self, resource, name, namespace="prod"):
        return super().get(resource, name, namespace)

    def all(self, resource):
        return list(self.objects.all(resource).values())

    def remove(self, resource, name, namespace="prod"):
        super().remove(resource, name, namespace)

    def change(self, resource, name, **fields):
        """Replace fields of an object, as another client would."""
        return self.put(resource, {**self.get(resource, name), **fields})

    def seen(self, verb, resource=None):
        return [
            name
            for request_verb, kind, name in self.requests
            if request_verb == verb and resource in {None, kind}
        ]

    def writes(self):
        return [request for request in self.requests if request[0] != "get"]

    async def _carry(self, seen, _timeouts):
        if self.is_dead:
            raise KilledError
        return Response(self.answer(seen))

    def _do(self, seen, resource, namespace, name, subresource):
        if seen.verb == "list":
            return super()._do(seen, resource, namespace, name, subresource)
        about = name or json.loads(seen.body)["metadata"]["name"]
        self.requests.append((seen.verb, resource, "/".join(filter(None, (about, subresource)))))
        if seen.verb == "get":
            return super()._do(seen, resource, namespace, name, subresource)
        if error := self.refusals.get((resource, about)) or self.refusals.get(resource):
            raise error
        number = next(self._writes)
        self.fault(number, "before")
        value = super()._do(seen, resource, namespace, name, subresource)
        self.fault(number, "after")
        return value


class Mirrored:
    """One life of some reconcilers; ``sync`` brings their mirrors up to date."""

    def __init__(self, server, *reconcilers, now, signals=None, **options):
        self.server = server
        self.signals = signals or RecordedSignals()
        self.context = context_of(server.client, now=now, signals=self.signals, **options)
        self.caches = self.context.caches
        self.reconcilers = [reconciler(self.context) for reconciler in reconcilers]
        self._synced = 0
        self.sync()

    def sync(self):
        changes = reversed(self.server.objects.history)
        new = list(itertools.takewhile(lambda value: value.version > self._synced, changes))
        self._synced = self.server.objects.version
        for resource in MIRRORS.keys() & {obj.resource for obj in new}:
            attribute, decode = MIRRORS[resource]
            by_key = {
                "/".join(key): decode(msgspec.json.encode(obj))
                for key, obj in self.server.objects.all(resource).items()
            }
            getattr(self.caches, attribute).store.replace_all(by_key)

    async def sweep(self):
        """One pass over all that is due; mirrors are synced after each."""
        waits = {}
        for reconciler in self.reconcilers:
            for key in sorted(reconciler.map_changes(None)):
                waits[key] = await reconciler.reconcile(key)
                self.sync()
        return waits

    def app_version(self, name):
        return msgspec.convert(self.server.get(APP_VERSIONS, name), AppVersion)

    def workload_version(self, name):
        return msgspec.convert(self.server.get(WORKLOAD_VERSIONS, name), WorkloadVersion)


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
                {"apiVersion": "apps/v1", "kind": kind, "name": workload, "uid": workload}
                for kind, workload in owners
            ],
        },
        "spec": {"replicas": wanted},
        "status": {"observedGeneration": generation, **status},
    }
