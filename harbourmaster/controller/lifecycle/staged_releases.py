"""Counts the pods of versions that are released in stages, and says which may be released next.

The pods are the record: a release writes the stage on its pod. Releases that the watch has not
brought yet are kept in memory, and a new leader lists the pods before its first release.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from harbourmaster.api.metadata import Metadata
from harbourmaster.api.resources import PODS
from harbourmaster.controller.lifecycle.owners import Owner, rank
from harbourmaster.controller.lifecycle.writes import fetch
from harbourmaster.controller.objects import decode_metadata
from harbourmaster.gates.gate import GATE
from harbourmaster.gates.owners import DAEMON_SET, DEPLOYMENT, REPLICA_SET, ROLLOUT, SUPPORTED
from harbourmaster.gates.release import was_released
from harbourmaster.gates.stages import STAGE_KEY, STAGED, STAGED_LABEL
from harbourmaster.gates.workload import workload_of
from harbourmaster.lifecycle.gated_pods import decode_object
from harbourmaster.lifecycle.stages import pods_allowed
from harbourmaster.lifecycle.steps import StagedPods
from harbourmaster.lifecycle.workload_owners import SHARING_ADVICE, describe_owners
from harbourmaster.lifecycle.workloads import has_observed, names_of_pod, recorded_owners

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    import msgspec

    from harbourmaster.controller.lifecycle.caches import LifecycleCaches
    from harbourmaster.kube.client import Client
    from harbourmaster.lifecycle.gated_pods import Pod
    from harbourmaster.lifecycle.model import WorkloadVersion

SELECTOR: Final = f"{STAGED_LABEL}={STAGED}"
_BY_VERSION: Final = "version"
_READY: Final = "Ready"
_TRUE: Final = "True"
_ENDED: Final = frozenset(("Succeeded", "Failed"))
_UNSEEN_SECONDS: Final = 30.0
"""The time after which a release that the watch has not brought is looked for by a list."""


class StagedPod(Struct, frozen=True, gc=False):
    """A pod with our label, as far as the stages of its version depend on it."""

    uid: str = ""
    version: str = ""
    """The key of its KeptnWorkloadVersion; empty if it names none."""
    is_released: bool = False
    is_over: bool = False
    """Whether it has ended or is being deleted."""
    ready_since: str = ""


class _Release(Struct, frozen=True, gc=False):
    """A release that the watch has not brought yet."""

    pod: str
    """The key of the pod."""
    time: float
    """The time of the request, or of the last list that had the pod."""


def decode_staged(raw: msgspec.Raw | bytes) -> StagedPod:
    """Decode a pod with our label from its JSON. Raises msgspec.ValidationError."""
    pod = decode_object(raw)
    metadata, status = pod.metadata, pod.status
    ready = [state for state in status.conditions if state.type == _READY and state.status == _TRUE]
    return StagedPod(
        uid=metadata.uid,
        version=_version_of(metadata),
        is_released=all(gate.name != GATE for gate in pod.spec.scheduling_gates),
        is_over=bool(metadata.deletion_timestamp) or status.phase in _ENDED,
        ready_since=(ready[0].last_transition_time or "") if ready else "",
    )


async def spec_of(client: Client, kind: str, name: str, namespace: str) -> dict[str, Any]:
    """Return the spec of an owner as it is now; empty if it is gone. Raises ApiError."""
    owner = await fetch(client, SUPPORTED[kind], dict[str, Any], name, namespace)
    return (owner or {}).get("spec") or {}


def _leads_on(before: StagedPod | None, pod: StagedPod | None) -> bool:
    """Whether a change gives room to another pod, or completes a stage: a release does neither."""
    if before is None or pod is None:
        return pod is None or (pod.is_released and not pod.is_over)
    return (before.uid, before.is_over, before.ready_since) != (
        pod.uid,
        pod.is_over,
        pod.ready_since,
    )


def _version_of(metadata: Metadata) -> str:
    described = workload_of(metadata.annotations, metadata.labels)
    return f"{metadata.namespace}/{names_of_pod(described).version}" if described else ""


def _drop(by_version: dict[str, dict[str, Any]], version: str, key: str) -> None:
    of_version = by_version.get(version, {})
    of_version.pop(key, None)
    if not of_version:
        by_version.pop(version, None)


class StagedReleases:
    """Decides on the releases of staged pods; ``begin_term`` comes before those of a leader."""

    def __init__(self, client: Client, caches: LifecycleCaches) -> None:
        self._client = client
        self._caches = caches
        self._store = caches.staged_pods.store
        self._listing = asyncio.Lock()
        # The pods as ``observe`` has counted them, and those of them that take the places of a
        # stage: the times at which they became ready, by key of a version and of the pod.
        self._known: dict[str, StagedPod] = {}
        self._counted: dict[str, dict[str, str]] = {}
        self.begin_term()

    def begin_term(self) -> None:
        """Forget the releases of an earlier term."""
        self._is_listed = False
        # By key of a version, then uid of a pod: one of a StatefulSet may have a former one's name.
        self._releases: dict[str, dict[str, _Release]] = {}

    async def take(self, pod: Pod, version: WorkloadVersion) -> str:
        """Return the stage that releases a pod, "" for none: until then it waits for an event.

        The pod keeps its place if its release fails, which is tried again. Raises ApiError.
        """
        await self._ensure_list(version)
        key = version.metadata.key
        version = self._caches.workload_versions.store.get(key) or version
        stage, present = version.status.stage, self._present(pod.key, pod.uid)
        if stage is None:
            return ""
        is_taken = present is not None and present.is_released
        if not is_taken and pod.uid not in self._releases.get(key, {}):
            if self.room(version) <= 0:
                return ""
            release = _Release(pod.key, asyncio.get_running_loop().time())
            self._releases.setdefault(key, {})[pod.uid] = release
        return str(stage.number)

    def give_back(self, pod: Pod, version: WorkloadVersion) -> None:
        """Give the room of a pod that is gone to another one."""
        _drop(self._releases, version.metadata.key, pod.uid)

    def seconds_to_list(self, version: WorkloadVersion) -> float | None:
        """Return when to ask again for room, because no event may come; else None."""
        return _UNSEEN_SECONDS + 1 if version.metadata.key in self._releases else None

    def room(self, version: WorkloadVersion) -> int:
        """Return how many more pods of a version with stages may be released."""
        allowed = pods_allowed(version, self._wanted(version))
        return 0 if allowed is None else allowed - self._released(version)

    def unready_pods(self, version: WorkloadVersion) -> list[Metadata]:
        """Return the released pods of a version that are not ready."""
        times = self._counted.get(version.metadata.key, {})
        keys = sorted(key for key, ready_since in times.items() if not ready_since)
        namespace = version.metadata.namespace
        return [
            Metadata(name=key.partition("/")[2], namespace=namespace, uid=self._known[key].uid)
            for key in keys
        ]

    def observe(self, keys: Collection[str]) -> set[str]:
        """Note what the watch has brought; return the keys of the versions that it may lead on."""
        leading = set()
        for key in keys:
            before, pod = self._known.pop(key, None), self._store.get(key)
            if before is not None:
                _drop(self._counted, before.version, key)
                if pod is None or pod.uid != before.uid:
                    _drop(self._releases, before.version, before.uid)
            if pod is not None:
                self._known[key] = pod
                if pod.is_released or pod.is_over:
                    _drop(self._releases, pod.version, pod.uid)
                if pod.is_released and not pod.is_over:
                    self._counted.setdefault(pod.version, {})[key] = pod.ready_since
            if _leads_on(before, pod):
                leading |= {some.version for some in (before, pod) if some is not None}
        return leading

    def _released(self, version: WorkloadVersion) -> int:
        key = version.metadata.key
        return len(self._counted.get(key, ())) + len(self._releases.get(key, ()))

    def _present(self, key: str, uid: str) -> StagedPod | None:
        pod = self._known.get(key)
        return pod if pod is not None and pod.uid == uid else None

    def _overdue(self, version: str, now: float) -> Iterator[str]:
        """Return the uids of pods whose release is old, and not brought; the oldest come first."""
        for uid, release in self._releases.get(version, {}).items():
            if now - release.time <= _UNSEEN_SECONDS:
                return
            if self._present(release.pod, uid) is None:
                yield uid

    async def _ensure_list(self, version: WorkloadVersion) -> None:
        """List the pods in a new term, and for a release that the watch does not bring."""
        async with self._listing:
            now = asyncio.get_running_loop().time()
            if not self._is_listed or any(self._overdue(version.metadata.key, now)):
                await self._list(now)
                self._is_listed = True

    async def _list(self, now: float) -> None:
        token, uids = "", set()
        while True:
            page = await self._client.list(
                PODS, label_selector=SELECTOR, metadata_only=True, continue_token=token
            )
            for raw in page.items:
                metadata = decode_metadata(raw)
                notes = metadata.annotations
                uids.add(metadata.uid)
                if metadata.deletion_timestamp or not (STAGE_KEY in notes or was_released(notes)):
                    continue
                present = self._present(metadata.key, metadata.uid)
                if present is None or not present.is_released:
                    release = _Release(metadata.key, now)
                    self._releases.setdefault(_version_of(metadata), {})[metadata.uid] = release
            token = page.continue_token
            if not token:
                break
        for version in list(self._releases):
            for uid in list(self._overdue(version, now)):
                key = self._releases[version][uid].pod
                _drop(self._releases, version, uid)
                if uid in uids:
                    # It waits for its patch, which is tried again.
                    self._releases.setdefault(version, {})[uid] = _Release(key, now)

    async def look(self, version: WorkloadVersion, *, is_deployed: bool = False) -> StagedPods:
        """Return the pods of a version, and what its owner says of others.

        ``is_deployed`` says that the owner has all pods ready, also those that came without a gate,
        for example because gates were switched off meanwhile. Raises ApiError.
        """
        await self._ensure_list(version)
        key, stage, wanted = version.metadata.key, version.status.stage, self._wanted(version)
        times = self._counted.get(key, {}).values()
        progressed, released = max(times, default=""), self._released(version)
        ready_since = progressed if all(times) and released == len(times) else ""
        if is_deployed and wanted is None:
            # A newer ReplicaSet wants no pods either.
            wanted = 0
        if is_deployed and stage is not None and wanted and released < wanted:
            released, ready_since = wanted, max(progressed, stage.since)
        refusal, are_others_serving = "", False
        if stage is None:
            owners = self._owners(version)
            are_others_serving = any(self._has_others(version, *pair) for pair in owners)
            refusal = await self._refusal(version)
            if wanted and not are_others_serving and await self._is_behind(version):
                wanted = None
        return StagedPods(
            wanted=wanted,
            are_others_serving=are_others_serving,
            refusal=refusal,
            released=released,
            ready_since=ready_since,
            progressed=progressed,
        )

    async def _is_behind(self, version: WorkloadVersion) -> bool:
        """Whether the cache has a former template of an owner, which counts no other pods.

        One watch brings all ReplicaSets, in order.
        """
        for kind, owner in self._owners(version):
            if kind != REPLICA_SET:
                metadata = owner.metadata
                resource = SUPPORTED[kind]
                live = await fetch(self._client, resource, Owner, metadata.name, metadata.namespace)
                if live is None or live.metadata.generation != metadata.generation:
                    return True
        return False

    def _owners(self, version: WorkloadVersion) -> Iterator[tuple[str, Owner]]:
        """Return the owners that work for a version, the newest first; no former ReplicaSets."""
        for kind, owner in reversed(self._caches.owners_of(version).values()):
            if kind != REPLICA_SET or not any(
                rank(sibling) > rank(owner) for sibling in self._caches.alike_replica_sets(owner)
            ):
                yield kind, owner

    def _wanted(self, version: WorkloadVersion) -> int | None:
        """Return the number of pods at the end; None if no owner says so yet."""
        for kind, owner in self._owners(version):
            metadata, spec, status = owner.metadata, owner.spec, owner.status
            replicas = 1 if spec.replicas is None else spec.replicas
            if kind == REPLICA_SET:
                has_parent = any(above.kind == DEPLOYMENT for above in metadata.owner_references)
                return metadata.annotations.desired_replicas if has_parent else replicas
            if not has_observed(metadata.generation, status.observed_generation):
                return None
            if kind == DAEMON_SET:
                return status.desired_number_scheduled
            return max(replicas - (spec.kept_pods or 0), 0)
        return None

    def _has_others(self, version: WorkloadVersion, kind: str, owner: Owner) -> bool:
        """Whether pods of another version serve beside those of an owner."""
        status = owner.status
        if kind == REPLICA_SET:
            own = recorded_owners(version)
            return any(
                sibling.status.available_replicas
                for sibling in self._caches.alike_replica_sets(owner)
                if sibling.metadata.uid not in own
            )
        pods = status.current_number_scheduled if kind == DAEMON_SET else status.replicas
        updated = status.updated_number_scheduled if kind == DAEMON_SET else status.updated_replicas
        return pods > updated

    async def _refusal(self, version: WorkloadVersion) -> str:
        """Return why stages do not apply to the owners of a version; "" if they do."""
        metadata, spec = version.metadata, version.spec
        workload = self._caches.workloads.store.get(f"{metadata.namespace}/{spec.workload_name}")
        if shared := describe_owners(workload):
            return f"{shared}: {SHARING_ADVICE}"
        place = (metadata.namespace, metadata.name)
        if any(pod.is_in_scheduler for pod in self._caches.pods.store.by_index(_BY_VERSION, place)):
            return "its pods wait in a scheduler: set gating to schedulingGates"
        for _, owner in self._owners(version):
            if owner.spec.kept_pods is None:
                return "the update strategy OnDelete replaces no pods: use RollingUpdate"
            for above in owner.metadata.owner_references:
                if above.kind == ROLLOUT:
                    return "a Rollout of Argo has steps of its own: use those"
                if above.kind == DEPLOYMENT:
                    live = await spec_of(self._client, DEPLOYMENT, above.name, metadata.namespace)
                    if (live.get("strategy") or {}).get("type") == "Recreate":
                        return "the strategy Recreate ends all former pods: use RollingUpdate"
        return ""
