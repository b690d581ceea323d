"""Simulated member clusters: server-side apply, controllers, autoscalers, TTLs, slow answers."""

from __future__ import annotations

import asyncio
from functools import partial
from types import SimpleNamespace

from harbourmaster.api import resources as kinds
from harbourmaster.api.resources import Resource
from helpers.field_owners import PLACE, REPLICAS, AppliedObjects, at
from simulation.connection import WRITES, Network, SimulatedClient
from simulation.server import SimulatedServer, digest

BOATS = Resource("example.com", "v1", "boats", "Boat")
TTL = ("spec", "ttlSecondsAfterFinished")


class Member(SimulatedServer):
    """A member cluster. ``mode`` says how it answers: well, slow, late or never.

    ``late``: some writes take effect, and their answers never come.
    """

    def __init__(self, simulation, name):
        super().__init__()
        self.objects = AppliedObjects(
            self._notify_watches, now=simulation.now, uid=simulation.uid, rules=True
        )
        self.name = name
        self.mode = "well"
        self.targets = {}
        """The replicas that autoscalers want, by Deployment."""
        self.finished = set()
        """The work of each Job that finished."""
        self._ends = {}
        """The times at which Jobs finished, by UID."""
        self.requests = 0
        """Writes that were asked for, whether or not they changed anything."""
        self._simulation = simulation
        self._chance = simulation.chance
        self._network = Network(self, self, self._count)
        self._replica = SimpleNamespace(is_dead=False, identity=name, while_alive=_wait)
        self.define(BOATS)
        self.listeners.append(self._react)
        node = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        self.make(kinds.NAMESPACES, {"metadata": {"name": PLACE}})
        self.objects._keep(kinds.NODES, ("", "n"), None, _new(kinds.NODES, "n", **node))

    def client(self, **options):
        """The product's client of this cluster."""
        return SimulatedClient(self._network, self._replica, **options)

    # What the network asks

    def of(self, _replica, seen):
        """Return the fault of a request."""
        if self.mode == "never":
            return "hangs before"
        is_lost = self.mode == "late" and seen.verb in WRITES and self._chance.random() < 0.5
        return "hangs after" if is_lost else None

    def latency(self):
        return self._chance.uniform(0.5, 2.2) if self.mode == "slow" else 0.001

    def watch_delay(self, _replica, _resource):
        return self._chance.uniform(1, 40) if self.mode in {"slow", "late"} else 0.01

    def is_cut_off(self, _replica):
        return False

    def _count(self, _replica, seen, _code, _more):
        self.requests += seen.verb in WRITES

    # What its controllers do

    def _react(self, change):
        resource, obj = change.resource, change.after
        if obj is None or "deletionTimestamp" in obj["metadata"]:
            return
        soon = partial(self._simulation.later, self._chance.uniform(0.5, 20))
        if resource == kinds.DEPLOYMENTS:
            soon(self._report, obj)
            if self.targets.get(obj["metadata"]["name"], at(obj, REPLICAS)) != at(obj, REPLICAS):
                soon(self.autoscale, obj["metadata"]["name"])
        elif resource == BOATS and not obj.get("status"):
            soon(self._set_status, BOATS, obj, {"health": "launching"})
            self._simulation.later(30, self._set_status, BOATS, obj, {"health": "green"})
        elif resource == kinds.JOBS:
            if change.before is None:
                soon(self._finish, obj)
            ttl, end = at(obj, TTL), self._ends.get(obj["metadata"]["uid"])
            if ttl is not None and end is not None:
                now = asyncio.get_running_loop().time()
                self._simulation.later(max(end + ttl - now, 0), self._expire, obj)

    def autoscale(self, name):
        """Set a Deployment to the target of its autoscaler, if both are there."""
        if name in self.targets and (PLACE, name) in self.objects.all(kinds.DEPLOYMENTS):
            self.objects.scale(kinds.DEPLOYMENTS, name, self.targets[name])

    def _report(self, obj):
        current = self.find_object(kinds.DEPLOYMENTS, (PLACE, obj["metadata"]["name"]))
        if current is not None:
            count = at(current, REPLICAS)
            fields = dict.fromkeys(("replicas", "updatedReplicas", "availableReplicas"), count)
            self.set_status(kinds.DEPLOYMENTS, current, **fields)

    def _set_status(self, resource, obj, status):
        self.change(resource, obj, lambda current: current.update(status=status), "status")

    def _finish(self, obj):
        self._ends[obj["metadata"]["uid"]] = asyncio.get_running_loop().time()
        done = {"conditions": [{"type": "Complete", "status": "True"}]}
        self._set_status(kinds.JOBS, obj, done)
        self.finished.add(work_of(obj))

    def _expire(self, obj):
        key = (PLACE, obj["metadata"]["name"])
        current = self.find_object(kinds.JOBS, key)
        if current is not None and current["metadata"]["uid"] == obj["metadata"]["uid"]:
            self.objects.delete(kinds.JOBS, *key)


def work_of(job):
    """Return the name of a Job and what it does, whenever it is removed."""
    spec = {field: value for field, value in job["spec"].items() if field != TTL[-1]}
    return job["metadata"]["name"], digest(spec)


async def _wait(waiting):
    await waiting


def _new(resource, name, **fields):
    metadata = {"name": name, "uid": f"uid-{name}", "generation": 1}
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": metadata,
        **fields,
    }
