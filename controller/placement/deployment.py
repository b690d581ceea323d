"""The part of placement that reaches member clusters: two jobs on shared caches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harbourmaster.api.times import utc_now
from harbourmaster.controller.job import Job
from harbourmaster.controller.placement.context import DeploymentCaches, DeploymentContext
from harbourmaster.controller.placement.deployer import Deployer
from harbourmaster.controller.placement.members import Members
from harbourmaster.controller.placement.monitor import Monitor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from harbourmaster.controller.job import Reconciler
    from harbourmaster.controller.placement.settings import MemberSettings
    from harbourmaster.kube.client import Client
    from harbourmaster.kube.events import EventRecorder
    from harbourmaster.kube.workqueue import WorkQueue
    from harbourmaster.telemetry.controller_metrics import ControllerMetrics

CLUSTERS: Final = "clusters"
DEPLOYER: Final = "deployer"


class Deployment:
    """One per process: what is known, who is reached, and the jobs."""

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
        self._clusters = Job(CLUSTERS, self._start_monitor, metrics, workers=8)
        self._applications = Job(DEPLOYER, self._start_deployer, metrics, workers=settings.workers)
        for job in self.jobs:
            job.reflectors = self.caches.reflectors
        self.caches.subscribe(self.caches.clusters, self._clusters.changed)
        self.caches.subscribe(self.caches.clusters, self._clusters_of_applications_changed)
        self.caches.subscribe(self.caches.applications, self._applications.changed)
        self.caches.subscribe(self.caches.applications, self._users_changed)

    @property
    def jobs(self) -> tuple[Job, ...]:
        """What the leader does."""
        return (self._clusters, self._applications)

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
