"""Starts the controllers of placement: what decides, what samples metrics, and what deploys."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from harbourmaster.api.resources import APP_VERSIONS, EVALUATION_DEFINITIONS, TASK_DEFINITIONS
from harbourmaster.controller.controller import Controller
from harbourmaster.controller.placement.caches import BY_NAMESPACE, PlacementCaches
from harbourmaster.controller.placement.checks import SHARED, ApplicationChecks
from harbourmaster.controller.placement.deployment import DeploymentControllers
from harbourmaster.controller.placement.metrics import PlacementMetrics, PlacementStates
from harbourmaster.controller.placement.scheduler import (
    CloudScheduler,
    ProjectScheduler,
    Scheduler,
    SchedulingContext,
)
from harbourmaster.controller.placement.snapshots import SampleReconciler, Samples, Snapshots
from harbourmaster.controller.runtime import Runnables
from harbourmaster.lifecycle.model import APPLICATION_PREFIX
from harbourmaster.placement.candidates import unready

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harbourmaster.controller.controller import Reconciler
    from harbourmaster.controller.evaluation.query_service import QueryService
    from harbourmaster.controller.runtime import Runtime
    from harbourmaster.kube.workqueue import WorkQueue

SCHEDULER: Final = "scheduler"
CLOUD_SCHEDULER: Final = "cloud-scheduler"
PROJECT_SCHEDULER: Final = "project-scheduler"
SAMPLER: Final = "sampler"
_MOMENT: Final = 0.5
"""Seconds for which answers are collected before applications are decided on again."""
_WORKERS: Final = 16
"""Decisions that are being written at the same time; deciding itself is one at a time."""


def start(runtime: Runtime, queries: QueryService, lifecycle: Mapping[str, Any]) -> Runnables:
    """Start what places applications; ``lifecycle`` are the caches that its controllers share."""
    controller = PlacementController(runtime, queries, lifecycle)
    return Runnables(
        controllers=(*controller.deciding, *controller.deployment.controllers),
        background=(controller.await_lifecycle,),
        shared_caches={
            "applications": controller.caches.applications,
            "clusters": controller.caches.clusters,
        },
    )


class PlacementController:
    """The controllers that decide, sample metrics and deploy, on shared caches."""

    def __init__(
        self, runtime: Runtime, queries: QueryService, lifecycle: Mapping[str, Any]
    ) -> None:
        client, metrics, settings = runtime.client, runtime.metrics, runtime.settings.placement
        self.caches = PlacementCaches(client, metrics.watches)
        self.deployment = DeploymentControllers(
            client,
            settings.members,
            events=runtime.events,
            metrics=metrics,
            now=runtime.now,
            since=lambda: runtime.placement_since,
            stateless_kinds=settings.stateless_kinds,
        )
        self._runtime = runtime
        self._queries = queries
        self._samples = Samples(self.caches, max_age=settings.max_age, clock=runtime.clock)
        self._snapshots = Snapshots(
            self.caches, self._samples, settings, now=runtime.now, clock=runtime.clock
        )
        shown = PlacementMetrics(metrics.registry)
        shown.follow(self._samples.count_without_value)
        placed = self.deployment.caches
        PlacementStates(
            metrics.registry, placed.applications.store.values, placed.clusters.store.values
        )
        self._context = context = SchedulingContext(
            client=client,
            caches=self.caches,
            settings=settings,
            snapshots=self._snapshots,
            events=runtime.events,
            metrics=shown,
            now=runtime.now,
            clock=runtime.clock,
            references=runtime.settings.cross_namespace_references,
            since=lambda: runtime.placement_since,
        )
        made = partial(Controller, metrics=metrics, reflectors=self.caches.reflectors)
        self._lifecycle = lifecycle
        self._sampler = made(SAMPLER, self._start_sampler)
        self._scheduler = made(SCHEDULER, self._start_scheduler, workers=_WORKERS)
        self._clouds = made(CLOUD_SCHEDULER, lambda _queue: CloudScheduler(context), workers=4)
        self._projects = made(PROJECT_SCHEDULER, lambda _queue: ProjectScheduler(context))
        self.deciding = (self._sampler, self._scheduler, self._clouds, self._projects)
        """The controllers that do not connect to member clusters."""
        self._known: dict[str, object] = {}
        """The parts of each cluster on which decisions depend, by key."""
        self._changed: set[str] = set()
        """The namespaces in which readings have changed."""
        self._subscribe()

    def _start_scheduler(self, _queue: WorkQueue) -> Reconciler:
        self._snapshots.begin()
        runtime = self._runtime
        places = (runtime.namespace, *runtime.settings.lifecycle.definition_namespaces)
        return Scheduler(self._context, ApplicationChecks(self._context, self._lifecycle, places))

    def _start_sampler(self, queue: WorkQueue) -> Reconciler:
        # What an earlier term knew is outdated.
        self._snapshots.outdate()
        return SampleReconciler(
            self._samples,
            self._queries,
            home=self._runtime.namespace,
            interval=self._runtime.settings.placement.sample_interval_seconds,
            wake=queue.add,
            tell=self._wake_users_soon,
        )

    def _subscribe(self) -> None:
        """Have each controller look when something changes that it depends on."""
        caches = self.caches
        caches.applications.subscribe(self._scheduler.enqueue)
        caches.magnum_clusters.subscribe(self._projects.enqueue)
        caches.clusters.subscribe(self._clusters_changed)
        caches.clouds.subscribe(self._neighbours_changed)
        caches.metrics.subscribe(self._neighbours_changed)
        caches.providers.subscribe(self._neighbours_changed)
        caches.projects.subscribe(lambda _keys: self._wake(set()))
        for cache in (caches.global_clouds, caches.global_metrics, caches.global_providers):
            cache.subscribe(lambda _keys: self._wake({""}))
        if self._lifecycle:
            self._lifecycle[SHARED[APP_VERSIONS]].subscribe(self._versions_changed)
            for kind in (TASK_DEFINITIONS, EVALUATION_DEFINITIONS):
                self._lifecycle[SHARED[kind]].subscribe(self._definitions_changed)

    async def await_lifecycle(self) -> None:
        """Have Applications decided on once the caches are filled that their checks read."""
        for name in SHARED.values() if self._lifecycle else ():
            await self._lifecycle[name].synced.wait()
        self._scheduler.enqueue_all()

    def _versions_changed(self, keys: frozenset[str]) -> None:
        """Have Applications decided on whose check has changed or is to be created again."""
        store = self._lifecycle[SHARED[APP_VERSIONS]].store
        versions = {key: store.get(key) for key in keys}
        self._scheduler.enqueue(
            f"{version.metadata.namespace}/{version.spec.app_name.removeprefix(APPLICATION_PREFIX)}"
            for version in versions.values()
            if version is not None and version.is_of_application
        )
        if None in versions.values():
            self._scheduler.enqueue(
                application.metadata.key
                for application in self.caches.applications.store.values()
                if (proposed := application.status.proposed) is not None
                and f"{application.metadata.namespace}/{proposed.check}" in keys
            )

    def _definitions_changed(self, _keys: frozenset[str]) -> None:
        applications = self.caches.applications.store.values()
        self._scheduler.enqueue(
            application.metadata.key for application in applications if application.status.proposed
        )

    def _clusters_changed(self, keys: frozenset[str]) -> None:
        namespaces = set()
        for key in keys:
            cluster = self.caches.clusters.store.get(key)
            seen = None
            if cluster is not None:
                metadata, status = cluster.metadata, cluster.status
                identity = (metadata.uid, metadata.labels, cluster.spec)
                offers = (status.custom_resources, status.served_kinds)
                seen = (*identity, unready(cluster), *offers, status.scheduled_to)
            if seen != self._known.get(key):
                namespaces.add(key.partition("/")[0])
            if seen is None:
                self._known.pop(key, None)
            else:
                self._known[key] = seen
        if namespaces:
            self._wake(namespaces)
        self._clouds.enqueue(keys)

    def _neighbours_changed(self, keys: frozenset[str]) -> None:
        self._wake({key.partition("/")[0] for key in keys})

    def _wake(self, namespaces: set[str]) -> None:
        self._sampler.enqueue_all()
        self._wake_users(namespaces)

    def _wake_users_soon(self, namespaces: set[str]) -> None:
        """Wake the users of all answers that arrive within a moment once."""
        if not self._changed:
            asyncio.get_running_loop().call_later(_MOMENT, self._sampled_now)
        self._changed |= namespaces

    def _sampled_now(self) -> None:
        self._wake_users(self._changed)
        self._changed = set()

    def _wake_users(self, namespaces: set[str]) -> None:
        """Have decided again what may go elsewhere now; an empty namespace stands for all."""
        self._snapshots.outdate()
        if "" in namespaces:
            for controller in (self._scheduler, self._clouds, self._projects):
                controller.enqueue_all()
            return
        applications, clusters = self.caches.applications.store, self.caches.clusters.store
        for namespace in namespaces:
            affected = applications.by_index(BY_NAMESPACE, namespace)
            self._scheduler.enqueue([application.metadata.key for application in affected])
            targets = clusters.by_index(BY_NAMESPACE, namespace)
            self._clouds.enqueue([target.metadata.key for target in targets])
        # A project is for Magnum clusters of any namespace.
        self._projects.enqueue_all()
