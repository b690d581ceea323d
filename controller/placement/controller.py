"""The controller of placement: what decides, what samples metrics, and what deploys."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Final

from harbourmaster.api.times import utc_now
from harbourmaster.controller.evaluation.controller import http_and_asker
from harbourmaster.controller.evaluation.questions import Questions
from harbourmaster.controller.job import Job
from harbourmaster.controller.placement.backends import CloudScheduler, ProjectScheduler
from harbourmaster.controller.placement.caches import BY_NAMESPACE, PlacementCaches
from harbourmaster.controller.placement.deployment import Deployment
from harbourmaster.controller.placement.samples import Sampler, Samples
from harbourmaster.controller.placement.scheduler import Scheduler, SchedulingContext
from harbourmaster.controller.placement.snapshots import Snapshots
from harbourmaster.kube.definitions import DefinitionsWatch
from harbourmaster.placement.candidates import unready
from harbourmaster.telemetry.placement_metrics import PlacementMetrics

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from harbourmaster.controller.evaluation.settings import MetricsSettings
    from harbourmaster.controller.job import Reconciler
    from harbourmaster.controller.placement.settings import PlacementSettings
    from harbourmaster.kube.caches import SharedCache
    from harbourmaster.kube.client import Client
    from harbourmaster.kube.events import EventRecorder
    from harbourmaster.kube.workqueue import WorkQueue
    from harbourmaster.providers.http import Http
    from harbourmaster.telemetry.controller_metrics import ControllerMetrics

SCHEDULER: Final = "scheduler"
CLOUD_SCHEDULER: Final = "cloud-scheduler"
PROJECT_SCHEDULER: Final = "project-scheduler"
SAMPLER: Final = "sampler"
_WORKERS: Final = 16
"""Decisions that are being written at the same time; deciding itself is one at a time."""


class PlacementController:
    """One per process, in the namespace ``namespace``.

    Providers are asked by way of ``asking``, or, where nobody else asks, as those settings say.
    """

    def __init__(  # noqa: PLR0913 - the world of a controller
        self,
        client: Client,
        settings: PlacementSettings,
        *,
        namespace: str,
        asking: Questions | MetricsSettings,
        events: EventRecorder,
        metrics: ControllerMetrics,
        definitions: DefinitionsWatch | None = None,
        now: Callable[[], datetime] = utc_now,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.caches = PlacementCaches(client, metrics.watches)
        self.deployment = Deployment(
            client, settings.members, events=events, metrics=metrics, now=now
        )
        self._settings = settings
        self._registry = metrics.registry
        self._namespace = namespace
        self._http: Http | None = None
        self._questions = asking if isinstance(asking, Questions) else self._asked(client, asking)
        self._clock = clock
        self._samples = Samples(self.caches, max_age=settings.max_age, clock=clock)
        self._snapshots = Snapshots(self.caches, self._samples, settings, now=now, clock=clock)
        shown = PlacementMetrics(metrics.registry)
        shown.follow(self._samples.count_without_value)
        self._context = SchedulingContext(
            client=client,
            caches=self.caches,
            settings=settings,
            snapshots=self._snapshots,
            events=events,
            metrics=shown,
            now=now,
            clock=clock,
        )
        self._sampler = Job(SAMPLER, self._start_sampler, metrics)
        self._scheduler = Job(
            SCHEDULER, lambda _queue: Scheduler(self._context), metrics, workers=_WORKERS
        )
        self._clouds = Job(
            CLOUD_SCHEDULER, lambda _queue: CloudScheduler(self._context), metrics, workers=4
        )
        self._projects = Job(
            PROJECT_SCHEDULER, lambda _queue: ProjectScheduler(self._context), metrics
        )
        self._known: dict[str, object] = {}
        """Of each cluster what decisions see of it."""
        for job in (self._sampler, self._scheduler, self._clouds, self._projects):
            job.reflectors = self.caches.reflectors
        self._wire()
        self._definitions = None
        if definitions is None:
            definitions = self._definitions = DefinitionsWatch(client, {})
        definitions.follow(self.caches.mirrors)
        definitions.follow(self.deployment.caches.mirrors)

    @property
    def deciding(self) -> tuple[Job, ...]:
        """What decides, and samples metrics for that; nothing of it reaches member clusters."""
        return (self._sampler, self._scheduler, self._clouds, self._projects)

    @property
    def shared_caches(self) -> list[SharedCache]:
        """The caches that the dashboard reads."""
        return self.caches.shared({"applications": "applications", "clusters": "clusters"})

    @property
    def jobs(self) -> tuple[Job, ...]:
        """What the leader does."""
        return (*self.deciding, *self.deployment.jobs)

    async def run(self) -> None:
        """Keep connections to providers, and look for kinds that come, where nobody else does."""
        async with contextlib.AsyncExitStack() as stack:
            if self._http is not None:
                await stack.enter_async_context(self._http)
            if self._definitions is not None:
                await self._definitions.run()
            await asyncio.get_running_loop().create_future()

    def _asked(self, client: Client, settings: MetricsSettings) -> Questions:
        self._http, asker = http_and_asker(client, settings, self._registry)
        return Questions(client, asker)

    def _start_sampler(self, queue: WorkQueue) -> Reconciler:
        # What was known in an earlier term is not known now.
        self._snapshots.outdate()
        settings = self._settings
        return Sampler(
            self._samples,
            self.caches,
            self._questions,
            home=self._namespace,
            interval=settings.sample_interval_seconds,
            max_age=settings.max_age,
            clock=self._clock,
            wake=queue.add,
            tell=self._sampled,
        )

    def _wire(self) -> None:
        """Have the right ones look when something changes."""
        caches = self.caches
        caches.subscribe(caches.applications, self._scheduler.changed)
        caches.subscribe(caches.magnum_clusters, self._projects.changed)
        caches.subscribe(caches.clusters, self._clusters_changed)
        caches.subscribe(caches.clouds, self._neighbours_changed)
        caches.subscribe(caches.metrics, self._neighbours_changed)
        caches.subscribe(caches.providers, self._neighbours_changed)
        caches.subscribe(caches.projects, lambda _keys: self._wake(set()))
        for mirror in (caches.global_clouds, caches.global_metrics, caches.global_providers):
            caches.subscribe(mirror, lambda _keys: self._wake({""}))

    def _clusters_changed(self, keys: frozenset[str]) -> None:
        namespaces = set()
        for key in keys:
            found = self.caches.clusters.store.get(key)
            seen = None
            if found is not None:
                metadata, status = found.metadata, found.status
                identity = (metadata.uid, metadata.labels, found.spec)
                seen = (*identity, unready(found), status.custom_resources, status.scheduled_to)
            if seen != self._known.get(key):
                namespaces.add(key.partition("/")[0])
            if seen is None:
                self._known.pop(key, None)
            else:
                self._known[key] = seen
        if namespaces:
            self._wake(namespaces)
        self._clouds.changed(keys)

    def _neighbours_changed(self, keys: frozenset[str]) -> None:
        self._wake({key.partition("/")[0] for key in keys})

    def _wake(self, namespaces: set[str]) -> None:
        self._sampler.changed_all()
        self._sampled(namespaces)

    def _sampled(self, namespaces: set[str]) -> None:
        """Have decided again what may go elsewhere now; an empty namespace stands for all."""
        self._snapshots.outdate()
        if "" in namespaces:
            for job in (self._scheduler, self._clouds, self._projects):
                job.changed_all()
            return
        applications, clusters = self.caches.applications.store, self.caches.clusters.store
        for each in namespaces:
            found = applications.by_index(BY_NAMESPACE, each)
            self._scheduler.changed([one.metadata.key for one in found])
            targets = clusters.by_index(BY_NAMESPACE, each)
            self._clouds.changed([one.metadata.key for one in targets])
        # A project is for Magnum clusters of any namespace.
        self._projects.changed_all()
