"""The part of placement that reaches member clusters: two controllers on shared caches."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from harbourmaster.api.resources import CLUSTERS
from harbourmaster.api.times import format_rfc3339, utc_now
from harbourmaster.controller.controller import Controller
from harbourmaster.controller.objects import reference
from harbourmaster.controller.placement.context import (
    BY_CLUSTER,
    BY_UID,
    DeploymentCaches,
    DeploymentContext,
    DeploymentMemory,
)
from harbourmaster.controller.placement.deployment_pass import DeploymentPass
from harbourmaster.controller.placement.members import Members
from harbourmaster.controller.placement.revisions import load_spec
from harbourmaster.controller.placement.session import PACE, BusyError
from harbourmaster.controller.placement.writes import changes, write
from harbourmaster.kube.errors import NotFoundError
from harbourmaster.kube.event_series import Allowance, Limiter
from harbourmaster.placement.cluster_state import (
    CONNECTING,
    ClusterObservation,
    limit_names,
    observe,
)
from harbourmaster.placement.confirmation import is_waiting
from harbourmaster.placement.deployed import FINALIZER, DeployedSpec
from harbourmaster.placement.model import with_conditions
from harbourmaster.placement.rollout import Reach

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from datetime import datetime

    from harbourmaster.controller.controller import Reconciler
    from harbourmaster.controller.placement.settings import MemberSettings
    from harbourmaster.kube.client import Client
    from harbourmaster.kube.events import EventRecorder
    from harbourmaster.kube.workqueue import WorkQueue
    from harbourmaster.placement.deployed import DeployedApplication, MemberCluster
    from harbourmaster.placement.rollout import Rest
    from harbourmaster.telemetry.controller_metrics import ControllerMetrics


_decode_spec: Final = msgspec.json.Decoder(DeployedSpec).decode
_PASSES: Final = Allowance(burst=30, period=2.0)
"""Passes of one Application, whose objects may do so."""
_LIMITED: Final = 10_000
"""Clusters or applications whose allowances are remembered."""
_SHOWN: Final = 5
_AGAIN: Final = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""Seconds until the next attempt at what has failed or is not done yet."""


class ClusterReconciler:
    """Reports the state of each Cluster, and keeps a session with it (krake-spec 1.3, 7.1).

    A Cluster with applications on it is not deleted: its finalizer waits until they have left and
    their objects are removed. A Cluster that does not answer waits for no removal. Keys are
    ``namespace/name``.
    """

    def __init__(self, context: DeploymentContext) -> None:
        self._context = context
        self._clusters = context.caches.clusters.store
        self._applications = context.caches.applications.store
        self._ending: set[str] = set()
        self._writes = Limiter(PACE, _LIMITED)

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
                return await self._write(key, cluster)
        return None

    async def _write(self, key: str, cluster: MemberCluster) -> float | None:
        """Write the status where something else is seen; returns the seconds to wait for that."""
        if cluster.spec.kubeconfig_secret_ref is None:
            # The scheduler writes the status of a cluster that is not created yet.
            return None
        members = self._context.members
        session, status = members.session(key), cluster.status
        observation, resources = ClusterObservation(), status.custom_resources
        kinds = status.served_kinds
        if session is not None:
            observation = session.observation
            if status.state == CONNECTING and observation.answers and not session.is_steady:
                return None
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
        after = replace(status, custom_resources=resources, served_kinds=kinds)
        after = replace(after, state=verdict.state, conditions=verdict.conditions)
        if (judged := members.verdict(key)) and judged.reason:
            conditions = with_conditions(after.conditions, now, judged.condition(generation))
            after = replace(after, server=judged.bound, conditions=conditions)
        if after != status:
            # Our own write has us look again, so a pace of changes alone would not limit writes.
            if wait := self._writes.turn(key, asyncio.get_running_loop().time()):
                return wait
            value = {"status": changes(status, after)}
            await write(self._context.client, CLUSTERS, cluster.metadata, value)
        return None

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


class ApplicationReconciler:
    """Reconciles one Application; keys are ``namespace/name``, and come from ``queue``."""

    def __init__(self, context: DeploymentContext, queue: WorkQueue) -> None:
        self._context = context
        self._queue = queue
        self._applications = context.caches.applications.store
        self._replaced: dict[str, frozenset[str]] = {}
        """The versions that our writes have replaced, until the watch shows a later one."""
        self._memories: dict[str, DeploymentMemory] = {}
        self._passes = Limiter(_PASSES, _LIMITED)

    def map_changes(self, keys: Iterable[str] | None) -> Iterable[str]:
        """Return all keys: no single field says what is to be done."""
        return list(self._applications.keys()) if keys is None else keys

    def of_cluster(self, key: str) -> Iterator[str]:
        """The applications that a change of a cluster matters to."""
        return (
            application.metadata.key for application in self._applications.by_index(BY_CLUSTER, key)
        )

    def of_objects(self, uids: Iterable[str]) -> Iterator[str]:
        """The applications of these uids: their objects changed."""
        for uid in uids:
            for application in self._applications.by_index(BY_UID, uid):
                yield application.metadata.key

    async def reconcile(self, key: str) -> float | None:
        """Bring one application on its way. Raises ApiError of the management cluster."""
        application = self._applications.get(key)
        if application is None:
            self._memories.pop(key, None)
            self._replaced.pop(key, None)
            return None
        if application.metadata.resource_version in self._replaced.get(key, ()):
            return None
        if is_waiting(application.metadata, application.status, self._context.since()):
            return None
        if wait := self._passes.turn(key, asyncio.get_running_loop().time()):
            return wait
        memory = self._memories.get(key)
        if memory is None or memory.uid != application.metadata.uid:
            memory = self._memories[key] = DeploymentMemory(application.metadata.uid)
        one_pass = DeploymentPass(
            self._context, await self._checked(application, memory), memory, self._queue
        )
        try:
            rest = await one_pass.run()
        except BusyError:
            # An application that leaves the cluster wakes this one; perhaps none does.
            return self._context.settings.write_timeout_seconds
        except NotFoundError:
            # It went meanwhile, and the watch is about to tell.
            return None
        finally:
            self._replaced[key] = frozenset(one_pass.writer.replaced)
        return self._requeue_after(rest, one_pass, memory)

    async def _checked(
        self, application: DeployedApplication, memory: DeploymentMemory
    ) -> DeployedApplication:
        """Return the application in the generation that passed its checks last. Raises ApiError."""
        metadata, scheduled = application.metadata, application.status.scheduled_generation
        if application.spec.checks is None or scheduled in {0, metadata.generation}:
            memory.spec = None
            return application
        if memory.spec is None or memory.spec[0] != scheduled:
            text = await load_spec(self._context.client, metadata, scheduled)
            memory.spec = (scheduled, _decode_spec(text) if text is not None else None)
        spec = memory.spec[1]
        if spec is None:
            return application
        return replace(application, metadata=replace(metadata, generation=scheduled), spec=spec)

    def _requeue_after(
        self, rest: Rest, one_pass: DeploymentPass, memory: DeploymentMemory
    ) -> float | None:
        """Seconds until a look that no change asks for."""
        if not one_pass.is_unfinished:
            memory.attempts = 0
            ends = (rest.until, one_pass.copies_until, one_pass.gate_until)
            return memory.seconds_left(one_pass.now, *ends)
        seconds = _AGAIN[min(memory.attempts, len(_AGAIN) - 1)]
        memory.attempts += 1
        left = rest.until - one_pass.now
        return min(seconds, left) if left > 0 else seconds


MONITOR: Final = "clusters"
DEPLOYER: Final = "deployer"


class DeploymentControllers:
    """The two controllers, their caches and the member clusters that they reach."""

    def __init__(  # noqa: PLR0913 - what a process has, and knobs for tests
        self,
        client: Client,
        settings: MemberSettings,
        *,
        events: EventRecorder,
        metrics: ControllerMetrics,
        caches: DeploymentCaches | None = None,
        now: Callable[[], datetime] = utc_now,
        since: Callable[[], str] = str,
        stateless_kinds: tuple[str, ...] = (),
    ) -> None:
        self.caches = caches or DeploymentCaches(client, metrics.watches)
        self.members = Members(
            client,
            settings,
            now=now,
            on_change=self._cluster_changed,
            on_objects=self._objects_changed,
            on_crash=lambda name: metrics.restarts.labels(name).inc(),
        )
        self._context = DeploymentContext(
            client=client,
            caches=self.caches,
            settings=settings,
            members=self.members,
            events=events,
            now=now,
            since=since,
            stateless_kinds=stateless_kinds,
        )
        self._monitor: ClusterReconciler | None = None
        self._deployer: ApplicationReconciler | None = None
        made = partial(Controller, metrics=metrics, reflectors=self.caches.reflectors)
        self._clusters = made(MONITOR, self._start_monitor, workers=8)
        self._applications = made(DEPLOYER, self._start_deployer, workers=settings.workers)
        self.controllers = (self._clusters, self._applications)
        self.caches.clusters.subscribe(self._clusters.enqueue)
        self.caches.clusters.subscribe(self._clusters_of_applications_changed)
        self.caches.applications.subscribe(self._applications.enqueue)
        self.caches.applications.subscribe(self._users_changed)

    def _start_monitor(self, _queue: WorkQueue) -> Reconciler:
        self._monitor = ClusterReconciler(self._context)
        return self._monitor

    def _start_deployer(self, queue: WorkQueue) -> Reconciler:
        self._deployer = ApplicationReconciler(self._context, queue)
        return self._deployer

    def _cluster_changed(self, key: str) -> None:
        self._clusters.enqueue([key])
        self._clusters_of_applications_changed([key])

    def _clusters_of_applications_changed(self, keys: Iterable[str]) -> None:
        if self._deployer is not None:
            for key in keys:
                self._applications.enqueue(self._deployer.of_cluster(key))

    def _objects_changed(self, uids: Iterable[str]) -> None:
        if self._deployer is not None:
            self._applications.enqueue(self._deployer.of_objects(uids))

    def _users_changed(self, _keys: frozenset[str]) -> None:
        """Clusters that are to go wait for their applications to leave."""
        if self._monitor is not None and self._monitor.ending:
            self._clusters.enqueue(self._monitor.ending)
