"""The invariant of stages: no version has more released pods than its stage allows."""

from __future__ import annotations

from collections import defaultdict
from math import inf

from harbourmaster.api import resources as kinds
from harbourmaster.gates.stages import STAGE_KEY, STAGED_LABEL, parse_stages
from harbourmaster.gates.workload import workload_of
from harbourmaster.lifecycle.workloads import names_of_pod
from helpers.api_rules import gate_names
from simulation.owners import DESIRED
from simulation.server import revision_of

UNAWARE = 120.0
"""Seconds for which a process may not know how many pods an owner wants."""
OVER = {"Completed", "Skipped", "Refused"}


class Stages:
    """Follows how many pods are wanted, and reports a release that its stage does not allow."""

    def __init__(self, simulation, server):
        self._simulation = simulation
        self._server = server
        # By the uid of an owner: when it began to want a number of pods, and the number.
        self._wanted = defaultdict(list)
        self.released = 0
        server.listeners.append(self._note_change)

    def _note_change(self, change):
        obj = change.after
        if obj is None or change.resource not in {kinds.REPLICA_SETS, kinds.STATEFUL_SETS}:
            return
        notes = obj["metadata"].get("annotations") or {}
        wanted = int(notes.get(DESIRED, obj["spec"]["replicas"]))
        history = self._wanted[obj["metadata"]["uid"]]
        if not history or history[-1][1] != wanted:
            history.append((self._simulation.now(), wanted))

    def check_release(self, pod):
        """Check the number of released pods of its version, with this one that we released."""
        metadata = pod["metadata"]
        if STAGE_KEY not in (metadata.get("annotations") or {}):
            return
        self.released += 1
        namespace, name = place = _version_of(pod)
        version = self._server.find_object(kinds.WORKLOAD_VERSIONS, place)
        released = [
            counted["metadata"]["name"]
            for counted in self._server.every(kinds.PODS, namespace)
            if _is_counted(counted) and _version_of(counted) == place
        ]
        allowed = max(self._allowed(version, wanted) for wanted in self._recent(metadata))
        if len(released) > allowed:
            stage = version["status"].get("stage")
            self._simulation.violation(
                f"pod {namespace}/{metadata['name']} is released as the {len(released)}th of "
                f"{name}: {released}, and {allowed} are allowed in {stage}"
            )

    def _recent(self, metadata):
        """Yield the numbers of pods that the owner of a pod has wanted lately."""
        history = self._wanted[metadata["ownerReferences"][0]["uid"]]
        ends = [time for time, _ in history[1:]] + [inf]
        for (_, wanted), end in zip(history, ends, strict=True):
            if end > self._simulation.now() - UNAWARE:
                yield wanted

    def _allowed(self, version, wanted):
        spec, status = version["spec"], version.get("status") or {}
        stage = status.get("stage")
        is_over = (
            status.get("deploymentStatus") == "Succeeded" or (stage or {}).get("state") in OVER
        )
        if not spec.get("stages") or is_over:
            return inf
        if stage is None or status.get("status") == "Deprecated":
            return 0
        if stage["state"] == "Held":
            return stage["allowed"]
        stages = parse_stages(spec["stages"], spec.get("stagePause", ""))
        return stages.allowance(stage["number"], wanted)

    def is_held(self, version):
        """Whether the stage of a version waits for a person."""
        status = version.get("status") or {}
        stage = status.get("stage") or {}
        if not version["spec"].get("stages"):
            return False
        results = stage.get("results") or [{}]
        is_failed = stage.get("state") == "Held" and results[-1].get("number") == stage["number"]
        is_manual = version["spec"].get("stagePause") == "Manual" and stage.get("state") == "Paused"
        history = self._wanted.get(version["spec"]["resourceReference"]["uid"])
        is_idle = bool(stage) and bool(history) and not history[-1][1]
        return is_failed or is_manual or is_idle or (bool(stage) and self._is_outdated(version))

    def _is_outdated(self, version):
        """Whether its Deployment has a newer ReplicaSet, or its StatefulSet is of another app."""
        spec, namespace = version["spec"], version["metadata"]["namespace"]
        kind, key = (
            spec["resourceReference"]["kind"],
            (namespace, spec["resourceReference"]["name"]),
        )
        if kind == "StatefulSet":
            owner = self._server.find_object(kinds.STATEFUL_SETS, key)
            if owner is None:
                return False
            template = owner["spec"]["template"]
            notes = [obj["metadata"].get("annotations") or {} for obj in (owner, template)]
            described = workload_of(notes[0] | notes[1], {})
            return described and names_of_pod(described).workload != spec["workloadName"]
        replica_set = self._server.find_object(kinds.REPLICA_SETS, key)
        if replica_set is None:
            return False
        above = replica_set["metadata"]["ownerReferences"][0]["name"]
        deployment = self._server.find_object(kinds.DEPLOYMENTS, (namespace, above))
        return deployment is not None and revision_of(replica_set) < revision_of(deployment)


def _version_of(pod):
    metadata = pod["metadata"]
    described = workload_of(metadata.get("annotations") or {}, metadata.get("labels") or {})
    return metadata["namespace"], names_of_pod(described).version if described else ""


def _is_counted(pod):
    metadata = pod["metadata"]
    is_gated = "keptn-prechecks-gate" in gate_names(pod["spec"])
    return STAGED_LABEL in (metadata.get("labels") or {}) and not is_gated
