"""Applications with checks, on objects in memory: their checks, a deployer, and deaths at writes.

Checks of a generation on a cluster end as ``verdicts`` says. Each binding is compared with what the
checks said, and each deployment with the spec that its generation had.
"""

from __future__ import annotations

from functools import partial

import msgspec

from harbourmaster.api.metadata import Metadata
from harbourmaster.api.resources import (
    APP_VERSIONS,
    APPLICATIONS,
    CLUSTERS,
    CONTROLLER_REVISIONS,
    EVALUATION_DEFINITIONS,
)
from harbourmaster.controller.lifecycle.caches import LifecycleCaches
from harbourmaster.controller.placement.checks import SHARED
from harbourmaster.controller.placement.revisions import load_spec
from harbourmaster.kube.client import ListPage
from harbourmaster.kube.errors import AlreadyExistsError, NotFoundError
from harbourmaster.lifecycle.applications import DEPLOYED_KEY
from helpers.fake_store import merge_patch
from helpers.placement_environment import NAMESPACE, PlacementEnv

PHASES = {
    "pre": "preDeploymentEvaluationStatus",
    "deploy": "workloadOverallStatus",
    "post": "postDeploymentEvaluationStatus",
}
TASKS = {"preDeploymentStatus": "Succeeded", "postDeploymentStatus": "Succeeded"}
CHECKS = {
    "preDeployment": {"evaluations": ["few-errors"]},
    "postDeployment": {"evaluations": ["few-errors"]},
}


class Died(BaseException):
    """The process ends at a write."""


class CheckedEnv(PlacementEnv):
    """An environment whose Applications have checks; ``writes_left`` says when the process dies."""

    def __init__(self, **settings):
        self._others = None
        self.verdicts = {}
        """Whether checks pass, by generation, cluster and "pre" or "post"; by default they do."""
        self.specs = {}
        self.passed = {}
        """Whether the last check before the deployment passed, by generation and cluster."""
        self.faults_seen = []
        self.reverts = []
        self.writes_left = None
        self.dies_after = False
        self._deployed = {}
        super().__init__(on_unreachable="Move", offline_after_seconds=0, **settings)
        self.define("few-errors")

    def lifecycle(self):
        self._others = LifecycleCaches(self)
        shared = {name: getattr(self._others, name) for name in SHARED.values()}
        for cache in shared.values():
            cache.synced.set()
        return shared

    def define(self, name, **spec):
        """Create or change a definition of an evaluation."""
        known = self.objects.get((EVALUATION_DEFINITIONS, name))
        generation = known["metadata"]["generation"] + 1 if known else 1
        spec = {"objectives": [], **spec}
        self.put(EVALUATION_DEFINITIONS, name, spec, generation=generation)

    def apply(self, name="app", *, turn=0, checks=CHECKS, **cluster):
        """Create an Application, or give it another generation."""
        manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "first"}}
        manifest["data"] = {"turn": str(turn)}
        spec = {"manifests": [manifest], "constraints": {"cluster": cluster}, "checks": checks}
        stored = self.objects.get((APPLICATIONS, name))
        if stored is None:
            self.put(APPLICATIONS, name, spec)
        else:
            metadata = {**stored["metadata"], "generation": stored["metadata"]["generation"] + 1}
            self._store(APPLICATIONS, name, {**stored, "metadata": metadata, "spec": spec})
        self.specs[name, self.generation(name)] = spec

    def generation(self, name="app"):
        return self.fetch(name)["metadata"]["generation"]

    def revisions(self, name="app"):
        """The generations whose revisions there are."""
        uid = self.fetch(name)["metadata"]["uid"]
        return sorted(
            obj["revision"]
            for (kind, _), obj in self.objects.items()
            if kind is CONTROLLER_REVISIONS and obj["metadata"]["ownerReferences"][0]["uid"] == uid
        )

    def versions(self, name="app"):
        """The versions that check an Application, by name."""
        return {
            key: obj
            for (kind, key), obj in self.objects.items()
            if kind is APP_VERSIONS and obj["spec"]["appName"] == f"application/{name}"
        }

    def reason(self, name="app"):
        return self.condition("Checked", name).get("reason", "")

    # What other controllers do

    def check(self):
        """Take each version one phase further; whether one went."""
        keys = [key for kind, key in self.objects if kind is APP_VERSIONS]
        return sum(map(self._check, keys)) > 0

    def _check(self, key):
        version = self.objects[APP_VERSIONS, key]
        status, spec = version["status"], version["spec"]
        if status.get("status") in {"Succeeded", "Failed"}:
            return False
        place = (int(spec["version"]), spec["metadata"]["cluster"])
        for phase, field in PHASES.items():
            if status.get(field) == "Succeeded":
                continue
            if phase == "deploy":
                if DEPLOYED_KEY not in version["metadata"].get("annotations", {}):
                    return False
                passes = True
            else:
                passes = self.verdicts.get((*place, phase), True)
            if phase == "pre":
                self.passed[spec["appName"].partition("/")[2], *place] = passes
            state = "Succeeded" if passes else "Failed"
            end = {field: state}
            if phase != "deploy":
                items = f"{field.removesuffix('Status')}TaskStatus"
                named = {"status": state, "name": f"{key}-{phase}"}
                definitions = spec.get(f"{phase}DeploymentEvaluations", ())
                end[items] = [{"definitionName": part, **named} for part in definitions]
            if not passes or phase == "post":
                end["status"] = end[field]
            status = {**TASKS, **status, **end}
            self._store(APP_VERSIONS, key, {**version, "status": status})
            return True
        return False

    def rerun(self, name="app"):
        """Have all failed checks of an Application repeated."""
        for key, version in self.versions(name).items():
            status = version["status"]
            if status.get("status") != "Failed":
                continue
            kept = {field: state for field, state in status.items() if state != "Failed"}
            if DEPLOYED_KEY not in version["metadata"].get("annotations", {}):
                kept.pop(PHASES["deploy"], None)
            self._store(APP_VERSIONS, key, {**version, "status": kept})

    async def deploy(self, name="app"):
        """Deploy what is bound, as the deployer does; whether that changed something."""
        stored = self.fetch(name)
        status, metadata = stored["status"], stored["metadata"]
        placed = status.get("scheduledTo")
        cluster = self.objects.get((CLUSTERS, placed["name"])) if placed else None
        if cluster is None or cluster["status"]["state"] != "Online":
            return False
        generation, spec = status["scheduledGeneration"], stored["spec"]
        if generation != metadata["generation"]:
            identity = msgspec.convert(metadata, Metadata)
            text = await load_spec(self, identity, generation) if spec.get("checks") else None
            if text is None:
                return False
            spec = msgspec.json.decode(text)
        if spec != self.specs[name, generation]:
            self.faults_seen.append(f"generation {generation} is deployed with another spec")
        observed = {"status": "True", "observedGeneration": generation}
        ours = [{"type": kind, "reason": kind, "message": "", **observed}
                for kind in ("Deployed", "Ready")]  # fmt: skip
        others = [entry for entry in status.get("conditions", ())
                  if entry["type"] not in {"Deployed", "Ready"}]  # fmt: skip
        running = {
            "runningOn": placed,
            "observedGeneration": generation,
            "conditions": others + ours,
        }
        if {key: status.get(key) for key in running} == running:
            return False
        self._store(APPLICATIONS, name, {**stored, "status": {**status, **running}})
        return True

    async def run(self, name="app"):
        """Let all controllers work until nothing changes any more."""
        for _ in range(60):
            before = len(self.writes)
            await self.live(name)
            moved = [len(self.writes) != before, self.check(), await self.deploy(name)]
            if not any(moved):
                return
        self.faults_seen.append("it comes to no rest")

    async def run_until(self, condition, name="app"):
        """Let the controllers take turns until something is so."""
        while not condition():
            before = len(self.writes)
            await self.live(name)
            if condition():
                return
            moved = [len(self.writes) != before, self.check(), await self.deploy(name)]
            assert any(moved) or condition(), "it comes to rest"

    def cancel(self, name="app", **fields):
        """Have the deployer return to the cluster and the generation before the last move."""
        stored = self.fetch(name)
        records = stored["status"].get("checked", [])
        if len(records) < 2 or records[0]["uid"] == records[1]["uid"]:
            return
        to = {key: records[1][key] for key in ("name", "uid")}
        if stored["status"]["scheduledTo"]["uid"] == to["uid"]:
            return
        generation = records[1]["generation"]
        fields |= {"scheduledTo": to, "runningOn": to, "scheduledGeneration": generation}
        self._deployed[name, generation] = to["name"]
        status = {**stored["status"], **fields}
        self._store(APPLICATIONS, name, {**stored, "status": status})

    def not_ready(self, name="app"):
        """Have the deployer see that an Application is not ready any more."""
        stored = self.fetch(name)
        conditions = [{**entry, "status": "False"} if entry["type"] == "Ready" else entry
                      for entry in stored["status"]["conditions"]]  # fmt: skip
        status = {**stored["status"], "conditions": conditions}
        self._store(APPLICATIONS, name, {**stored, "status": status})

    async def live(self, name="app"):
        """Reconcile once; a process that dies is followed by another one."""
        try:
            await self.reconcile(name)
        except Died:
            self.writes_left = None
            self.writes.append(("death", None, None))
            self.begin()

    # What the reconcilers have for a client

    async def get(self, resource, name, _namespace=None):
        if (resource, name) not in self.objects:
            raise NotFoundError(f"{name} not found")
        return msgspec.json.encode(self.objects[resource, name])

    async def list(self, resource, _namespace=None, *, label_selector="", **_options):
        key, _, value = label_selector.partition("=")
        items = (obj for (kind, _), obj in self.objects.items() if kind is resource)
        chosen = [obj for obj in items if obj["metadata"]["labels"].get(key) == value]
        return ListPage(tuple(msgspec.Raw(msgspec.json.encode(obj)) for obj in chosen), "1", "")

    async def create(self, resource, obj, _namespace=None):
        name = obj["metadata"]["name"]
        if (resource, name) in self.objects:
            raise AlreadyExistsError(f"{name} exists")
        metadata = {**obj["metadata"], "namespace": NAMESPACE, "uid": f"uid-{name}"}
        obj = {**msgspec.to_builtins(obj), "metadata": metadata}
        if resource is APP_VERSIONS:
            obj["status"] = {}
        self._send(f"create {name}", partial(self._store, resource, name, obj))

    async def delete(self, resource, name, _namespace=None, *, uid, missing_ok):
        assert (bool(uid), missing_ok) == (True, True)
        if (resource, name) in self.objects:
            self._send(f"delete {name}", partial(self._remove, resource, name))

    async def patch(self, resource, name, patch, namespace=None, *, subresource=None):
        if resource is APP_VERSIONS:
            obj = self.objects.get((resource, name))
            if obj is None:
                raise NotFoundError(f"{name} not found")
            changed = merge_patch(obj, msgspec.json.decode(patch.encode()))
            if changed != obj:
                self._send(f"mark {name}", partial(self._store, resource, name, changed))
            return None
        before = self.fetch(name).get("status", {}) if resource is APPLICATIONS else {}
        if self._dies_before():
            raise Died
        answer = await super().patch(resource, name, patch, namespace, subresource=subresource)
        if resource is APPLICATIONS:
            self._audit(name, before, self.status(name))
        self._end()
        return answer

    def _send(self, text, write):
        if self._dies_before():
            raise Died
        write()
        self.writes.append((text, None, None))
        self._end()

    def _dies_before(self):
        return self.writes_left == 0 and not self.dies_after

    def _end(self):
        if self.writes_left == 0:
            raise Died
        if self.writes_left is not None:
            self.writes_left -= 1

    def _remove(self, resource, name):
        del self.objects[resource, name]
        mirror = self._mirror(resource)
        if mirror is not None:
            mirror.store.remove(self._key(resource, name))

    def _show(self, resource, name):
        if self._mirror(resource) is not None:
            super()._show(resource, name)

    def _mirror(self, resource):
        mirrors = {**self._others.by_resource, **self.caches.by_resource}
        return mirrors.get(resource)

    # What must hold

    def _audit(self, name, before, after):
        """Note a binding that its checks do not allow."""
        was, now = (status.get("scheduledTo") for status in (before, after))
        generations = [status.get("scheduledGeneration", 0) for status in (before, after)]
        records = after.get("checked", ())
        if len(records) > 2:
            self.faults_seen.append(f"{len(records)} records")
        checks = self.fetch(name)["spec"].get("checks")
        if now is None or checks is None or (was, generations[0]) == (now, generations[1]):
            return
        when = checks.get("when", ["Deploy", "Update", "Move"])
        place = (name, generations[1], now["name"])
        text = f"generation {generations[1]} to {now['name']} without a check that passed"
        reason = next(
            entry["reason"] for entry in after["conditions"] if entry["type"] == "Checked"
        )
        if reason == "Reverted" and generations[1] <= generations[0]:
            self.reverts.append((name, generations[0], was["name"]))
            if self._deployed.get((name, generations[1])) is None:
                self.faults_seen.append(f"{text}: a revert")
            return
        self._deployed[name, generations[1]] = now["name"]
        if was is None:
            needs = "Deploy" in when
        else:
            cluster = self.objects.get((CLUSTERS, was["name"]))
            is_lost = cluster is None or cluster["status"]["state"] != "Online"
            is_forced = is_lost and checks.get("forcedMoves", "Skip") == "Skip"
            is_move = was["uid"] != now["uid"] and not is_forced
            needs = (generations[0] != generations[1] and "Update" in when) or (
                is_move and "Move" in when
            )
            if is_lost and generations[0] == generations[1]:
                return
        if needs and self.passed.get(place) is not True:
            self.faults_seen.append(text)
