"""Reports the state of each Cluster, and keeps the sessions with all of them.

See krake-spec 1.3, 7.1.

A Cluster with applications on it does not go: its finalizer waits until they have left, and what
is left of them is cleaned up. One that does not answer waits for no cleaning.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from harbourmaster.api.resources import CLUSTERS
from harbourmaster.api.times import format_rfc3339
from harbourmaster.controller.objects import reference
from harbourmaster.controller.placement.context import BY_CLUSTER
from harbourmaster.controller.placement.writes import write
from harbourmaster.kube.errors import NotFoundError
from harbourmaster.placement.cluster_state import (
    CONNECTING,
    ClusterObservation,
    limit_names,
    observe,
)
from harbourmaster.placement.deployed import FINALIZER
from harbourmaster.placement.rollout import Reach

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harbourmaster.controller.placement.context import DeploymentContext
    from harbourmaster.placement.deployed import DeployedApplication, MemberCluster

_SHOWN: Final = 5


class ClusterReconciler:
    """Reconciles one Cluster; keys are ``namespace/name``."""

    def __init__(self, context: DeploymentContext) -> None:
        self._context = context
        self._clusters = context.caches.clusters.store
        self._applications = context.caches.applications.store
        self._ending: set[str] = set()

    def map_changes(self, keys: Iterable[str] | None) -> Iterable[str]:
        """All: each has a session to be kept."""
        return list(self._clusters.keys()) if keys is None else keys

    @property
    def ending(self) -> frozenset[str]:
        """The clusters that wait for their applications to leave."""
        return frozenset(self._ending)

    async def close(self) -> None:
        """Leave all clusters."""
        await self._context.members.close()

    async def reconcile(self, key: str) -> float | None:
        """Follow one cluster, and write what is seen of it. Raises ApiError."""
        cluster = self._clusters.get(key)
        if cluster is None:
            self._ending.discard(key)
            self._context.members.drop(key)
            return None
        self._context.members.follow(cluster)
        # It may be gone, of which the watch is about to tell.
        with contextlib.suppress(NotFoundError):
            # A write is an event, which brings the version to go on with.
            if not await self._keep_finalizer(key, cluster):
                await self._write(key, cluster)
        return None

    async def _write(self, key: str, cluster: MemberCluster) -> None:
        """Write the status where something else is seen."""
        if cluster.spec.kubeconfig_secret_ref is None:
            # The scheduler writes the status of a cluster that is not created yet.
            return
        members = self._context.members
        session, status = members.session(key), cluster.status
        observation, resources = ClusterObservation(), status.custom_resources
        kinds = status.served_kinds
        if session is not None:
            observation = session.observation
            if status.state == CONNECTING and observation.answers and not session.is_steady:
                return
            known = session.custom_resources
            resources = resources if known is None else limit_names(known)
            if observation.answers:
                kinds = session.kinds or ()
                # A part of them would exclude the cluster.
                kinds = kinds if limit_names(kinds) == kinds else ()
        elif members.reach(key) is Reach.NO:
            # Without a session it is the kubeconfig that is at fault.
            observation = ClusterObservation(False, members.fault(key), is_denied=True)
        if not cluster.spec.discover_custom_resources:
            resources = kinds = ()
        now, generation = format_rfc3339(self._context.now()), cluster.metadata.generation
        percent = self._context.settings.min_ready_nodes_percent
        verdict = observe(status.state, status.conditions, observation, now, generation, percent)
        before = (status.state, status.conditions, status.custom_resources, status.served_kinds)
        if before == (verdict.state, verdict.conditions, resources, kinds):
            return
        fields = {
            "state": verdict.state,
            "conditions": verdict.conditions,
            "customResources": resources or None,
            "servedKinds": kinds or None,
        }
        await write(self._context.client, CLUSTERS, cluster.metadata, {"status": fields})

    async def _keep_finalizer(self, key: str, cluster: MemberCluster) -> bool:
        """Hold the object while it is in use, and let it go then; whether that took a write."""
        held = FINALIZER in cluster.metadata.finalizers
        if not cluster.metadata.deletion_timestamp:
            self._ending.discard(key)
            if held or cluster.spec.kubeconfig_secret_ref is None:
                return False
            await self._set_finalizers(cluster, (*cluster.metadata.finalizers, FINALIZER))
            return True
        if not held:
            return False
        users = [user.metadata.name for user in self._users(key)]
        if users:
            if key not in self._ending:
                self._tell(cluster, users)
            self._ending.add(key)
            return False
        others = tuple(
            finalizer for finalizer in cluster.metadata.finalizers if finalizer != FINALIZER
        )
        await self._set_finalizers(cluster, others)
        return True

    def _users(self, key: str) -> Iterable[DeployedApplication]:
        """The applications that the cluster must still be there for."""
        name = key.partition("/")[2]
        is_lost = self._context.members.reach(key) is Reach.NO
        for application in self._applications.by_index(BY_CLUSTER, key):
            if is_lost and application.metadata.deletion_timestamp:
                # It waits for the cluster, and neither would ever be deleted.
                continue
            status = application.status
            bound = (status.scheduled_to, status.running_on)
            used = any(reference is not None and reference.name == name for reference in bound)
            recorded = (*status.inventory, *(() if is_lost else status.pending_cleanup))
            if used or any(objects.cluster == name for objects in recorded):
                yield application

    def _tell(self, cluster: MemberCluster, users: list[str]) -> None:
        more = f" and {len(users) - _SHOWN} more" if len(users) > _SHOWN else ""
        self._context.events.emit(
            reference(CLUSTERS, cluster.metadata),
            "Warning",
            "InUse",
            f"waits for applications to leave: {', '.join(sorted(users)[:_SHOWN])}{more}",
        )

    async def _set_finalizers(self, cluster: MemberCluster, finalizers: tuple[str, ...]) -> None:
        value = {"metadata": {"finalizers": finalizers}}
        await write(self._context.client, CLUSTERS, cluster.metadata, value, subresource=None)
