"""Finds pods of versions with stages for which a person has to act.

StatefulSets and DaemonSets recreate lost pods from the newest template, of which a held stage
releases none, so that a drain can cost a quorum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harbourmaster.api.resources import PODS
from harbourmaster.controller.lifecycle.signals import Reference
from harbourmaster.controller.lifecycle.staged_releases import spec_of
from harbourmaster.gates.owners import DAEMON_SET, DEPLOYMENT, REPLICA_SET, STATEFUL_SET
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

    async def look(self, version: WorkloadVersion) -> PhaseNotice | None:
        """Return a notice if a held version lacks more pods than its owner's strategy allows.

        Raises ApiError.
        """
        key, stage = version.metadata.key, version.status.stage
        self._caches.excess_pods.pop(key, None)
        owners = [*self._caches.owners_of(version).values()]
        if stage is None or stage.state != HELD or not owners:
            return None
        kind, name, wanted, available = self._count(*owners[-1])
        if wanted <= available:
            return None
        spec = await spec_of(self._client, kind, name, version.metadata.namespace)
        strategy = spec.get("strategy") or spec.get("updateStrategy") or {}
        default = "25%" if kind == DEPLOYMENT else 1
        limit = (strategy.get("rollingUpdate") or {}).get("maxUnavailable", default)
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

    async def report_stuck(self, version: WorkloadVersion) -> None:
        """Report pods of a superseded version that an ordered StatefulSet never replaces.

        Raises ApiError.
        """
        owner, own = version.spec.resource_reference, version.metadata
        self._caches.excess_pods.pop(own.key, None)
        if owner.kind != STATEFUL_SET or not version.spec.stages:
            return
        spec = await spec_of(self._client, owner.kind, owner.name, own.namespace)
        if spec.get("podManagementPolicy") != "OrderedReady":
            return
        for pod in self._caches.staged_releases.unready_pods(version):
            text = f"StatefulSet {owner.name} replaces only ready pods: unless {pod.name} becomes "
            text += f"ready, run kubectl -n {own.namespace} delete pod {pod.name}"
            for about in (version, Reference(PODS, pod)):
                self._signals.emit(about, PHASE, "PodStuck", text, warning=True)
