"""The invariants: what is true after each write, and when all has come to rest."""

from __future__ import annotations

from collections import defaultdict

import msgspec

from harbourmaster.api import resources as kinds
from harbourmaster.gates.metadata import (
    PARENT_KEY,
    READ_KEYS,
    REMOVED_KEY,
    UNRESOLVED,
)
from harbourmaster.gates.stages import STAGED_LABEL
from harbourmaster.gates.workload import workload_of
from harbourmaster.lifecycle.apps import version_of as version_of_app
from harbourmaster.lifecycle.model import App, AppVersion, Workload, WorkloadVersion
from harbourmaster.lifecycle.waiting import app_version_of
from harbourmaster.lifecycle.workloads import names_of_pod, recorded_owners, version_of
from helpers.api_rules import gate_names
from simulation.cluster import FAILS, GATE, GATES_LABEL
from simulation.replicas import LEASE, OWN_NAMESPACE
from simulation.server import is_of, opted_in
from simulation.stages import Stages
from simulation.versions import FINAL, Versions

DEFINITION_NAMESPACES = (OWN_NAMESPACE, "keptn-system")
GENERATED = {
    kinds.APP_CREATION_REQUESTS,
    kinds.APP_VERSIONS,
    kinds.APPS,
    kinds.EVALUATIONS,
    kinds.TASKS,
    kinds.WORKLOAD_VERSIONS,
    kinds.WORKLOADS,
}
"""Kinds that only the controller creates."""
STATUS_ONLY = {kinds.KEPTN_METRICS, kinds.METRICS_PROVIDERS, kinds.TASK_DEFINITIONS}
FREE = {kinds.EVENTS, kinds.LEASES}
"""Kinds that any replica writes."""
UNAWARE = 10.0
"""Seconds for which a leader continues whose Lease was deleted and recreated."""
OWN_PREFIXES = ("keptn.sh/", "gates.harbourmaster.dev/")
PATCHED_PATHS = (
    "/metadata/annotations",
    "/metadata/labels/gates.harbourmaster.dev~1staged",
    "/spec/affinity",
    "/spec/nodeName",
    "/spec/nodeSelector",
    "/spec/schedulerName",
    "/spec/schedulingGates",
    "/spec/tolerations",
)
"""The paths that admission may patch."""


class Invariants:
    """Checks each change, and reports a broken invariant to the simulation."""

    def __init__(self, simulation, server, cluster):
        self._server = server
        self._cluster = cluster
        self._violation = simulation.violation
        self._now = simulation.now
        self._children = {}
        # The marks of each child, by its uid.
        self._marks = defaultdict(list)
        self._jobs = {}
        self._created = {}
        # By namespace and name of an app: its deleted versions.
        self._former = defaultdict(list)
        self._leader = ""
        self._excused = 0.0
        self.met = {}
        """The last time at which a (namespace, metric) met its target; inf if it does."""
        self.missed = set()
        """Metrics that have missed their target, as (namespace, metric)."""
        self.released = 0
        self.stages = Stages(simulation, server)
        self._versions = Versions(simulation, server, self._is_blocked)
        server.listeners.append(self._check_change)

    # After each write

    def _check_change(self, change):
        resource, before, after = change.resource, change.before, change.after
        actor = self._server.actor
        if resource == kinds.LEASES and after is not None:
            # A deleted Lease still binds processes that have seen it.
            self._leader = after["spec"].get("holderIdentity") or ""
            if before is None and not actor.has_seen_lease:
                self._excused = self._now() + UNAWARE
        if after is None:
            self._forget(resource, before)
        elif before is None:
            self._created[after["metadata"]["uid"]] = self._now()
            self._note_child(resource, after)
        if actor is None:
            return
        if not actor.name.startswith("controller"):
            self._violation(f"{actor.identity} writes {_what(resource, after or before)}")
            return
        if resource not in FREE:
            self._check_leader(actor, resource, after or before)
        self._check_owned(resource, before, after)
        if after is None and resource in {kinds.APP_VERSIONS, kinds.WORKLOAD_VERSIONS}:
            self._check_collected(resource, before)
        is_pod = resource == kinds.PODS and before and after
        if is_pod and _is_gated(before) and not _is_gated(after):
            self.released += 1
            self._check_release(before)
            self.stages.check_release(after)

    def _check_leader(self, actor, resource, obj):
        holder = self._leader
        if not holder.startswith(f"{actor.identity}_") and self._now() > self._excused:
            self._violation(
                f"{actor.identity} writes {_what(resource, obj)}, but {holder or 'nobody'} leads"
            )

    def _note_child(self, resource, obj):
        """Check that no task and no Job is created again while the first one exists."""
        if resource in {kinds.TASKS, kinds.EVALUATIONS}:
            spec = obj["spec"]
            name = spec.get("taskDefinition") or spec.get("evaluationDefinition")
            for owner in obj["metadata"].get("ownerReferences", ()):
                mark = (resource.kind, owner["uid"], spec["checkType"], name)
                if mark in self._children:
                    self._violation(
                        f"{_what(resource, obj)} is the second for {name} of {owner['name']}"
                    )
                self._children[mark] = uid = obj["metadata"]["uid"]
                self._marks[uid].append(mark)
        if resource == kinds.JOBS:
            for owner in obj["metadata"].get("ownerReferences", ()):
                if owner["uid"] in self._jobs:
                    self._violation(f"{_what(resource, obj)} runs {owner['name']} again")
                self._jobs[owner["uid"]] = obj["metadata"]["uid"]

    def _forget(self, resource, obj):
        """Allow to recreate a deleted object, except a Job that its TTL deleted."""
        uid = obj["metadata"]["uid"]
        if resource == kinds.APP_VERSIONS:
            # Also by garbage collection, after its app has lost all workloads.
            self._former[obj["metadata"]["namespace"], obj["spec"]["appName"]].append(obj)
        for mark in self._marks.pop(uid, ()):
            if self._children.get(mark) == uid:
                del self._children[mark]
        if resource == kinds.JOBS:
            for owner in obj["metadata"].get("ownerReferences", ()):
                if uid not in self._cluster.expired:
                    self._jobs.pop(owner["uid"], None)

    def _check_owned(self, resource, before, after):
        if resource in GENERATED or resource in FREE:
            return
        obj = after or before
        if resource == kinds.PODS and before and after:
            self._check_pod(before, after)
        elif resource == kinds.NAMESPACES and before and after:
            changed = _changed_paths(before, after)
            if changed - {f"metadata/labels/{GATES_LABEL}", "metadata/labels"}:
                self._violation(f"{_what(resource, obj)}: {sorted(changed)} is not ours")
        elif resource in STATUS_ONLY and before and after:
            changed = {path.partition("/")[0] for path in _changed_paths(before, after)}
            if changed - {"status"}:
                self._violation(f"{_what(resource, obj)}: {sorted(changed)} is not ours")
        elif resource == kinds.JOBS and after:
            owners = [reference["kind"] for reference in obj["metadata"].get("ownerReferences", ())]
            changed = _changed_paths(before, after) if before else set()
            if owners != ["KeptnTask"] or changed - {"spec/ttlSecondsAfterFinished"}:
                self._violation(f"{_what(resource, obj)}: {sorted(changed)} is not ours")
        else:
            self._violation(f"{_what(resource, obj)} is not ours to write")

    def _check_pod(self, before, after):
        changed = _changed_paths(before, after)
        foreign = {
            path
            for path in changed
            if not path.startswith(
                tuple(f"metadata/annotations/{prefix}" for prefix in OWN_PREFIXES)
            )
            and path
            not in {
                "metadata/annotations",
                "metadata/labels",
                "spec/schedulingGates",
                f"metadata/labels/{STAGED_LABEL}",
            }
        }
        lost = set(gate_names(before["spec"])) - set(gate_names(after["spec"])) - {GATE}
        kept = (before["metadata"].get("annotations") or {}).items() - (
            after["metadata"].get("annotations") or {}
        ).items()
        gone = {key for key, _ in kept if not key.startswith(OWN_PREFIXES)}
        if foreign or lost or gone:
            what = sorted(foreign | lost | gone)
            self._violation(f"{_what(kinds.PODS, after)}: {what} is not ours")

    def check_review(self, pod, operations, webhook):
        """Check the patch of a pod, which is as it was sent."""
        metadata = pod["metadata"]
        paths = [operation["path"] for operation in operations]
        foreign = [
            path
            for path in paths
            if not any(
                path == patched_path or path.startswith(f"{patched_path}/")
                for patched_path in PATCHED_PATHS
            )
        ]
        if foreign:
            self._violation(f"admission patches {foreign} of pod {metadata['name']}")
        namespace = webhook.snapshot.namespace(metadata["namespace"])
        annotations = metadata.get("annotations") or {}
        described = workload_of(annotations, metadata.get("labels") or {})
        wants = (
            namespace is not None
            and namespace.has_gates
            and described is not None
            and REMOVED_KEY not in annotations
            and any(reference["kind"] in {"ReplicaSet", "StatefulSet"}
                    for reference in metadata["ownerReferences"])
        )  # fmt: skip
        is_gated = any(path.startswith("/spec/schedulingGates") for path in paths)
        if wants and not is_gated:
            self._violation(f"admission lets pod {metadata['name']} pass without a gate")

    # After the release of a pod

    def _check_release(self, pod):
        metadata = pod["metadata"]
        annotations = metadata.get("annotations") or {}
        described = workload_of(annotations, metadata.get("labels") or {})
        if described is None or not described.version:
            if annotations.get(PARENT_KEY) != UNRESOLVED or self._is_described(metadata):
                self._violation(
                    f"{_what(kinds.PODS, pod)} is released, and nobody knows what it is"
                )
            return
        names = names_of_pod(described)
        namespace = metadata["namespace"]
        version = self._server.find_object(kinds.WORKLOAD_VERSIONS, (namespace, names.version))
        if version is None:
            self._violation(
                f"{_what(kinds.PODS, pod)} is released, and {names.version} is not there"
            )
            return
        wanted = (described.pre_deployment_tasks, described.pre_deployment_evaluations)
        missing = self._unmet(version, "pre", *wanted)
        apps = [
            app
            for app in self._server.every(kinds.APP_VERSIONS, namespace)
            if app["spec"]["appName"] == names.app
        ]
        apps += self._former[namespace, names.app]
        if not any(not self._unmet_of_app(app) for app in apps):
            missing.append(f"the checks of app {names.app}")
        if missing:
            self._violation(f"{_what(kinds.PODS, pod)} is released without {', '.join(missing)}")
        self._versions.check_release(pod, version)

    def _unmet_of_app(self, version):
        spec = version["spec"]
        tasks, checks = spec.get("preDeploymentTasks"), spec.get("preDeploymentEvaluations")
        return self._unmet(version, "pre", tasks or (), checks or ())

    def _unmet(self, version, when, tasks, evaluations):
        """Return the checks of a version that have not passed."""
        uid, namespace = version["metadata"]["uid"], version["metadata"]["namespace"]
        missing = [task for task in tasks if (uid, when, task) not in self._cluster.passed]
        since = self._created.get(uid, 0) - 60
        late = [
            evaluation
            for evaluation in evaluations
            if self.met.get((namespace, evaluation), -1) < since
        ]
        return missing + late

    def _is_described(self, metadata):
        """Return whether an owner of a pod describes a workload."""
        for owner in metadata.get("ownerReferences", ()):
            for resource in (kinds.REPLICA_SETS, kinds.STATEFUL_SETS, kinds.DEPLOYMENTS):
                owner_obj = self._server.find_object(
                    resource, (metadata["namespace"], owner["name"])
                )
                if owner_obj is not None and owner_obj["metadata"]["uid"] == owner["uid"]:
                    texts = {**(owner_obj["metadata"].get("annotations") or {}),
                             **(owner_obj["metadata"].get("labels") or {})}  # fmt: skip
                    if READ_KEYS & texts.keys() and REMOVED_KEY not in texts:
                        return True
        return False

    # After the deletion of a version

    def _check_collected(self, resource, version):
        """Check that no version that is in use is deleted, unless it was never generated."""
        owners = version["metadata"].get("ownerReferences", ())
        if any(owner.get("controller") for owner in owners):
            for use in self._uses(resource, version):
                self._violation(f"{_what(resource, version)} is deleted, but {use}")

    def _uses(self, resource, version):
        metadata, spec = version["metadata"], version["spec"]
        name, namespace = metadata["name"], metadata["namespace"]
        if version["status"].get("status") not in FINAL:
            yield "has not ended"
        for task in self._server.every(kinds.TASKS, namespace):
            if (
                is_of(task, metadata["uid"])
                and task.get("status", {}).get("status") == "Progressing"
            ):
                yield f"task {task['metadata']['name']} runs"
        if resource == kinds.WORKLOAD_VERSIONS:
            yield from self._uses_by_workload(version)
            return
        app = self._server.find_object(kinds.APPS, (namespace, spec["appName"]))
        if app is not None and name == version_of_app(msgspec.convert(app, App)):
            yield "is current"

    def _uses_by_workload(self, version):
        metadata, spec = version["metadata"], version["spec"]
        name, namespace, every = metadata["name"], metadata["namespace"], self._server.every
        workload = self._server.find_object(kinds.WORKLOADS, (namespace, spec["workloadName"]))
        if workload is not None and name == version_of(msgspec.convert(workload, Workload)):
            yield "is current"
        recorded = recorded_owners(msgspec.convert(version, WorkloadVersion))
        for replica_set in every(kinds.REPLICA_SETS, namespace):
            if replica_set["metadata"]["uid"] in recorded:
                yield f"ReplicaSet {replica_set['metadata']['name']} exists"
        for pod in every(kinds.PODS, namespace):
            if _version_name(pod["metadata"]) == name:
                yield f"pod {pod['metadata']['name']} names it"
        for revision in every(kinds.CONTROLLER_REVISIONS, namespace):
            template = revision["data"]["spec"]["template"]["metadata"]
            given = template.get("annotations") or revision["metadata"]["annotations"]
            if _version_name({**template, "annotations": given}) == name:
                yield f"ControllerRevision {revision['metadata']['name']} exists"

    # When all has come to rest

    def check_quiet(self, replicas):
        """Check that pods wait only for failed or missing checks."""
        for pod in self._server.every(kinds.PODS):
            if _is_gated(pod) and not self._may_wait(pod):
                self._violation(f"{_what(kinds.PODS, pod)} keeps its gate for ever")
        self._versions.check_quiet()
        for task in self._server.every(kinds.TASKS):
            self._check_task(task)
        for namespace in self._server.every(kinds.NAMESPACES):
            name = namespace["metadata"]["name"]
            label = (namespace["metadata"].get("labels") or {}).get(GATES_LABEL)
            if name != OWN_NAMESPACE and (label == "true") != opted_in(namespace):
                self._violation(f"{_what(kinds.NAMESPACES, namespace)} has the label {label!r}")
        lease = self._server.find_object(kinds.LEASES, (OWN_NAMESPACE, LEASE))
        holder = lease["spec"].get("holderIdentity") or ""
        if not any(holder.startswith(f"{replica.identity}_") for replica in replicas):
            self._violation(f"nobody leads: the Lease is held by {holder or 'nobody'}")

    def _check_task(self, task):
        status = task.get("status") or {}
        if status.get("status") in FINAL:
            job = self._server.find_object(
                kinds.JOBS, (task["metadata"]["namespace"], status.get("jobName", ""))
            )
            if (
                job is not None
                and job["metadata"]["ownerReferences"][0]["uid"] == task["metadata"]["uid"]
            ):
                self._violation(f"{_what(kinds.JOBS, job)} stays for ever after its task")
        elif self._exists(kinds.TASK_DEFINITIONS, task, task["spec"]["taskDefinition"]):
            self._violation(f"{_what(kinds.TASKS, task)} has no result: {status}")

    def _exists(self, resource, obj, name):
        places = (obj["metadata"]["namespace"], *DEFINITION_NAMESPACES)
        return any(self._server.find_object(resource, (place, name)) for place in places)

    def _may_wait(self, pod):
        metadata = pod["metadata"]
        described = workload_of(metadata.get("annotations") or {}, metadata.get("labels") or {})
        if described is None:
            return False
        namespace = metadata["namespace"]
        if self._cluster.owners.is_outdated(pod):
            return True
        names = names_of_pod(described)
        version = self._server.find_object(kinds.WORKLOAD_VERSIONS, (namespace, names.version))
        if version is None:
            return False
        if self._is_blocked(version):
            return True
        apps = [
            app
            for app in self._server.every(kinds.APP_VERSIONS, namespace)
            if app_version_of(*_decode_version(version, app)) is not None
        ]
        return bool(apps) and all(self._is_blocked(app) for app in apps)

    def _is_blocked(self, version, when="pre"):
        if when == "pre" and self.stages.is_held(version):
            return True
        if when == "pre" and self._misses_check(version):
            return True
        spec, namespace = version["spec"], version["metadata"]["namespace"]
        for task in spec.get(f"{when}DeploymentTasks") or ():
            if task.startswith(FAILS) or not self._exists(kinds.TASK_DEFINITIONS, version, task):
                return True
        for evaluation in spec.get(f"{when}DeploymentEvaluations") or ():
            # An evaluation whose metric had no value in time has failed as well.
            state = (version.get("status") or {}).get(f"{when}DeploymentEvaluationStatus")
            if (namespace, evaluation) in self.missed or state == "Failed":
                return True
            if not self._exists(kinds.EVALUATION_DEFINITIONS, version, evaluation):
                return True
        return False

    def _misses_check(self, version):
        """Return whether a check of its stages is not defined."""
        spec = version["spec"]
        return any(
            not self._exists(resource, version, name)
            for resource, names in (
                (kinds.TASK_DEFINITIONS, spec.get("stageTasks")),
                (kinds.EVALUATION_DEFINITIONS, spec.get("stageEvaluations")),
            )
            for name in names or ()
        )


def _version_name(metadata):
    described = workload_of(metadata.get("annotations") or {}, metadata.get("labels") or {})
    return names_of_pod(described).version if described is not None else ""


def _is_gated(pod):
    return GATE in gate_names(pod["spec"])


def _decode_version(version, app):
    return msgspec.convert(version, WorkloadVersion), [msgspec.convert(app, AppVersion)]


def _what(resource, obj):
    metadata = obj["metadata"]
    place = f"{metadata['namespace']}/" if metadata.get("namespace") else ""
    return f"{resource.kind} {place}{metadata['name']}"


def _changed_paths(before, after, prefix=""):
    """Return the paths that differ, down to annotations and labels, except versions."""
    changed = set()
    for key in before.keys() | after.keys():
        path = f"{prefix}{key}"
        if path in {"metadata/resourceVersion", "metadata/generation"}:
            continue
        old, new = before.get(key), after.get(key)
        if old == new:
            continue
        is_map = isinstance(old or {}, dict) and isinstance(new or {}, dict)
        if is_map and path.count("/") < 2 and not path.startswith("status"):
            changed |= _changed_paths(old or {}, new or {}, f"{path}/")
        else:
            changed.add(path)
    return changed
