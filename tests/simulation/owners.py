"""The controllers of Deployments, ReplicaSets and StatefulSets."""

from __future__ import annotations

import asyncio
from functools import partial

from harbourmaster.api import resources as kinds
from helpers.fake_store import StatusError
from simulation.server import (
    REVISION,
    digest,
    is_of,
    is_ready,
    labels_of,
    name_of,
    namespace_of,
    reference,
    resource_of,
    revision_of,
)

REVISION_HASH = "controller-revision-hash"
DESIRED = "deployment.kubernetes.io/desired-replicas"
HISTORY = 1
"""Former ReplicaSets or ControllerRevisions that are kept of each owner."""


class PodOwners:
    """Creates and deletes pods; ``syncs`` has the function that reconciles each kind."""

    def __init__(self, cluster, server, chance):
        self._cluster = cluster
        self._server = server
        self._chance = chance
        self._making = set()
        self._numbers = 0
        self.syncs = {
            kinds.DEPLOYMENTS: self._sync_deployment,
            kinds.REPLICA_SETS: self._sync_replica_set,
            kinds.STATEFUL_SETS: self._sync_stateful_set,
        }

    def _sync_deployment(self, deployment):
        metadata, spec = deployment["metadata"], deployment["spec"]
        if "deletionTimestamp" in metadata:
            return
        server, namespace = self._server, metadata["namespace"]
        name = f"{metadata['name']}-{digest(spec['template'])}"
        replica_sets = server.every(kinds.REPLICA_SETS, namespace)
        owned = [obj for obj in replica_sets if is_of(obj, metadata["uid"])]
        newest = max(map(revision_of, owned), default=0)
        current = next((obj for obj in owned if name_of(obj) == name), None)
        if current is None:
            current = self._server.make(
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
                        "ownerReferences": [reference(deployment)],
                    },
                    "spec": {**spec, "replicas": _room(deployment, owned)},
                },
            )
            newest += 1
            owned.append(current)
        elif revision_of(current) < newest:
            newest += 1
            server.change(kinds.REPLICA_SETS, current, partial(_annotate, REVISION, str(newest)))
        for replica_set in owned:
            annotations = replica_set["metadata"].get("annotations") or {}
            if annotations.get(DESIRED) != str(spec["replicas"]):
                annotate = partial(_annotate, DESIRED, str(spec["replicas"]))
                server.change(kinds.REPLICA_SETS, replica_set, annotate)
        self._roll_over(deployment, current, [obj for obj in owned if obj is not current])
        idle = [
            obj
            for obj in owned
            if name_of(obj) != name and not obj["spec"]["replicas"] and not self._pods_of(obj)
        ]
        for replica_set in sorted(idle, key=revision_of)[:-HISTORY]:
            server.objects.delete(kinds.REPLICA_SETS, namespace, name_of(replica_set))
        if (metadata.get("annotations") or {}).get(REVISION) != str(newest):
            server.change(kinds.DEPLOYMENTS, deployment, partial(_annotate, REVISION, str(newest)))
        available = _available(current)
        self._server.set_status(kinds.DEPLOYMENTS, deployment, availableReplicas=available)

    def _roll_over(self, deployment, current, former):
        """Scale the newest ReplicaSet up and the former ones down."""
        spec, server = deployment["spec"], self._server
        kept = min(current["spec"]["replicas"], spec["replicas"])
        replicas = max(kept, _room(deployment, former))
        if current["spec"]["replicas"] != replicas:
            server.change(kinds.REPLICA_SETS, current, partial(_scale, replicas))
        available = _available(current)
        surplus = available + sum(map(_available, former)) - spec["replicas"]
        for replica_set in former:
            # Pods of former ReplicaSets that are not available are scaled down first.
            more = max(min(surplus, _available(replica_set)), 0)
            surplus -= more
            replicas = min(replica_set["spec"]["replicas"], _available(replica_set) - more)
            if _surge(deployment) is None and available < spec["replicas"]:
                replicas = replica_set["spec"]["replicas"] if _available(replica_set) else 0
            if replica_set["spec"]["replicas"] != replicas:
                server.change(kinds.REPLICA_SETS, replica_set, partial(_scale, replicas))

    def _sync_replica_set(self, replica_set):
        metadata, spec = replica_set["metadata"], replica_set["spec"]
        if "deletionTimestamp" in metadata:
            return None
        pods = self._pods_of(replica_set)
        surplus = len(pods) - spec["replicas"]
        if surplus > 0:
            # Waiting pods first, like Kubernetes.
            for pod in sorted(pods, key=lambda pod: (is_ready(pod), name_of(pod)))[:surplus]:
                self._cluster.delete_pod(pod)
        self._server.set_status(
            kinds.REPLICA_SETS,
            replica_set,
            replicas=len(pods),
            readyReplicas=sum(map(is_ready, pods)),
            availableReplicas=sum(map(is_ready, pods)),
        )
        return self._fill(replica_set, -surplus) if surplus < 0 else None

    async def _fill(self, replica_set, count):
        metadata = replica_set["metadata"]
        for _ in range(count):
            if not await self._make_pod(replica_set, f"{metadata['name']}-{self._number()}", {}):
                self._later(kinds.REPLICA_SETS, replica_set)
                return

    def _sync_stateful_set(self, stateful_set):
        metadata, spec = stateful_set["metadata"], stateful_set["spec"]
        if "deletionTimestamp" in metadata:
            return None
        revision = f"{metadata['name']}-{digest(spec['template'])}"
        pods = {name_of(pod): pod for pod in self._pods_of(stateful_set)}
        used = {labels_of(pod).get(REVISION_HASH) for pod in pods.values()} | {revision}
        self._keep_revisions(stateful_set, revision, used)
        wanted = [f"{metadata['name']}-{number}" for number in range(spec["replicas"])]
        for name in sorted(set(pods) - set(wanted)):
            self._cluster.delete_pod(pods.pop(name))
        updated = [name for name in pods if labels_of(pods[name]).get(REVISION_HASH) == revision]
        self._server.set_status(
            kinds.STATEFUL_SETS,
            stateful_set,
            replicas=len(pods),
            readyReplicas=sum(map(is_ready, pods.values())),
            availableReplicas=sum(map(is_ready, pods.values())),
            updatedReplicas=len(updated),
            currentRevision=revision if len(updated) == len(wanted) else "",
            updateRevision=revision,
        )
        missing = [name for name in wanted if name not in pods]
        if missing:
            return self._fill_set(stateful_set, missing, revision)
        if all(is_ready(pods[name]) for name in updated):
            for name in reversed(wanted):
                if name not in updated:
                    self._cluster.delete_pod(pods[name])
                    break
        return None

    def _keep_revisions(self, stateful_set, current, used):
        """Store the ControllerRevision of a StatefulSet, and delete the oldest unused ones."""
        namespace, server = namespace_of(stateful_set), self._server
        revisions = {
            name_of(obj): obj
            for obj in server.every(kinds.CONTROLLER_REVISIONS, namespace)
            if is_of(obj, stateful_set["metadata"]["uid"])
        }
        number = 1 + max((obj["revision"] for obj in revisions.values()), default=0)
        if current not in revisions:
            metadata = {
                "name": current,
                "namespace": namespace,
                "annotations": stateful_set["metadata"].get("annotations") or {},
                "ownerReferences": [reference(stateful_set)],
            }
            data = {"spec": {"template": stateful_set["spec"]["template"]}}
            made = {"metadata": metadata, "data": data, "revision": number}
            server.make(kinds.CONTROLLER_REVISIONS, made)
        elif revisions[current]["revision"] < number - 1:
            server.change(
                kinds.CONTROLLER_REVISIONS,
                revisions[current],
                lambda obj: obj.update(revision=number),
            )
        unused = [obj for name, obj in revisions.items() if name not in used]
        for obj in sorted(unused, key=lambda obj: obj["revision"])[:-HISTORY]:
            server.objects.delete(kinds.CONTROLLER_REVISIONS, namespace, name_of(obj))

    async def _fill_set(self, stateful_set, names, revision):
        for name in names:
            if not await self._make_pod(stateful_set, name, {REVISION_HASH: revision}):
                self._later(kinds.STATEFUL_SETS, stateful_set)
                return

    def _later(self, resource, obj):
        """Reconcile again later, after a refusal."""
        asyncio.get_running_loop().call_later(
            self._chance.uniform(1, 10), partial(self._cluster.wake, resource, obj)
        )

    async def _make_pod(self, owner, name, labels):
        """Create a pod of an owner's template through admission; return whether it was possible."""
        metadata = owner["metadata"]
        key = (metadata["namespace"], name)
        template = owner["spec"]["template"]
        if self._server.find_object(kinds.PODS, key) is not None or key in self._making:
            return True
        self._making.add(key)
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
            pod = await self._cluster.admit(pod)
            present = self._server.find_object(resource_of(owner), (key[0], metadata["name"]))
            if present is None or present["metadata"]["uid"] != metadata["uid"]:
                return True
            self._server.check_namespace(key[0])
            self._server.make(kinds.PODS, pod)
        except StatusError:
            return False
        finally:
            self._making.discard(key)
        return True

    def _pods_of(self, owner):
        uid = owner["metadata"]["uid"]
        return [
            obj
            for resource, obj in self._server.owned(uid)
            if resource == kinds.PODS and is_of(obj, uid)
        ]

    def is_outdated(self, pod):
        """Return whether the owner of a pod replaces it when newer pods are ready."""
        owner = pod["metadata"]["ownerReferences"][0]
        key = (namespace_of(pod), owner["name"])
        if owner["kind"] == "StatefulSet":
            stateful_set = self._server.find_object(kinds.STATEFUL_SETS, key)
            return (
                labels_of(pod).get(REVISION_HASH)
                != f"{name_of(stateful_set)}-{digest(stateful_set['spec']['template'])}"
            )
        replica_set = self._server.find_object(kinds.REPLICA_SETS, key)
        above = replica_set["metadata"]["ownerReferences"][0]["name"]
        deployment = self._server.find_object(kinds.DEPLOYMENTS, (key[0], above))
        return revision_of(replica_set) < revision_of(deployment)

    def _number(self):
        self._numbers += 1
        return f"{self._numbers:05d}"


def _available(replica_set):
    return replica_set.get("status", {}).get("availableReplicas", 0)


def _surge(deployment):
    strategy = deployment["spec"].get("strategy") or {}
    return strategy.get("rollingUpdate", {}).get("maxSurge")


def _room(deployment, former):
    """Return how many pods the newest ReplicaSet may have beside those of the former ones."""
    replicas, surge = deployment["spec"]["replicas"], _surge(deployment)
    if surge is None:
        return replicas
    return max(min(replicas, replicas + surge - sum(rs["spec"]["replicas"] for rs in former)), 0)


def _annotate(key, value, obj):
    obj["metadata"].setdefault("annotations", {})[key] = value


def _scale(replicas, obj):
    obj["spec"]["replicas"] = replicas
