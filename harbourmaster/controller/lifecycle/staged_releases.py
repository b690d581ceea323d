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
from harbourmaster.controller.lifecycle.owners import rank
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
    from collections.abc import Iterable, Iterator

    from harbourmaster.controller.lifecycle.caches import LifecycleCaches
    from harbourmaster.controller.lifecycle.owners import Owner
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

    uid: str
    time: float
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
        # By key of a version, then of a pod.
        self._releases: dict[str, dict[str, _Release]] = {}

    async def take(self, pod: Pod, version: WorkloadVersion) -> str:
        """Return the stage that releases a pod, "" for none: until then it waits for an event.

        The pod keeps its place if its release fails, which is tried again. Raises ApiError.
        """
        now, stage = asyncio.get_running_loop().time(), version.status.stage
        await self._ensure_list(version, now)
        releases = self._releases.setdefault(version.metadata.key, {})
        if stage is None:
            return ""
        if pod.key not in releases or releases[pod.key].uid != pod.uid:
            if self.room(version) <= 0:
                return ""
            present = self._store.get(pod.key)
            is_seen = present is not None and present.uid == pod.uid
            releases[pod.key] = _Release(pod.uid, now, is_seen)
        return str(stage.number)

    def room(self, version: WorkloadVersion) -> int:
        """Return how many more pods of a version with stages may be released."""
        allowed = pods_allowed(version, self._wanted(version))
        released = sum(pod.is_counted for pod in self._pods(version))
        pending = self._releases.get(version.metadata.key, {})
        return 0 if allowed is None else allowed - released - len(pending)

    def observe(self, keys: Iterable[str]) -> set[str]:
        """Note what the watch has brought; return the keys of the versions of changed pods."""
        changed = set()
        for key in keys:
            before, pod = self._known.pop(key, None), self._store.get(key)
            if pod is not None:
                self._known[key] = pod
            if pod != before:
                pods = filter(None, (before, pod))
                changed |= {f"{pod.namespace}/{pod.version}" for pod in pods}
        for version in changed:
            releases = self._releases.get(version, {})
            for key in releases.keys() & keys:
                self._follow(releases, key)
        return changed

    def _follow(self, releases: dict[str, _Release], key: str) -> None:
        release, pod = releases[key], self._store.get(key)
        if pod is not None and pod.uid == release.uid:
            releases[key] = replace(release, is_seen=True)
            if pod.is_released or pod.is_over:
                del releases[key]
        elif release.is_seen:
            del releases[key]

    async def _ensure_list(self, version: WorkloadVersion, now: float) -> None:
        """List the pods in a new term, and for a release that the watch does not bring."""
        pending = self._releases.get(version.metadata.key, {}).values()
        if any(not release.is_seen and now - release.time > _UNSEEN_SECONDS for release in pending):
            self.begin_term()
        async with self._listing:
            if not self._is_listed:
                await self._list(now)
                self._is_listed = True

    async def _list(self, now: float) -> None:
        token = ""
        while True:
            page = await self._client.list(
                PODS, label_selector=SELECTOR, metadata_only=True, continue_token=token
            )
            for raw in page.items:
                metadata = _decode_listed(raw).metadata
                notes = metadata.annotations
                present = self._store.get(metadata.key)
                is_known = present is not None and present.uid == metadata.uid
                if metadata.deletion_timestamp or not (STAGE_KEY in notes or was_released(notes)):
                    continue
                if present is None or not is_known or not present.is_released:
                    place = f"{metadata.namespace}/{_version_name(metadata)}"
                    release = _Release(metadata.uid, now, is_known)
                    self._releases.setdefault(place, {})[metadata.key] = release
            token = page.continue_token
            if not token:
                return

    async def look(self, version: WorkloadVersion) -> StagedPods:
        """Return the pods of a version, and what its owner says of others. Raises ApiError."""
        counted = [pod for pod in self._pods(version) if pod.is_counted]
        pending = self._releases.get(version.metadata.key, {})
        times = [pod.ready_since for pod in counted]
        are_ready = counted and not pending and all(times)
        return StagedPods(
            wanted=self._wanted(version),
            are_others_serving=any(
                self._has_others(version, *owned) for owned in self._owners(version)
            ),
            refusal=await self._refusal(version) if version.status.stage is None else "",
            released=len(counted) + len(pending),
            ready_since=max(times) if are_ready else None,
            progressed=max(times, default=""),
        )

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
