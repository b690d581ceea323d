"""The API server in memory with evictions as the real one answers them, and a rescheduler on it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from datetime import UTC, datetime, timedelta

from harbourmaster.api.resources import CONFIG_MAPS, DISRUPTION_BUDGETS, EVENTS, NODES, PODS
from helpers.fake_api import FakeApi
from helpers.fake_store import StatusError, status
from helpers.patience import PATIENCE
from helpers.rescheduling import objects

KEY = objects.TAINT
ANNOTATION = objects.RESERVATIONS
HOME = "harbourmaster-system"
QUICK = {
    "enabled": True,
    "initialDelaySeconds": 0,
    "settleDelaySeconds": 0,
    "verifyDelaySeconds": 0,
    "housekeepingIntervalSeconds": 0.2,
}


def refused_by_budget(retry_after=None):
    """The API server's answer if a disruption budget allows nothing."""
    details = {"causes": [{"reason": "DisruptionBudget", "message": "needs 1 healthy pods"}]}
    if retry_after is not None:
        details["retryAfterSeconds"] = retry_after
    return StatusError(429, "Cannot evict pod as it would violate a budget", details=details)


def refused_by_admission():
    """The API server's answer if an admission policy denies the eviction."""
    return StatusError(422, "is forbidden: ValidatingAdmissionPolicy denied request")


def refused_by_two_budgets():
    """The API server's answer if two budgets match: neither a reason nor details."""
    text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not"
    return StatusError(500, text, reason="")


class EvictingApi(FakeApi):
    """Victims stay, with their deletionTimestamp, until the test removes them.

    ``answers``: for evictions by the name of the pod, in order; None for the right one. The same in
    ``tries`` for dry runs. ``evictions``, ``deletions`` and ``marks`` tell what was asked for.
    """

    def __init__(self):
        super().__init__()
        self.answers = {}
        self.tries = {}
        self.evictions = []
        self.deletions = []
        self.marks = []

    def _do(self, seen, resource, namespace, name, subresource):
        if resource is PODS and subresource == "eviction":
            return self._evict(seen, namespace, name)
        if resource is PODS and seen.verb == "delete":
            self.deletions.append((name, json.loads(seen.body)))
            return self._end(namespace, name, json.loads(seen.body))
        if resource is PODS and seen.verb == "patch" and subresource == "status":
            self.objects.get(PODS, namespace, name)
            self.marks.append((name, json.loads(seen.body)["status"]["conditions"][0]["reason"]))
            return {}
        if resource is NODES and seen.verb == "patch":
            seen = self._without_nulls(seen, name)
        answer = super()._do(seen, resource, namespace, name, subresource)
        on = seen.query.get("fieldSelector", "").partition("spec.nodeName=")[2].partition(",")[0]
        if resource is PODS and seen.verb == "list" and on:
            everything = list(self.objects.all(PODS).values())
            items = [obj for obj in everything if obj["spec"].get("nodeName") == on]
            answer = {**answer, "items": items}
        return answer

    def _without_nulls(self, seen, name):
        """The patch without its tests for null: to the real server absent fields are null."""
        operations = json.loads(seen.body)
        node = self.objects.get(NODES, "", name)
        for obj in operations:
            _, parent, last, *_ = obj["path"].split("/")
            if obj["op"] == "test" and obj["value"] is None and node.get(parent, {}).get(last):
                raise StatusError(422, "the server rejected our request")
        kept = [
            operation
            for operation in operations
            if operation["op"] != "test" or operation["value"] is not None
        ]
        return seen._replace(body=json.dumps(kept).encode())

    def _evict(self, seen, namespace, name):
        options = json.loads(seen.body)["deleteOptions"]
        is_dry = "dryRun" in options
        planned = (self.tries if is_dry else self.answers).get(name) or [None]
        answer = planned.pop(0) if len(planned) > 1 else planned[0]
        if not is_dry:
            self.evictions.append((name, options))
        if answer is not None:
            raise answer
        if is_dry:
            self.objects.get(PODS, namespace, name)
            return status(201, "")
        return self._end(namespace, name, options)

    def _end(self, namespace, name, options):
        before = self.objects.get(PODS, namespace, name)
        if options["preconditions"]["uid"] != before["metadata"]["uid"]:
            raise StatusError(409, "the UID in the precondition does not match")
        ends = datetime.now(UTC) + timedelta(seconds=options["gracePeriodSeconds"])
        text = ends.strftime("%Y-%m-%dT%H:%M:%SZ")
        marked = {**before, "metadata": {**before["metadata"], "deletionTimestamp": text}}
        self.objects._keep(PODS, (namespace, name), before, marked)
        return status(200, "")

    def add_node(self, name="n1", cpu="2", *, annotations=None, **options):
        """A node that is ready; its uid. ``options`` are those of ``objects.node``."""
        manifest = objects.node(name, cpu, **options)
        manifest["metadata"]["annotations"] = annotations or {}
        return self._create(NODES, manifest)

    def add_pod(self, name, node="n1", cpu="1", **options):
        """A pod that runs on a node, and may be moved; its uid."""
        manifest = objects.removable(name, node, cpu, of="of-r", **options)
        manifest["metadata"]["namespace"] = "default"
        manifest["status"] = {"phase": "Running", "conditions": [objects.readiness(True)]}
        return self._create(PODS, manifest)

    def add_critical(self, name="c", cpu="1", *, tolerates=True):
        """A critical pod that waits; its uid."""
        manifest = objects.critical(name, None, cpu, tolerant=tolerates)
        manifest["metadata"]["namespace"] = objects.CRITICAL
        unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        manifest["status"] = {"phase": "Pending", "conditions": [unschedulable]}
        return self._create(PODS, manifest)

    def bind(self, name="c", node="n1"):
        """Do what the scheduler does."""
        stored = self.get(PODS, name, "kube-system")
        self.put(PODS, {**stored, "spec": {**stored["spec"], "nodeName": node}})

    def nominate(self, node, name="c"):
        """Do what its preemption does."""
        stored = self.get(PODS, name, "kube-system")
        self.put(PODS, {**stored, "status": {**stored["status"], "nominatedNodeName": node}})

    def switch(self, enabled):
        """Set the kill switch."""
        metadata = {"name": "harbourmaster-rescheduling", "namespace": HOME}
        self.put(CONFIG_MAPS, {"metadata": metadata, "data": {"enabled": enabled}})

    def taints(self, node="n1"):
        """The taints of a node."""
        return self.get(NODES, node)["spec"].get("taints") or []

    def reservations(self, node="n1"):
        """The value of our annotation on a node; None if it is absent."""
        text = (self.get(NODES, node)["metadata"].get("annotations") or {}).get(ANNOTATION)
        return None if text is None else json.loads(text)

    def is_clean(self, node="n1"):
        """Whether nothing of ours is on a node."""
        return objects.is_clean(self.get(NODES, node))

    def evicted_names(self):
        """The names of the pods whose eviction was asked for, in order."""
        return [name for name, _ in self.evictions]

    def writes(self):
        """The requests that are to change something other than events."""
        return [
            (request.method, request.path)
            for request in self.requests
            if request.method != "GET"
            and "/events" not in request.path
            and "dryRun" not in request.query
        ]

    def _create(self, resource, obj):
        return self.put(resource, obj)["metadata"]["uid"]


def event_reasons(api):
    """The reasons of the events, in order."""
    return [event["reason"] for event in api.objects.all(EVENTS).values()]


def full(api, **critical):
    """A node of two CPUs, two pods that take them, and a critical one that waits; its uid."""
    api.add_node()
    for name in ("v0", "v1"):
        api.add_pod(name)
    return api.add_critical(**critical)


def budget(api, name="of-all", *, allowed, labels=None):
    """A disruption budget that allows so many; without labels for all of the namespace."""
    manifest = objects.budget(name, 1, labels)
    manifest["metadata"]["namespace"] = "default"
    healthy = {"currentHealthy": 2, "desiredHealthy": 2, "expectedPods": 2}
    manifest["status"] = {"observedGeneration": 1, "disruptionsAllowed": allowed, **healthy}
    api.put(DISRUPTION_BUDGETS, manifest)


async def until(condition, patience=PATIENCE):
    """Wait until a condition holds."""
    end = time.monotonic() + patience
    while not (value := condition()):
        assert time.monotonic() < end, "not so in time"
        await asyncio.sleep(0.005)
    return value


@contextlib.asynccontextmanager
async def leading(part):
    """Let a rescheduler mirror and lead."""
    (controller,) = part.controllers
    runs = [*part.background, *(reflector.run for reflector in controller.reflectors)]
    tasks = [asyncio.create_task(run()) for run in runs]
    lead = asyncio.create_task(controller.lead())
    try:
        yield lead
    finally:
        for task in (lead, *tasks):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
