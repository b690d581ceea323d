"""The invariants of versions: their images were checked, and each comes to an end."""

from __future__ import annotations

import msgspec

from harbourmaster.api import resources as kinds
from harbourmaster.gates.names import version_name
from harbourmaster.gates.workload import workload_of
from harbourmaster.lifecycle.model import AppVersion, WorkloadVersion
from harbourmaster.lifecycle.waiting import app_version_of
from harbourmaster.lifecycle.workloads import names_of, names_of_pod
from helpers.flow.manifests import IMAGE
from simulation.owners import DESIRED

FINAL = {"Succeeded", "Failed", "Warning", "Deprecated"}


class Versions:
    """Follows the images of versions, and reports a broken invariant to the simulation.

    ``is_blocked`` tells whether the checks of a version before its deployment wait for a person.
    """

    def __init__(self, simulation, server, is_blocked):
        self._violation = simulation.violation
        self._server = server
        self._is_blocked = is_blocked
        # By namespace and name of a KeptnWorkloadVersion.
        self._images = {}
        # By the uid of one, and the name of a definition: the images before its check began.
        self._checked = {}
        server.listeners.append(self._note_change)

    def _note_change(self, change):
        obj = change.after
        if obj is None:
            return
        if change.resource == kinds.PODS:
            place, image, _ = _described(obj)
            self._images.setdefault(place, set()).add(image)
        elif change.resource in {kinds.TASKS, kinds.EVALUATIONS} and change.before is None:
            spec, metadata = obj["spec"], obj["metadata"]
            definition = spec.get("taskDefinition") or spec.get("evaluationDefinition")
            for owner in metadata.get("ownerReferences", ()):
                images = self._images.get((metadata["namespace"], owner["name"]), set())
                self._checked.setdefault((owner["uid"], definition), set()).update(images)

    def check_release(self, pod, version):
        """Check that each check ran when the image of the pod was in its version.

        A user may give two images the same version, which is then checked once.
        """
        _, image, checks = _described(pod)
        uid = version["metadata"]["uid"]
        missing = [check for check in checks if image not in self._checked.get((uid, check), ())]
        if missing and image != IMAGE:
            name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
            self._violation(f"pod {name} is released, but {image} was not checked by {missing}")

    def check_quiet(self):
        """Check that each version has ended, unless it waits for a person."""
        for version in self._server.every(kinds.WORKLOAD_VERSIONS):
            status = version.get("status") or {}
            name = f"{version['metadata']['namespace']}/{version['metadata']['name']}"
            if status.get("status") not in FINAL:
                if not (self._waits_for_a_person(version) or self._waits_for_the_next(version)):
                    self._violation(f"KeptnWorkloadVersion {name} never ends: {status}")
            elif status.get("deploymentStatus") == "Failed" and self._is_deployed(version):
                self._violation(f"KeptnWorkloadVersion {name} stays Failed, but it is deployed")
        for app in self._server.every(kinds.APP_VERSIONS):
            status, metadata = app.get("status") or {}, app["metadata"]
            states = [*self._workload_states(app)]
            if status.get("workloadOverallStatus") == "Failed" and set(states) == {"Succeeded"}:
                name = f"{metadata['namespace']}/{metadata['name']}"
                self._violation(f"KeptnAppVersion {name} stays Failed, but it is deployed")

    def _workload_states(self, app):
        """Yield the state of each workload version that the app lists; None without one."""
        for entry in app["spec"].get("workloads") or ():
            names = names_of(app["spec"]["appName"], entry["name"], entry["version"])
            place = (app["metadata"]["namespace"], names.version)
            version = self._server.find_object(kinds.WORKLOAD_VERSIONS, place)
            yield (version or {}).get("status", {}).get("status")

    def _waits_for_a_person(self, version):
        status, spec = version.get("status") or {}, version["spec"]
        if status.get("currentPhase"):
            return self._is_blocked(version, "pre") or self._is_blocked(version, "post")
        apps = [
            app
            for app in self._server.every(kinds.APP_VERSIONS, version["metadata"]["namespace"])
            if app_version_of(
                msgspec.convert(version, WorkloadVersion), [msgspec.convert(app, AppVersion)]
            )
        ]
        return spec.get("app") is None or any(self._is_blocked(app, "pre") for app in apps)

    def _waits_for_the_next(self, version):
        """Return whether its pods wait, and go only when a person lets the next version go on.

        Until then, a rollback may need them. The Deployment keeps them as long.
        """
        metadata = version["metadata"]
        waiting = (
            _described(pod)[0] == (metadata["namespace"], metadata["name"])
            for pod in self._server.every(kinds.PODS, metadata["namespace"])
            if pod["spec"].get("schedulingGates")
        )
        place = (metadata["namespace"], version["spec"]["workloadName"])
        workload = self._server.find_object(kinds.WORKLOADS, place)
        if workload is None or not any(waiting):
            return False
        newer = version_name(place[1], workload["spec"]["version"])
        newer = self._server.find_object(kinds.WORKLOAD_VERSIONS, (place[0], newer))
        return newer is not None and newer != version and self._waits_for_a_person(newer)

    def _owner_of(self, version):
        reference = version["spec"]["resourceReference"]
        resource = {"ReplicaSet": kinds.REPLICA_SETS, "StatefulSet": kinds.STATEFUL_SETS}
        place = (version["metadata"]["namespace"], reference["name"])
        return self._server.find_object(resource[reference["kind"]], place)

    def _is_deployed(self, version):
        reference, namespace = (
            version["spec"]["resourceReference"],
            version["metadata"]["namespace"],
        )
        owner = self._owner_of(version)
        workload = self._server.find_object(
            kinds.WORKLOADS, (namespace, version["spec"]["workloadName"])
        )
        if owner is None or owner["metadata"]["uid"] != reference["uid"] or workload is None:
            return False
        replicas, status = owner["spec"]["replicas"], owner["status"]
        notes = owner["metadata"].get("annotations") or {}
        return (
            # A Deployment that replaces its pods one after the other has not come to all of them.
            notes.get(DESIRED, str(replicas)) == str(replicas)
            and workload["spec"]["version"] == version["spec"]["version"]
            and replicas == status["availableReplicas"] == status.get("updatedReplicas", replicas)
            and replicas > 0
        )


def _described(pod):
    """Return the place of the version of a pod, its image, and its checks before deployment."""
    metadata = pod["metadata"]
    described = workload_of(metadata.get("annotations") or {}, metadata.get("labels") or {})
    image = pod["spec"]["containers"][0]["image"]
    if described is None:
        return None, image, ()
    place = (metadata["namespace"], names_of_pod(described).version)
    return place, image, described.pre_deployment_tasks + described.pre_deployment_evaluations
