"""The part of placement that reaches member clusters: two controllers on shared caches."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from harbourmaster.api.times import utc_now
from harbourmaster.controller.controller import Controller
from harbourmaster.controller.placement.context import (
    BY_CLUSTER,
    BY_UID,
    DeploymentCaches,
    DeploymentContext,
)
from harbourmaster.controller.placement.deployment_memory import DeploymentMemory
from harbourmaster.controller.placement.deployment_pass import DeploymentPass
from harbourmaster.controller.placement.members import Members
from harbourmaster.controller.placement.monitor import ClusterReconciler
from harbourmaster.controller.placement.session import BusyError
from harbourmaster.kube.errors import NotFoundError
from harbourmaster.placement.confirmation import is_waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from datetime import datetime

    from harbourmaster.controller.controller import Reconciler
    from harbourmaster.controller.placement.settings import MemberSettings
    from harbourmaster.kube.client import Client
    from harbourmaster.kube.events import EventRecorder
    from harbourmaster.kube.workqueue import WorkQueue
    from harbourmaster.placement.rollout import Rest
    from harbourmaster.telemetry.controller_metrics import ControllerMetrics


_AGAIN: Final = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""Seconds until the next attempt at what has failed or is not done yet."""
_BUSY: Final = 5.0


class ApplicationReconciler:
    """Reconciles one Application; keys are ``namespace/name``; ``wake`` has one looked at again."""

    def __init__(self, context: DeploymentContext, wake: Callable[[str], None]) -> None:
        self._context = context
        self._wake = wake
        self._applications = context.caches.applications.store
        self._replaced: dict[str, frozenset[str]] = {}
        """The versions that our writes have replaced, until the watch shows a later one."""
        self._memories: dict[str, DeploymentMemory] = {}

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
        memory = self._memories.get(key)
        if memory is None or memory.uid != application.metadata.uid:
            memory = self._memories[key] = DeploymentMemory(application.metadata.uid)
        one_pass = DeploymentPass(self._context, application, memory, wake=lambda: self._wake(key))
        try:
            rest = await one_pass.run()
        except BusyError:
            # An application that leaves the cluster wakes this one; perhaps none does.
            return _BUSY
        except NotFoundError:
            # It went meanwhile, and the watch is about to tell.
            return None
        finally:
            self._replaced[key] = frozenset(one_pass.writer.replaced)
        return self._requeue_after(rest, one_pass, memory)

    def _requeue_after(
        self, rest: Rest, one_pass: DeploymentPass, memory: DeploymentMemory
    ) -> float | None:
        """Seconds until a look that no change asks for."""
        if not one_pass.is_unfinished:
            memory.attempts = 0
            return memory.seconds_left(one_pass.now, rest.until, one_pass.copies_until)
        seconds = _AGAIN[min(memory.attempts, len(_AGAIN) - 1)]
        memory.attempts += 1
        left = rest.until - one_pass.now
        return min(seconds, left) if left > 0 else seconds


CLUSTERS: Final = "clusters"
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
        )
        self._monitor: ClusterReconciler | None = None
        self._deployer: ApplicationReconciler | None = None
        made = partial(Controller, metrics=metrics, reflectors=self.caches.reflectors)
        self._clusters = made(CLUSTERS, self._start_monitor, workers=8)
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
        self._deployer = ApplicationReconciler(self._context, queue.add)
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
