"""The part of placement that reaches member clusters: two controllers on shared caches."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from harbourmaster.api.times import utc_now
from harbourmaster.controller.controller import Controller
from harbourmaster.controller.placement.context import DeploymentCaches, DeploymentContext
from harbourmaster.controller.placement.deployer import Deployer
from harbourmaster.controller.placement.members import Members
from harbourmaster.controller.placement.monitor import Monitor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from harbourmaster.controller.controller import Reconciler
    from harbourmaster.controller.placement.settings import MemberSettings
    from harbourmaster.kube.client import Client
    from harbourmaster.kube.events import EventRecorder
    from harbourmaster.kube.workqueue import WorkQueue
    from harbourmaster.telemetry.controller_metrics import ControllerMetrics

CLUSTERS: Final = "clusters"
DEPLOYER: Final = "deployer"


class Deployment:
    """The two controllers, their caches and the member clusters that they reach."""

    def __init__(
        self,
        client: Client,
        settings: MemberSettings,
        *,
        events: EventRecorder,
        metrics: ControllerMetrics,
        caches: DeploymentCaches | None = None,
        now: Callable[[], datetime] = utc_now,
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
        )
        self._monitor: Monitor | None = None
        self._deployer: Deployer | None = None
        made = partial(Controller, metrics=metrics, reflectors=self.caches.reflectors)
        self._clusters = made(CLUSTERS, self._start_monitor, workers=8)
        self._applications = made(DEPLOYER, self._start_deployer, workers=settings.workers)
        self.controllers = (self._clusters, self._applications)
        self.caches.clusters.subscribe(self._clusters.changed)
        self.caches.clusters.subscribe(self._clusters_of_applications_changed)
        self.caches.applications.subscribe(self._applications.changed)
        self.caches.applications.subscribe(self._users_changed)

    def _start_monitor(self, _queue: WorkQueue) -> Reconciler:
        self._monitor = Monitor(self._context)
        return self._monitor

    def _start_deployer(self, queue: WorkQueue) -> Reconciler:
        self._deployer = Deployer(self._context, queue.add)
        return self._deployer

    def _cluster_changed(self, key: str) -> None:
        self._clusters.changed([key])
        self._clusters_of_applications_changed([key])

    def _clusters_of_applications_changed(self, keys: Iterable[str]) -> None:
        if self._deployer is not None:
            for key in keys:
                self._applications.changed(self._deployer.of_cluster(key))

    def _objects_changed(self, uids: Iterable[str]) -> None:
        if self._deployer is not None:
            self._applications.changed(self._deployer.of_objects(uids))

    def _users_changed(self, _keys: frozenset[str]) -> None:
        """Clusters that are to go wait for their applications to leave."""
        if self._monitor is not None and self._monitor.ending:
            self._clusters.changed(self._monitor.ending)
