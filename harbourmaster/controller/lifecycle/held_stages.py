"""Finds pods of versions with stages for which a person has to act.

StatefulSets and DaemonSets recreate lost pods from the newest template, of which a held stage
releases none, so that a drain can cost a quorum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harbourmaster.api.resources import PODS
from harbourmaster.controller.lifecycle.signals import Reference
from harbourmaster.controller.lifecycle.staged_releases import SELECTOR, decode_staged
from harbourmaster.controller.lifecycle.writes import fetch
from harbourmaster.gates.owners import DAEMON_SET, DEPLOYMENT, REPLICA_SET, STATEFUL_SET, SUPPORTED
from harbourmaster.lifecycle.gated_pods import decode_whole
from harbourmaster.lifecycle.stages import HELD, PHASE
from harbourmaster.lifecycle.steps import PhaseNotice

if TYPE_CHECKING:
    from harbourmaster.controller.lifecycle.context import Context
    from harbourmaster.controller.lifecycle.owners import Owner
    from harbourmaster.lifecycle.model import WorkloadVersion


class HeldStages:
    """Counts the pods that held versions lack, in ``caches.excess_pods``, and names stuck pods."""

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._caches = context.caches
        self._signals = context.signals
        # By key of a version, read once while it is held.
        self._limits: dict[str, int | str] = {}

    async def look(self, version: WorkloadVersion) -> PhaseNotice | None:
        """Return a notice if a held version lacks more pods than its owner's strategy allows.

        Raises ApiError.
        """
        key, stage = version.metadata.key, version.status.stage
        self._caches.excess_pods.pop(key, None)
        owners = [*self._caches.owners_of(version).values()]
        if stage is None or stage.state != HELD or not owners:
            self._limits.pop(key, None)
            return None
        kind, name, wanted, available = self._count(*owners[-1])
        if key not in self._limits:
            spec = await self._spec_of(kind, name, version.metadata.namespace)
            strategy = spec.get("strategy") or spec.get("updateStrategy") or {}
            default = "25%" if kind == DEPLOYMENT else 1
            update = strategy.get("rollingUpdate") or {}
            self._limits[key] = update.get("maxUnavailable", default)
        limit = self._limits[key]
        if isinstance(limit, str):
            # Of a Deployment it is rounded down.
            share = wanted * int(limit.rstrip("%"))
            limit = share // 100 if kind == DEPLOYMENT else -(-share // 100)
        if wanted - available <= limit:
            return None
        self._caches.excess_pods[key] = wanted - available - limit
        text = f"more pods of {kind} {name} are unavailable than its maxUnavailable allows, and "
        text += "the held stage releases none: undo the rollout, or run harbourmaster gate promote"
        return PhaseNotice(phase=PHASE, state="PodsUnavailable", text=text, warning=True)

    def _count(self, kind: str, owner: Owner) -> tuple[str, str, int, int]:
        """Return kind and name of the workload, and its wanted and its available pods."""
        metadata, status = owner.metadata, owner.status
        if kind == DAEMON_SET:
            return kind, metadata.name, status.desired_number_scheduled, status.number_ready
        above = [parent.name for parent in metadata.owner_references if parent.kind == DEPLOYMENT]
        if kind != REPLICA_SET or not above:
            return kind, metadata.name, owner.spec.replicas or 0, status.available_replicas
        alike = (owner, *self._caches.alike_replica_sets(owner))
        available = sum(replica_set.status.available_replicas for replica_set in alike)
        return DEPLOYMENT, above[0], metadata.annotations.desired_replicas, available

    async def _spec_of(self, kind: str, name: str, namespace: str) -> dict[str, Any]:
        owner = await fetch(self._client, SUPPORTED[kind], dict[str, Any], name, namespace)
        return (owner or {}).get("spec") or {}

    async def report_stuck(self, version: WorkloadVersion) -> None:
        """Report pods of a superseded version that an ordered StatefulSet never replaces.

        Raises ApiError.
        """
        owner, own = version.spec.resource_reference, version.metadata
        if owner.kind != STATEFUL_SET or not version.spec.stages:
            return
        spec = await self._spec_of(owner.kind, owner.name, own.namespace)
        if spec.get("podManagementPolicy") != "OrderedReady":
            return
        page = await self._client.list(PODS, own.namespace, limit=0, label_selector=SELECTOR)
        for raw in page.items:
            pod, state = decode_whole(raw), decode_staged(raw)
            if state.version != own.name or state.ready_since or not state.is_counted:
                continue
            text = f"StatefulSet {owner.name} replaces only ready pods: unless {pod.name} becomes "
            text += f"ready, run kubectl -n {own.namespace} delete pod {pod.name}"
            for about in (version, Reference(PODS, pod.metadata)):
                self._signals.emit(about, PHASE, "PodStuck", text, warning=True)
