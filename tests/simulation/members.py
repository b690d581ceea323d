"""Simulated member clusters: server-side apply, controllers, autoscalers, TTLs, slow answers."""

from __future__ import annotations

import json
from functools import partial
from types import SimpleNamespace

from harbourmaster.api import resources as kinds
from harbourmaster.api.resources import Resource
from helpers.api_rules import copy_json
from helpers.fake_store import Objects, StatusError
from simulation.connection import WRITES, Network, SimulatedClient
from simulation.server import SimulatedServer, digest

BOATS = Resource("example.com", "v1", "boats", "Boat")
PLACE = "default"
_IDENTITY = {("apiVersion",), ("kind",), ("metadata", "name"), ("metadata", "namespace")}
_SCALE = {"manager": "kube-controller-manager", "operation": "Update", "subresource": "scale"}
_REPLICAS = ("spec", "replicas")


class MemberObjects(Objects):
    """Objects with owners of fields. Lists and empty maps are values; each field is one path."""

    def patch(self, resource, namespace, name, body, content_type, query, *, subresource=None):  # noqa: PLR0913 - what HTTP gives
        if content_type != "application/apply-patch+yaml":
            return super().patch(
                resource, namespace, name, body, content_type, query, subresource=subresource
            )
        value, manager = json.loads(body), query["fieldManager"]
        current = self.all(resource).get((namespace, name))
        entries = current["metadata"].get("managedFields", ()) if current else ()
        is_ours = {"manager": manager, "operation": "Apply"}
        former = next((_owned(entry) for entry in entries if _is(entry, is_ours)), set())
        others = [entry for entry in entries if not _is(entry, is_ours)]
        wanted = dict(_leaves(value))
        fields = set(wanted) - _IDENTITY
        taken = {path for path in fields if current and _at(current, path) != wanted[path]}
        if query.get("force") != "true" and any(_owned(entry) & taken for entry in others):
            raise StatusError(409, "Apply failed with 1 conflict", "Conflict")
        others = [_entry(entry, _owned(entry) - taken) for entry in others]
        kept = set().union(*map(_owned, others))
        new = copy_json(current or {"metadata": {}})
        for path in former - fields - kept:
            _set(new, path, None)
        for path, field in wanted.items():
            _set(new, path, field)
        new["metadata"]["managedFields"] = [*filter(_owned, others), _entry(is_ours, fields)]
        if current is None:
            return self.create(resource, namespace, new)
        return self._update(resource, (namespace, name), current, new)

    def scale(self, resource, name, replicas):
        """Set the replicas through the subresource ``scale``, as an autoscaler does."""
        current = self.get(resource, PLACE, name)
        new = copy_json(current)
        if _at(new, _REPLICAS) == replicas:
            return
        _set(new, _REPLICAS, replicas)
        entries = [entry for entry in new["metadata"]["managedFields"] if not _is(entry, _SCALE)]
        others = [_entry(entry, _owned(entry) - {_REPLICAS}) for entry in entries]
        new["metadata"]["managedFields"] = [*others, _entry(_SCALE, {_REPLICAS})]
        self._update(resource, (PLACE, name), current, new)


class Member(SimulatedServer):
    """A member cluster. ``mode`` says how it answers: well, slow, late or never.

    ``late``: some writes take effect, and their answers never come.
    """

    def __init__(self, simulation, name):
        super().__init__()
        self.objects = MemberObjects(
            self._notify_watches, now=simulation.now, uid=simulation.uid, rules=True
        )
        self.name = name
        self.mode = "well"
        self.targets = {}
        """The replicas that autoscalers want, by Deployment."""
        self.finished = set()
        """The name and manifest of each Job that finished."""
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
            if self.targets.get(obj["metadata"]["name"], _at(obj, _REPLICAS)) != _at(
                obj, _REPLICAS
            ):
                soon(self.autoscale, obj["metadata"]["name"])
        elif resource == BOATS and not obj.get("status"):
            soon(self._set_status, BOATS, obj, {"health": "launching"})
            self._simulation.later(30, self._set_status, BOATS, obj, {"health": "green"})
        elif resource == kinds.JOBS and change.before is None:
            soon(self._finish, obj)

    def autoscale(self, name):
        """Set a Deployment to the target of its autoscaler, if both are there."""
        if name in self.targets and (PLACE, name) in self.objects.all(kinds.DEPLOYMENTS):
            self.objects.scale(kinds.DEPLOYMENTS, name, self.targets[name])

    def _report(self, obj):
        current = self.find_object(kinds.DEPLOYMENTS, (PLACE, obj["metadata"]["name"]))
        if current is not None:
            count = _at(current, _REPLICAS)
            fields = dict.fromkeys(("replicas", "updatedReplicas", "availableReplicas"), count)
            self.set_status(kinds.DEPLOYMENTS, current, **fields)

    def _set_status(self, resource, obj, status):
        self.change(resource, obj, lambda current: current.update(status=status), "status")

    def _finish(self, obj):
        done = {"conditions": [{"type": "Complete", "status": "True"}]}
        self._set_status(kinds.JOBS, obj, done)
        name, spec = obj["metadata"]["name"], obj["spec"]
        self.finished.add((name, digest(spec)))
        self._simulation.later(spec["ttlSecondsAfterFinished"], self._expire, obj)

    def _expire(self, obj):
        key = (PLACE, obj["metadata"]["name"])
        current = self.find_object(kinds.JOBS, key)
        if current is not None and current["metadata"]["uid"] == obj["metadata"]["uid"]:
            self.objects.delete(kinds.JOBS, *key)


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


def _is(entry, wanted):
    return all(entry.get(field) == wanted.get(field) for field in _SCALE)


def _leaves(value, path=()):
    if isinstance(value, dict) and value:
        for field, part in value.items():
            yield from _leaves(part, (*path, field))
    else:
        yield path, value


def _owned(entry):
    return {
        tuple(part.removeprefix("f:") for part in path)
        for path, _ in _leaves(entry["fieldsV1"])
        if path
    }


def _entry(entry, paths):
    """An entry of ``managedFields`` with these fields."""
    fields = {}
    for path in sorted(paths):
        below = fields
        for part in path:
            below = below.setdefault(f"f:{part}", {})
    return {**{field: entry[field] for field in _SCALE if field in entry}, "fieldsV1": fields}


def _at(obj, path):
    for part in path:
        obj = obj.get(part) if isinstance(obj, dict) else None
    return obj


def _set(obj, path, value):
    *parents, last = path
    for part in parents:
        obj = obj.setdefault(part, {})
    if value is None:
        obj.pop(last, None)
    else:
        obj[last] = value
