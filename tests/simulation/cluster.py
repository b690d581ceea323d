"""The other parts of a cluster: controllers, a scheduler, a kubelet, and admission.

They change the API server's objects directly, a seeded time after the change to which they react.
The name of a definition determines how its Jobs end.
"""

from __future__ import annotations

import asyncio
import base64
import json
from functools import partial

import jsonpatch
import msgspec

from harbourmaster.api import resources as kinds
from harbourmaster.api.times import format_rfc3339
from helpers.api_rules import gate_names
from helpers.fake_store import StatusError
from simulation.clock import now
from simulation.owners import PodOwners
from simulation.server import KINDS, name_of, namespace_of

GATE = "keptn-prechecks-gate"
HOLD = "example.com/hold"
"""A gate of another owner, which removes it after some time."""
GATES_LABEL = "gates.harbourmaster.dev/enabled"
SLOW, FAILS = "slow", "fail"
"""Prefixes of definitions whose Jobs take minutes, or fail."""


class Cluster:
    """The parts of a cluster, which has so many ``nodes``.

    ``passed`` has the checks whose Jobs succeeded as (uid of the version, check type, definition).
    """

    def __init__(self, simulation, server, chance, nodes=5):
        self._simulation = simulation
        self._server = server
        self._chance = chance
        self._nodes = nodes
        self.owners = PodOwners(self, server, chance)
        self._planned = set()
        self._uids = {}
        self.passed = set()
        self.expired = set()
        """The UIDs of Jobs that were deleted after their TTL."""
        self.ended = {}
        """The UIDs of ended Jobs, with whether they succeeded."""
        self._syncs = {
            **self.owners.syncs,
            kinds.JOBS: self._sync_job,
            kinds.NAMESPACES: self._sync_namespace,
        }
        server.listeners.append(self._handle_change)

    # Reactions to changes

    def _handle_change(self, change):
        resource, obj = change.resource, change.after or change.before
        metadata = obj["metadata"]
        if change.after is None:
            self._uids.pop(metadata["uid"], None)
            self._soon(partial(self._collect, metadata["uid"]), ("gc", metadata["uid"]), 3)
        elif change.before is None:
            self._uids[metadata["uid"]] = None
            if metadata.get("ownerReferences"):
                self._soon(partial(self._orphan, resource, obj), ("orphan", metadata["uid"]), 5)
        if resource in self._syncs and change.after is not None:
            self.wake(resource, obj)
        for owner in metadata.get("ownerReferences") or ():
            of_kind = KINDS.get((owner["apiVersion"], owner["kind"]))
            if of_kind in self._syncs:
                key = (metadata.get("namespace", ""), owner["name"])
                owner_obj = self._server.find_object(of_kind, key)
                if owner_obj is not None:
                    self.wake(of_kind, owner_obj)
        if resource == kinds.PODS and change.after is not None:
            self._handle_pod(change.after)

    def wake(self, resource, obj):
        """Have the controller of a kind reconcile an object soon."""
        metadata = obj["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        self._soon(partial(self._sync, resource, key), (resource.kind, *key), 0.5)

    def _soon(self, act, mark, most):
        """Act once within ``most`` seconds, however often it is requested meanwhile."""
        if mark in self._planned:
            return
        self._planned.add(mark)
        delay = self._chance.uniform(0.01, most)

        def run():
            self._planned.discard(mark)
            try:
                coroutine = act()
            except StatusError:
                return
            if coroutine is not None:
                self._simulation.background(coroutine)

        asyncio.get_running_loop().call_later(delay, run)

    def _sync(self, resource, key):
        obj = self._server.find_object(resource, key)
        return self._syncs[resource](obj) if obj is not None else None

    # Pods

    async def admit(self, pod):
        """Return the pod after admission by the webhook. Raises StatusError."""
        metadata = pod["metadata"]
        namespace = self._server.objects.get(kinds.NAMESPACES, "", metadata["namespace"])
        if metadata["namespace"] in self._simulation.excluded:
            return pod
        webhook = self._simulation.webhook
        await asyncio.sleep(self._chance.uniform(0.001, 0.02))
        if not webhook.is_ready:
            if (namespace["metadata"].get("labels") or {}).get(GATES_LABEL):
                raise StatusError(500, "failed calling webhook")
            return pod
        review = {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {
                "uid": "1",
                "kind": {"group": "", "version": "v1", "kind": "Pod"},
                "resource": {"group": "", "version": "v1", "resource": "pods"},
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "operation": "CREATE",
                "object": pod,
            },
        }
        answer = msgspec.json.decode(await webhook.review(msgspec.json.encode(review)))["response"]
        if not answer["allowed"]:
            raise StatusError(403, "denied by the webhook")
        if "patch" not in answer:
            self._simulation.invariants.check_review(pod, [], webhook)
            return pod
        operations = json.loads(base64.b64decode(answer["patch"]))
        self._simulation.invariants.check_review(pod, operations, webhook)
        return jsonpatch.apply_patch(pod, operations)

    def _handle_pod(self, pod):
        uid, spec = pod["metadata"]["uid"], pod["spec"]
        if "deletionTimestamp" in pod["metadata"]:
            return
        if gate_names(spec):
            if HOLD in gate_names(spec):
                self._soon(partial(self._unhold, pod), ("unhold", uid), 20)
            return
        if not spec.get("nodeName"):
            self._soon(partial(self._bind, pod), ("bind", uid), 2)
        elif pod["status"]["phase"] == "Pending":
            # Some deployments are done after their time-out.
            self._soon(partial(self._run, pod), ("run", uid), self._chance.choice((5, 5, 60)))

    def _unhold(self, pod):
        def remove(current):
            gates = [gate for gate in current["spec"]["schedulingGates"] if gate["name"] != HOLD]
            current["spec"]["schedulingGates"] = gates

        self._server.change(kinds.PODS, pod, remove)

    def _bind(self, pod):
        def bind(current):
            if gate_names(current["spec"]):
                raise StatusError(409, "the pod has scheduling gates")
            current["spec"]["nodeName"] = f"node-{self._chance.randint(1, self._nodes)}"

        # Like a Binding, which skips the rules for updates.
        current = self._server.find_object(kinds.PODS, (namespace_of(pod), name_of(pod)))
        if current is None or current["metadata"]["uid"] != pod["metadata"]["uid"]:
            return
        changed = json.loads(json.dumps(current))
        bind(changed)
        self._server.objects._keep(kinds.PODS, (namespace_of(pod), name_of(pod)), current, changed)

    def _run(self, pod):
        since = format_rfc3339(now())
        ready = [{"type": "Ready", "status": "True", "lastTransitionTime": since}]

        def run(current):
            current["status"] = {"phase": "Running", "conditions": ready}

        self._server.change(kinds.PODS, pod, run, "status")

    def delete_pod(self, pod):
        """Delete a pod, as its kubelet and its owner do."""
        self._server.objects.delete(kinds.PODS, namespace_of(pod), name_of(pod))

    # Jobs

    def _sync_job(self, job):
        metadata = job["metadata"]
        uid = metadata["uid"]
        if uid in self.ended:
            ttl = job["spec"].get("ttlSecondsAfterFinished")
            if ttl is not None and ("ttl", uid) not in self._planned:
                self._planned.add(("ttl", uid))
                asyncio.get_running_loop().call_later(ttl, self._expire, job)
            return
        mark = ("job", uid)
        if mark not in self._planned:
            self._planned.add(mark)
            task = self._task_of(job)
            name = task["spec"]["taskDefinition"] if task is not None else ""
            least, most = (60, 200) if name.startswith(SLOW) else (0.5, 8)
            loop = asyncio.get_running_loop()
            loop.call_later(self._chance.uniform(least, most), self._end_job, job, name)

    def _end_job(self, job, definition):
        succeeded = not definition.startswith(FAILS)
        task = self._task_of(job)
        condition = {"type": "Complete" if succeeded else "Failed", "status": "True"}

        def end(current):
            current["status"] = {"conditions": [condition]}

        # Before any watcher can know.
        uid = job["metadata"]["uid"]
        current = self._server.find_object(kinds.JOBS, (namespace_of(job), name_of(job)))
        if current is None or current["metadata"]["uid"] != uid:
            return
        self.ended[uid] = succeeded
        if succeeded and task is not None:
            spec = task["spec"]
            for owner in task["metadata"].get("ownerReferences", ()):
                self.passed.add((owner["uid"], spec["checkType"], spec["taskDefinition"]))
        self._server.change(kinds.JOBS, job, end, "status")

    def _expire(self, job):
        current = self._server.find_object(kinds.JOBS, (namespace_of(job), name_of(job)))
        if current is not None and current["metadata"]["uid"] == job["metadata"]["uid"]:
            self.expired.add(job["metadata"]["uid"])
            self._server.objects.delete(kinds.JOBS, namespace_of(job), name_of(job))

    def _task_of(self, job):
        for owner in job["metadata"].get("ownerReferences", ()):
            task = self._server.find_object(kinds.TASKS, (namespace_of(job), owner["name"]))
            if task is not None and task["metadata"]["uid"] == owner["uid"]:
                return task
        return None

    # Garbage

    def _collect(self, uid):
        """Delete the objects whose owner ``uid`` was deleted."""
        for resource, obj in self._server.owned(uid):
            if not self._has_owner(obj):
                key = (obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
                self._server.objects.delete(resource, *key)

    def _orphan(self, resource, obj):
        """Delete an object that was created after the deletion of its owner."""
        key = (obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        current = self._server.find_object(resource, key)
        if current is not None and current["metadata"]["uid"] == obj["metadata"]["uid"]:
            owners = current["metadata"].get("ownerReferences")
            if owners and not self._has_owner(current):
                self._server.objects.delete(resource, *key)

    def _has_owner(self, obj):
        return any(
            reference["uid"] in self._uids
            for reference in obj["metadata"].get("ownerReferences", ())
        )

    def _sync_namespace(self, namespace):
        if "deletionTimestamp" not in namespace["metadata"]:
            return
        name = namespace["metadata"]["name"]
        for resource in list(KINDS.values()):
            if resource.namespaced:
                for obj in self._server.every(resource, name):
                    self._server.objects.delete(resource, name, obj["metadata"]["name"])
        self._server.change(
            kinds.NAMESPACES, namespace, lambda obj: obj["metadata"].pop("finalizers")
        )
