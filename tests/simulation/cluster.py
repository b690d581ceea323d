"""What else there is in a cluster: its controllers, a scheduler, a kubelet, and admission.

They act on the API server's objects directly, each a seeded moment after what it reacts to. How a
Job ends is said by the name of its definition, so that the truth about checks is known here.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from functools import partial

import jsonpatch
import msgspec

from harbourmaster.api import resources as kinds
from harbourmaster.gates.metadata import OPT_IN, OPT_IN_KEY
from helpers.api_rules import gate_names
from helpers.api_server import ApiServer
from helpers.fake_store import StatusError

GATE = "keptn-prechecks-gate"
HOLD = "example.com/hold"
"""A gate of somebody else, who takes it away after a while."""
GATES_LABEL = "gates.harbourmaster.dev/enabled"
REVISION = "deployment.kubernetes.io/revision"
REVISION_HASH = "controller-revision-hash"
SLOW, FAILS = "slow", "fail"
"""How the names of definitions begin whose Jobs take minutes, or fail."""
_KINDS = {(each.api_version, each.kind): each for each in vars(kinds).values()
          if isinstance(each, kinds.Resource)}  # fmt: skip


class SimulatedServer(ApiServer):
    """The API server; ``actor`` is the replica whose request is being answered, if it is one's."""

    def __init__(self, **options):
        self.listeners = []
        self.actor = None
        super().__init__(rules=True, **options)

    def _changed(self, change):
        super()._changed(change)
        for listen in self.listeners:
            listen(change)

    def _do(self, seen, resource, namespace, name, subresource):
        if seen.verb == "create" and resource.namespaced:
            self.check_namespace(namespace)
        if seen.verb == "delete" and resource == kinds.PODS:
            raise StatusError(403, "no process of ours may delete pods")
        return super()._do(seen, resource, namespace, name, subresource)

    def check_namespace(self, namespace):
        """Raise StatusError where nothing can be created in it."""
        found = self.objects.get(kinds.NAMESPACES, "", namespace)
        if "deletionTimestamp" in found["metadata"]:
            details = {"causes": [{"reason": "NamespaceTerminating", "message": "is terminating"}]}
            text = f"unable to create new content in namespace {namespace}: being terminated"
            raise StatusError(403, text, details=details)

    def find_object(self, resource, key):
        """An object by (namespace, name), or None."""
        return self.objects.all(resource).get(key)

    def every(self, resource, namespace=None):
        """The objects of a kind."""
        return [
            each
            for (place, _), each in list(self.objects.all(resource).items())
            if namespace is None or place == namespace
        ]

    def change(self, resource, obj, change, subresource=None):
        """Have ``change`` called with a copy of an object as it is now, and store what it made."""
        metadata = obj["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        found = self.find_object(resource, key)
        if found is None or found["metadata"]["uid"] != metadata["uid"]:
            return None
        copied = json.loads(json.dumps(found))
        change(copied)
        return self.objects.replace(resource, *key, copied, subresource=subresource)


class Cluster:
    """The parts of a cluster, and what they know: ``passed`` has the checks whose Jobs succeeded.

    Each of them is (uid of the version, when, definition).
    """

    def __init__(self, simulation, server, chance):
        self._simulation = simulation
        self._server = server
        self._chance = chance
        self._planned = set()
        self._uids = {}
        self._numbers = 0
        self.passed = set()
        self.expired = set()
        """Uids of Jobs that went after their time."""
        self.ended = {}
        """By the uid of a Job, whether it succeeded."""
        self._syncs = {
            kinds.DEPLOYMENTS: self._sync_deployment,
            kinds.REPLICA_SETS: self._sync_replica_set,
            kinds.STATEFUL_SETS: self._sync_stateful_set,
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
            self._wake(resource, obj)
        for owner in metadata.get("ownerReferences") or ():
            of_kind = _KINDS.get((owner["apiVersion"], owner["kind"]))
            if of_kind in self._syncs:
                key = (metadata.get("namespace", ""), owner["name"])
                found = self._server.find_object(of_kind, key)
                if found is not None:
                    self._wake(of_kind, found)
        if resource == kinds.PODS and change.after is not None:
            self._pod_changed(change.after)

    def _wake(self, resource, obj):
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

    # Owners of pods

    def _sync_deployment(self, found):
        metadata, spec = found["metadata"], found["spec"]
        if "deletionTimestamp" in metadata:
            return
        server, namespace = self._server, metadata["namespace"]
        name = f"{metadata['name']}-{digest(spec['template'])}"
        owned = [each for each in server.every(kinds.REPLICA_SETS, namespace)
                 if _is_of(each, metadata["uid"])]  # fmt: skip
        newest = max((_revision(each) for each in owned), default=0)
        current = next((each for each in owned if each["metadata"]["name"] == name), None)
        if current is None:
            current = self._create(
                kinds.REPLICA_SETS,
                {
                    "metadata": {
                        "name": name,
                        "namespace": namespace,
                        "labels": spec["template"]["metadata"].get("labels", {}),
                        "annotations": {
                            **(metadata.get("annotations") or {}),
                            REVISION: str(newest + 1),
                        },
                        "ownerReferences": [reference(found)],
                    },
                    "spec": {**spec, "replicas": spec["replicas"]},
                },
            )
            newest += 1
        elif _revision(current) < newest:
            newest += 1
            server.change(kinds.REPLICA_SETS, current, partial(_annotate, REVISION, str(newest)))
        if current["spec"]["replicas"] != spec["replicas"]:
            server.change(kinds.REPLICA_SETS, current, partial(_scale, spec["replicas"]))
        available = current.get("status", {}).get("availableReplicas", 0)
        for each in owned:
            # Of those from before, what never got ready goes first.
            is_idle = not each.get("status", {}).get("availableReplicas", 0)
            is_over = is_idle or available >= spec["replicas"]
            if each["metadata"]["name"] != name and each["spec"]["replicas"] and is_over:
                server.change(kinds.REPLICA_SETS, each, partial(_scale, 0))
        if (metadata.get("annotations") or {}).get(REVISION) != str(newest):
            server.change(kinds.DEPLOYMENTS, found, partial(_annotate, REVISION, str(newest)))
        self._status(kinds.DEPLOYMENTS, found, availableReplicas=available)

    def _sync_replica_set(self, found):
        metadata, spec = found["metadata"], found["spec"]
        if "deletionTimestamp" in metadata:
            return None
        pods = self._pods_of(found)
        surplus = len(pods) - spec["replicas"]
        if surplus > 0:
            # Those that wait first, as the real one does.
            for each in sorted(pods, key=lambda pod: (_is_ready(pod), _name(pod)))[:surplus]:
                self.delete_pod(each)
        self._status(
            kinds.REPLICA_SETS,
            found,
            replicas=len(pods),
            readyReplicas=sum(map(_is_ready, pods)),
            availableReplicas=sum(map(_is_ready, pods)),
        )
        return self._fill(found, -surplus) if surplus < 0 else None

    async def _fill(self, found, count):
        metadata = found["metadata"]
        for _ in range(count):
            if not await self._make_pod(found, f"{metadata['name']}-{self._number()}", {}):
                self._later(kinds.REPLICA_SETS, found)
                return

    def _sync_stateful_set(self, found):
        metadata, spec = found["metadata"], found["spec"]
        if "deletionTimestamp" in metadata:
            return None
        revision = f"{metadata['name']}-{digest(spec['template'])}"
        pods = {_name(each): each for each in self._pods_of(found)}
        wanted = [f"{metadata['name']}-{number}" for number in range(spec["replicas"])]
        for name in sorted(set(pods) - set(wanted)):
            self.delete_pod(pods.pop(name))
        updated = [name for name in pods if _labels(pods[name]).get(REVISION_HASH) == revision]
        self._status(
            kinds.STATEFUL_SETS,
            found,
            replicas=len(pods),
            readyReplicas=sum(map(_is_ready, pods.values())),
            availableReplicas=sum(map(_is_ready, pods.values())),
            updatedReplicas=len(updated),
            currentRevision=revision if len(updated) == len(wanted) else "",
            updateRevision=revision,
        )
        missing = [name for name in wanted if name not in pods]
        if missing:
            return self._fill_set(found, missing, revision)
        if all(_is_ready(pods[name]) for name in updated):
            for name in reversed(wanted):
                if name not in updated:
                    self.delete_pod(pods[name])
                    break
        return None

    async def _fill_set(self, found, names, revision):
        for name in names:
            if not await self._make_pod(found, name, {REVISION_HASH: revision}):
                self._later(kinds.STATEFUL_SETS, found)
                return

    def _later(self, resource, obj):
        """Look again, as who was refused does."""
        asyncio.get_running_loop().call_later(
            self._chance.uniform(1, 10), partial(self._wake, resource, obj)
        )

    # Pods

    async def _make_pod(self, owner, name, labels):
        """Create a pod of an owner's template through admission; whether that was possible."""
        metadata = owner["metadata"]
        key = (metadata["namespace"], name)
        template = owner["spec"]["template"]
        mark = ("pod", *key)
        if self._server.find_object(kinds.PODS, key) is not None or mark in self._planned:
            return True
        self._planned.add(mark)
        given = template.get("metadata") or {}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                **({"annotations": given["annotations"]} if given.get("annotations") else {}),
                "name": name,
                "namespace": metadata["namespace"],
                "labels": {**given.get("labels", {}), **labels},
                "ownerReferences": [reference(owner)],
            },
            "spec": template["spec"],
        }
        try:
            self._server.check_namespace(key[0])
            pod = await self.admitted(pod)
            present = self._server.find_object(_resource(owner), (key[0], metadata["name"]))
            if present is None or present["metadata"]["uid"] != metadata["uid"]:
                return True
            self._server.check_namespace(key[0])
            self._create(kinds.PODS, pod)
        except StatusError:
            return False
        finally:
            self._planned.discard(mark)
        return True

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
            gates = [each for each in found["spec"]["schedulingGates"] if each["name"] != HOLD]
            found["spec"]["schedulingGates"] = gates

        self._server.change(kinds.PODS, pod, remove)

    def _bind(self, pod):
        def bind(found):
            if gate_names(found["spec"]):
                raise StatusError(409, "the pod has scheduling gates")
            found["spec"]["nodeName"] = f"node-{self._chance.randint(1, 5)}"

        # As the binding does, which no rule for updates is for.
        found = self._server.find_object(kinds.PODS, (_namespace(pod), _name(pod)))
        if found is None or found["metadata"]["uid"] != pod["metadata"]["uid"]:
            return
        changed = json.loads(json.dumps(found))
        bind(changed)
        self._server.objects._keep(kinds.PODS, (_namespace(pod), _name(pod)), found, changed)

    def _run(self, pod):
        ready = [{"type": "Ready", "status": "True"}]

        def run(found):
            found["status"] = {"phase": "Running", "conditions": ready}

        self._server.change(kinds.PODS, pod, run, "status")

    def delete_pod(self, pod):
        """Delete a pod as its kubelet and its owner do."""
        self._server.objects.delete(kinds.PODS, _namespace(pod), _name(pod))

    def _pods_of(self, owner):
        uid, namespace = owner["metadata"]["uid"], owner["metadata"]["namespace"]
        return [each for each in self._server.every(kinds.PODS, namespace) if _is_of(each, uid)]

    def is_outdated(self, pod):
        """Whether a pod's owner is about to replace it, once its newer ones are ready."""
        owner = pod["metadata"]["ownerReferences"][0]
        key = (_namespace(pod), owner["name"])
        if owner["kind"] == "StatefulSet":
            found = self._server.find_object(kinds.STATEFUL_SETS, key)
            return (
                _labels(pod).get(REVISION_HASH)
                != f"{_name(found)}-{digest(found['spec']['template'])}"
            )
        found = self._server.find_object(kinds.REPLICA_SETS, key)
        above = found["metadata"]["ownerReferences"][0]["name"]
        deployment = self._server.find_object(kinds.DEPLOYMENTS, (key[0], above))
        return _revision(found) < _revision(deployment)

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
        found = self._server.find_object(kinds.JOBS, (_namespace(job), _name(job)))
        if found is None or found["metadata"]["uid"] != uid:
            return
        self.ended[uid] = succeeded
        if succeeded and task is not None:
            spec = task["spec"]
            for owner in task["metadata"].get("ownerReferences", ()):
                self.passed.add((owner["uid"], spec["checkType"], spec["taskDefinition"]))
        self._server.change(kinds.JOBS, job, end, "status")

    def _expire(self, job):
        found = self._server.find_object(kinds.JOBS, (_namespace(job), _name(job)))
        if found is not None and found["metadata"]["uid"] == job["metadata"]["uid"]:
            self.expired.add(job["metadata"]["uid"])
            self._server.objects.delete(kinds.JOBS, _namespace(job), _name(job))

    def _task_of(self, job):
        for owner in job["metadata"].get("ownerReferences", ()):
            found = self._server.find_object(kinds.TASKS, (_namespace(job), owner["name"]))
            if found is not None and found["metadata"]["uid"] == owner["uid"]:
                return found
        return None

    # Garbage

    def _collect(self, uid):
        """Delete what an object owned that is gone."""
        for resource in list(_KINDS.values()):
            for each in self._server.every(resource):
                if _is_of(each, uid, any_owner=True) and not self._has_owner(each):
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
        return any(one["uid"] in self._uids for one in obj["metadata"].get("ownerReferences", ()))

    def _sync_namespace(self, found):
        if "deletionTimestamp" not in found["metadata"]:
            return
        name = found["metadata"]["name"]
        for resource in list(_KINDS.values()):
            if resource.namespaced:
                for each in self._server.every(resource, name):
                    self._server.objects.delete(resource, name, each["metadata"]["name"])
        self._server.change(kinds.NAMESPACES, found, lambda one: one["metadata"].pop("finalizers"))

    # Small things

    def _create(self, resource, obj):
        body = {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
        return self._server.objects.create(resource, obj["metadata"].get("namespace", ""), body)

    def _status(self, resource, found, **status):
        status["observedGeneration"] = found["metadata"]["generation"]
        if found.get("status") != status:

            def write(one):
                one["status"] = status

            self._server.change(resource, found, write, "status")

    def _number(self):
        self._numbers += 1
        return f"{self._numbers:05d}"


def opted_in(namespace):
    """Whether a namespace asks for gates."""
    annotations = (namespace or {}).get("metadata", {}).get("annotations") or {}
    return annotations.get(OPT_IN_KEY) == OPT_IN


def digest(value):
    """A few digits that follow from a value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:8]


def reference(obj):
    """The owner reference to an object."""
    return {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "name": obj["metadata"]["name"],
        "uid": obj["metadata"]["uid"],
        "controller": True,
    }


def _resource(obj):
    return _KINDS[obj["apiVersion"], obj["kind"]]


def _is_of(obj, uid, *, any_owner=False):
    return any(
        each["uid"] == uid and (any_owner or each.get("controller"))
        for each in obj["metadata"].get("ownerReferences") or ()
    )


def _is_ready(pod):
    return pod["status"]["phase"] == "Running"


def _revision(obj):
    return int((obj["metadata"].get("annotations") or {}).get(REVISION, 0))


def _annotate(key, value, obj):
    obj["metadata"].setdefault("annotations", {})[key] = value


def _scale(replicas, obj):
    obj["spec"]["replicas"] = replicas


def _labels(obj):
    return obj["metadata"].get("labels") or {}


def _name(obj):
    return obj["metadata"]["name"]


def _namespace(obj):
    return obj["metadata"]["namespace"]
