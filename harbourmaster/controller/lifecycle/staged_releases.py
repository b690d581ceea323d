"""Counts the pods of versions that are released in stages, and says which may be released next.

The pods are the record: a release writes the stage on its pod. Releases that the watch has not
brought yet are kept in memory, and a new leader lists the pods before its first release.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from harbourmaster.api.metadata import Metadata
from harbourmaster.api.resources import PODS
from harbourmaster.controller.lifecycle.owners import Owner, rank
from harbourmaster.controller.lifecycle.writes import fetch
from harbourmaster.gates.gate import GATE
from harbourmaster.gates.owners import DAEMON_SET, DEPLOYMENT, REPLICA_SET, ROLLOUT, SUPPORTED
from harbourmaster.gates.release import was_released
from harbourmaster.gates.stages import STAGE_KEY, STAGED, STAGED_LABEL
from harbourmaster.gates.workload import workload_of
from harbourmaster.lifecycle.gated_pods import decode_object
from harbourmaster.lifecycle.stages import pods_allowed
from harbourmaster.lifecycle.steps import StagedPods
from harbourmaster.lifecycle.workload_owners import describe_owners
from harbourmaster.lifecycle.workloads import has_observed, names_of_pod, recorded_owners

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from harbourmaster.controller.lifecycle.caches import LifecycleCaches
    from harbourmaster.kube.client import Client
    from harbourmaster.lifecycle.gated_pods import Pod
    from harbourmaster.lifecycle.model import WorkloadVersion

SELECTOR: Final = f"{STAGED_LABEL}={STAGED}"
_BY_VERSION: Final = "version"
_READY: Final = "Ready"
_ENDED: Final = frozenset(("Succeeded", "Failed"))
_UNSEEN_SECONDS: Final = 30.0
"""The time after which a release that the watch has not brought is looked for by a list."""


class StagedPod(Struct, frozen=True, gc=False):
    """A pod with our label, as far as the stages of its version depend on it."""

    namespace: str = ""
    uid: str = ""
    version: str = ""
    """The name of its KeptnWorkloadVersion."""
    is_released: bool = False
    is_over: bool = False
    """Whether it has ended or is being deleted."""
    ready_since: str = ""

    @property
    def is_counted(self) -> bool:
        """Whether it takes a place of its stage."""
        return self.is_released and not self.is_over


class _Release(Struct, frozen=True, gc=False):
    """A release that the watch has not brought yet."""

    pod: str
    """The key of the pod."""
    time: float
    """The time of the request, or of the last list that had the pod."""
    is_seen: bool
    """Whether the watch has brought the pod, so that its absence means that it is gone."""


class _Strategy(Struct, frozen=True, gc=False):
    type: str = ""


class _DeploymentSpec(Struct, frozen=True, gc=False):
    strategy: _Strategy = _Strategy()


class _Deployment(Struct, frozen=True, gc=False):
    spec: _DeploymentSpec = _DeploymentSpec()


class _Listed(Struct, frozen=True, gc=False):
    metadata: Metadata


_decode_listed: Final = msgspec.json.Decoder(_Listed).decode


def decode_staged(raw: msgspec.Raw | bytes) -> StagedPod:
    """Decode a pod with our label from its JSON. Raises msgspec.ValidationError."""
    pod = decode_object(raw)
    metadata, status = pod.metadata, pod.status
    ready = next((state for state in status.conditions if state.type == _READY), None)
    is_ready = ready is not None and ready.status == "True"
    return StagedPod(
        namespace=metadata.namespace,
        uid=metadata.uid,
        version=_version_name(metadata),
        is_released=all(gate.name != GATE for gate in pod.spec.scheduling_gates),
        is_over=bool(metadata.deletion_timestamp) or status.phase in _ENDED,
        ready_since=(ready.last_transition_time or "") if ready and is_ready else "",
    )


def versions_of_staged(pod: StagedPod) -> list[tuple[str, str]]:
    """Return namespace and name of the pod's workload version, if it names one."""
    return [(pod.namespace, pod.version)] if pod.version else []


def _leads_on(before: StagedPod | None, pod: StagedPod | None) -> bool:
    """Whether a change gives room to another pod, or completes a stage: a release does neither."""
    if before is None or pod is None:
        return pod is None or pod.is_counted
    return (before.uid, before.is_over, before.ready_since) != (
        pod.uid,
        pod.is_over,
        pod.ready_since,
    )


def _is_overdue(release: _Release, now: float) -> bool:
    return not release.is_seen and now - release.time > _UNSEEN_SECONDS


def _version_name(metadata: Metadata) -> str:
    described = workload_of(metadata.annotations, metadata.labels)
    return names_of_pod(described).version if described is not None else ""


class StagedReleases:
    """Decides on the releases of staged pods; ``begin_term`` comes before those of a leader."""

    def __init__(self, client: Client, caches: LifecycleCaches) -> None:
        self._client = client
        self._caches = caches
        self._store = caches.staged_pods.store
        self._listing = asyncio.Lock()
        self._known: dict[str, StagedPod] = {}
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
        version = self._caches.workload_versions.store.get(version.metadata.key) or version
        stage = version.status.stage
        if stage is None:
            return ""
        present = self._store.get(pod.key)
        is_seen = present is not None and present.uid == pod.uid
        is_released = is_seen and present is not None and present.is_released
        if not is_released and pod.uid not in self._releases.get(version.metadata.key, {}):
            if self.room(version) <= 0:
                return ""
            release = _Release(pod.key, asyncio.get_running_loop().time(), is_seen)
            self._releases.setdefault(version.metadata.key, {})[pod.uid] = release
        return str(stage.number)

    def give_back(self, pod: Pod, version: WorkloadVersion) -> None:
        """Give the room of a pod that is gone to another one."""
        self._releases.get(version.metadata.key, {}).pop(pod.uid, None)

    def seconds_to_list(self, version: WorkloadVersion) -> float | None:
        """Return when to ask again for room, because no event may come; else None."""
        pending = self._releases.get(version.metadata.key, {}).values()
        return None if all(release.is_seen for release in pending) else _UNSEEN_SECONDS + 1

    def room(self, version: WorkloadVersion) -> int:
        """Return how many more pods of a version with stages may be released."""
        allowed = pods_allowed(version, self._wanted(version))
        released = sum(pod.is_counted for pod in self._pods(version))
        pending = self._releases.get(version.metadata.key, {})
        return 0 if allowed is None else allowed - released - len(pending)

    def observe(self, keys: Collection[str]) -> set[str]:
        """Note what the watch has brought; return the keys of the versions that it may lead on."""
        changed, leading = set(), set()
        for key in keys:
            before, pod = self._known.pop(key, None), self._store.get(key)
            if pod is not None:
                self._known[key] = pod
            if pod != before:
                versions = {
                    f"{state.namespace}/{state.version}" for state in (before, pod) if state
                }
                changed |= versions
                if _leads_on(before, pod):
                    leading |= versions
        for version in changed:
            self._follow(self._releases.get(version, {}), keys)
        return leading

    def _follow(self, releases: dict[str, _Release], keys: Collection[str]) -> None:
        for uid, release in list(releases.items()):
            if release.pod not in keys:
                continue
            pod = self._store.get(release.pod)
            if pod is not None and pod.uid == uid:
                releases[uid] = replace(release, is_seen=True)
                if pod.is_released or pod.is_over:
                    del releases[uid]
            elif release.is_seen:
                del releases[uid]

    async def _ensure_list(self, version: WorkloadVersion) -> None:
        """List the pods in a new term, and for a release that the watch does not bring."""
        async with self._listing:
            now = asyncio.get_running_loop().time()
            pending = self._releases.get(version.metadata.key, {}).values()
            if not self._is_listed or any(_is_overdue(release, now) for release in pending):
                await self._list(now)
                self._is_listed = True

    async def _list(self, now: float) -> None:
        token, uids = "", set()
        while True:
            page = await self._client.list(
                PODS, label_selector=SELECTOR, metadata_only=True, continue_token=token
            )
            for raw in page.items:
                metadata = _decode_listed(raw).metadata
                notes = metadata.annotations
                uids.add(metadata.uid)
                present = self._store.get(metadata.key)
                is_known = present is not None and present.uid == metadata.uid
                if metadata.deletion_timestamp or not (STAGE_KEY in notes or was_released(notes)):
                    continue
                if present is None or not is_known or not present.is_released:
                    place = f"{metadata.namespace}/{_version_name(metadata)}"
                    release = _Release(metadata.key, now, is_known)
                    self._releases.setdefault(place, {})[metadata.uid] = release
            token = page.continue_token
            if not token:
                break
        for releases in self._releases.values():
            for uid, release in list(releases.items()):
                if _is_overdue(release, now):
                    # One that is still there waits for its patch, which is tried again.
                    releases[uid] = replace(release, time=now)
                    if uid not in uids:
                        del releases[uid]

    async def look(self, version: WorkloadVersion, *, is_deployed: bool = False) -> StagedPods:
        """Return the pods of a version, and what its owner says of others.

        ``is_deployed`` says that the owner has all pods ready, also those that came without a gate,
        for example because gates were switched off meanwhile. Raises ApiError.
        """
        await self._ensure_list(version)
        counted = [pod for pod in self._pods(version) if pod.is_counted]
        pending = self._releases.get(version.metadata.key, {})
        times = [pod.ready_since for pod in counted]
        are_ready = counted and not pending and all(times)
        stage, wanted, refusal = version.status.stage, self._wanted(version), ""
        released, ready_since = len(counted) + len(pending), max(times) if are_ready else None
        if is_deployed and wanted is None:
            # A newer ReplicaSet wants no pods either.
            wanted = 0
        if is_deployed and stage is not None and wanted and released < wanted:
            released, ready_since = wanted, max((*times, stage.since))
        are_others_serving = any(self._has_others(version, *pair) for pair in self._owners(version))
        if stage is None:
            refusal = await self._refusal(version)
            if wanted and not are_others_serving and await self._is_behind(version):
                wanted = None
        return StagedPods(
            wanted=wanted,
            are_others_serving=are_others_serving,
            refusal=refusal,
            released=released,
            ready_since=ready_since,
            progressed=max(times, default=""),
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

    def _pods(self, version: WorkloadVersion) -> tuple[StagedPod, ...]:
        place = (version.metadata.namespace, version.metadata.name)
        return self._caches.staged_pods.store.by_index(_BY_VERSION, place)

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
            return f"{shared}: give each its own keptn.sh/workload"
        place = (metadata.namespace, metadata.name)
        if any(pod.is_in_scheduler for pod in self._caches.pods.store.by_index(_BY_VERSION, place)):
            return "its pods wait in a scheduler: set webhook.gates to gate"
        for _, owner in self._owners(version):
            if owner.spec.kept_pods is None:
                return "the update strategy OnDelete replaces no pods: use RollingUpdate"
            for above in owner.metadata.owner_references:
                if above.kind == ROLLOUT:
                    return "a Rollout of Argo has steps of its own: use those"
                if above.kind == DEPLOYMENT:
                    deployment = await fetch(
                        self._client,
                        SUPPORTED[DEPLOYMENT],
                        _Deployment,
                        above.name,
                        metadata.namespace,
                    )
                    if deployment is not None and deployment.spec.strategy.type == "Recreate":
                        return "the strategy Recreate ends all former pods: use RollingUpdate"
        return ""
