"""What else there is in a cluster: its controllers, a scheduler, a kubelet, and admission.

They act on the API server's objects directly, each a seeded moment after what it reacts to. How a
Job ends is said by the name of its definition, so that the truth about checks is known here.
"""

from __future__ import annotations

import asyncio
import base64
import json
from functools import partial

import jsonpatch
import msgspec

from harbourmaster.api import resources as kinds
from helpers.api_rules import gate_names
from helpers.fake_store import StatusError
from simulation.owners import PodOwners
from simulation.server import KINDS, is_of, name_of, namespace_of

GATE = "keptn-prechecks-gate"
HOLD = "example.com/hold"
"""A gate of somebody else, who takes it away after a while."""
GATES_LABEL = "gates.harbourmaster.dev/enabled"
SLOW, FAILS = "slow", "fail"
"""How the names of definitions begin whose Jobs take minutes, or fail."""


class Cluster:
    """The parts of a cluster, and what they know: ``passed`` has the checks whose Jobs succeeded.

    Each of them is (uid of the version, when, definition).
    """

    def __init__(self, simulation, server, chance):
        self._simulation = simulation
        self._server = server
        self._chance = chance
        self.owners = PodOwners(self, server, chance)
        self._planned = set()
        self._uids = {}
        self.passed = set()
        self.expired = set()
        """Uids of Jobs that went after their time."""
        self.ended = {}
        """By the uid of a Job, whether it succeeded."""
        self._syncs = {
            **self.owners.syncs,
            kinds.JOBS: self._sync_job,
            kinds.NAMESPACES: self._sync_namespace,
        }
        server.listeners.append(self._changed)

    # What wakes whom

    def _changed(self, change):
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
                found = self._server.find_object(of_kind, key)
                if found is not None:
                    self.wake(of_kind, found)
        if resource == kinds.PODS and change.after is not None:
            self._pod_changed(change.after)

    def wake(self, resource, obj):
        """Have the controller of a kind look at an object soon."""
        metadata = obj["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        self._soon(partial(self._sync, resource, key), (resource.kind, *key), 0.5)

    def _soon(self, act, mark, most):
        """Act once within ``most`` seconds, however often that is asked for meanwhile."""
        if mark in self._planned:
            return
        self._planned.add(mark)
        delay = self._chance.uniform(0.01, most)

        def run():
            self._planned.discard(mark)
            try:
                found = act()
            except StatusError:
                return
            if found is not None:
                self._simulation.background(found)

        asyncio.get_running_loop().call_later(delay, run)

    def _sync(self, resource, key):
        found = self._server.find_object(resource, key)
        return self._syncs[resource](found) if found is not None else None

    # Pods

    async def admitted(self, pod):
        """A pod as the webhook would have it. Raises StatusError."""
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
            self._simulation.invariants.reviewed(pod, [], webhook)
            return pod
        operations = json.loads(base64.b64decode(answer["patch"]))
        self._simulation.invariants.reviewed(pod, operations, webhook)
        return jsonpatch.apply_patch(pod, operations)

    def _pod_changed(self, pod):
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
            self._soon(partial(self._run, pod), ("run", uid), 5)

    def _unhold(self, pod):
        def remove(found):
            gates = [gate for gate in found["spec"]["schedulingGates"] if gate["name"] != HOLD]
            found["spec"]["schedulingGates"] = gates

        self._server.change(kinds.PODS, pod, remove)

    def _bind(self, pod):
        def bind(found):
            if gate_names(found["spec"]):
                raise StatusError(409, "the pod has scheduling gates")
            found["spec"]["nodeName"] = f"node-{self._chance.randint(1, 5)}"

        # As the binding does, which no rule for updates is for.
        found = self._server.find_object(kinds.PODS, (namespace_of(pod), name_of(pod)))
        if found is None or found["metadata"]["uid"] != pod["metadata"]["uid"]:
            return
        changed = json.loads(json.dumps(found))
        bind(changed)
        self._server.objects._keep(kinds.PODS, (namespace_of(pod), name_of(pod)), found, changed)

    def _run(self, pod):
        ready = [{"type": "Ready", "status": "True"}]

        def run(found):
            found["status"] = {"phase": "Running", "conditions": ready}

        self._server.change(kinds.PODS, pod, run, "status")

    def delete_pod(self, pod):
        """Delete a pod as its kubelet and its owner do."""
        self._server.objects.delete(kinds.PODS, namespace_of(pod), name_of(pod))

    # Jobs

    def _sync_job(self, found):
        metadata = found["metadata"]
        uid = metadata["uid"]
        if uid in self.ended:
            ttl = found["spec"].get("ttlSecondsAfterFinished")
            if ttl is not None and ("ttl", uid) not in self._planned:
                self._planned.add(("ttl", uid))
                asyncio.get_running_loop().call_later(ttl, self._expire, found)
            return
        mark = ("job", uid)
        if mark not in self._planned:
            self._planned.add(mark)
            task = self._task_of(found)
            name = task["spec"]["taskDefinition"] if task is not None else ""
            least, most = (60, 200) if name.startswith(SLOW) else (0.5, 8)
            loop = asyncio.get_running_loop()
            loop.call_later(self._chance.uniform(least, most), self._end_job, found, name)

    def _end_job(self, job, definition):
        succeeded = not definition.startswith(FAILS)
        task = self._task_of(job)
        condition = {"type": "Complete" if succeeded else "Failed", "status": "True"}

        def end(found):
            found["status"] = {"conditions": [condition]}

        # Before anybody can know.
        uid = job["metadata"]["uid"]
        found = self._server.find_object(kinds.JOBS, (namespace_of(job), name_of(job)))
        if found is None or found["metadata"]["uid"] != uid:
            return
        self.ended[uid] = succeeded
        if succeeded and task is not None:
            spec = task["spec"]
            for owner in task["metadata"].get("ownerReferences", ()):
                self.passed.add((owner["uid"], spec["checkType"], spec["taskDefinition"]))
        self._server.change(kinds.JOBS, job, end, "status")

    def _expire(self, job):
        found = self._server.find_object(kinds.JOBS, (namespace_of(job), name_of(job)))
        if found is not None and found["metadata"]["uid"] == job["metadata"]["uid"]:
            self.expired.add(job["metadata"]["uid"])
            self._server.objects.delete(kinds.JOBS, namespace_of(job), name_of(job))

    def _task_of(self, job):
        for owner in job["metadata"].get("ownerReferences", ()):
            found = self._server.find_object(kinds.TASKS, (namespace_of(job), owner["name"]))
            if found is not None and found["metadata"]["uid"] == owner["uid"]:
                return found
        return None

    # Garbage

    def _collect(self, uid):
        """Delete what an object owned that is gone."""
        for resource in list(KINDS.values()):
            for each in self._server.every(resource):
                if is_of(each, uid, any_owner=True) and not self._has_owner(each):
                    key = (each["metadata"].get("namespace", ""), each["metadata"]["name"])
                    self._server.objects.delete(resource, *key)

    def _orphan(self, resource, obj):
        """Delete what was created for an owner that was gone by then."""
        key = (obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        found = self._server.find_object(resource, key)
        if found is not None and found["metadata"]["uid"] == obj["metadata"]["uid"]:
            owners = found["metadata"].get("ownerReferences")
            if owners and not self._has_owner(found):
                self._server.objects.delete(resource, *key)

    def _has_owner(self, obj):
        return any(
            reference["uid"] in self._uids
            for reference in obj["metadata"].get("ownerReferences", ())
        )

    def _sync_namespace(self, found):
        if "deletionTimestamp" not in found["metadata"]:
            return
        name = found["metadata"]["name"]
        for resource in list(KINDS.values()):
            if resource.namespaced:
                for each in self._server.every(resource, name):
                    self._server.objects.delete(resource, name, each["metadata"]["name"])
        self._server.change(kinds.NAMESPACES, found, lambda one: one["metadata"].pop("finalizers"))
