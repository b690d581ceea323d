"""The lifecycle controller: reconcilers on shared caches, each with a queue of its own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeAlias

from harbourmaster.api.times import utc_now
from harbourmaster.controller.evaluation.evaluations import Evaluations
from harbourmaster.controller.extender.settings import SchedulerSettings
from harbourmaster.controller.job import Job
from harbourmaster.controller.lifecycle import wiring
from harbourmaster.controller.lifecycle.app_versions import AppVersions
from harbourmaster.controller.lifecycle.apps import Apps
from harbourmaster.controller.lifecycle.caches import Caches
from harbourmaster.controller.lifecycle.channels import Channels
from harbourmaster.controller.lifecycle.config import Configs, ConfigurationHolder
from harbourmaster.controller.lifecycle.context import Context
from harbourmaster.controller.lifecycle.creation_requests import CreationRequests
from harbourmaster.controller.lifecycle.failed_nodes import FailedNodes
from harbourmaster.controller.lifecycle.measures import Measures
from harbourmaster.controller.lifecycle.pods import GatedPods
from harbourmaster.controller.lifecycle.signals import Signals
from harbourmaster.controller.lifecycle.task_definitions import TaskDefinitions
from harbourmaster.controller.lifecycle.tasks import Tasks
from harbourmaster.controller.lifecycle.workload_versions import WorkloadVersions
from harbourmaster.controller.lifecycle.workloads import Workloads
from harbourmaster.kube.definitions import DefinitionsWatch
from harbourmaster.telemetry.lifecycle_metrics import LifecycleMetrics

if TYPE_CHECKING:
    from collections.abc import Callable

    from harbourmaster.controller.job import Reconciler
    from harbourmaster.controller.lifecycle.settings import LifecycleSettings
    from harbourmaster.evaluation.model import Metric
    from harbourmaster.kube.caches import SharedCache
    from harbourmaster.kube.client import Client
    from harbourmaster.kube.reflector import Reflector
    from harbourmaster.kube.workqueue import WorkQueue
    from harbourmaster.lifecycle.configuration import Configuration
    from harbourmaster.lifecycle.model import WorkloadVersion
    from harbourmaster.telemetry.controller_metrics import ControllerMetrics
    from harbourmaster.telemetry.spans import Tracer

Maker: TypeAlias = "Callable[[Context, Callable[[str], None]], Reconciler]"
"""Makes a reconciler; the second argument has a key looked at again."""


def _plain(reconciler: Callable[[Context], Reconciler]) -> Maker:
    return lambda context, _wake: reconciler(context)


RECONCILERS: Final[dict[str, Maker]] = {
    wiring.CONFIG: _plain(Configs),
    wiring.TASK_DEFINITIONS: _plain(TaskDefinitions),
    wiring.GATES: GatedPods,
    wiring.WORKLOADS: _plain(Workloads),
    wiring.CREATION_REQUESTS: _plain(CreationRequests),
    wiring.APPS: _plain(Apps),
    wiring.APP_VERSIONS: _plain(AppVersions),
    wiring.WORKLOAD_VERSIONS: _plain(WorkloadVersions),
    wiring.TASKS: _plain(Tasks),
    wiring.EVALUATIONS: _plain(Evaluations),
}
_SHARED: Final = {
    "app_versions": "app_versions",
    "workloads": "workloads",
    "workload_versions": "workload_versions",
    "tasks": "tasks",
    "task_definitions": "task_definitions",
    "evaluations": "evaluations",
    "evaluation_definitions": "evaluation_definitions",
    "metrics": "metrics",
    "gated_pods": "pods",
}
"""What the dashboard calls our caches."""
IN_SCHEDULER: Final[dict[str, Maker]] = {wiring.FAILED_NODES: _plain(FailedNodes)}
"""Those for pods that wait in a scheduler, besides."""


class LifecycleController:
    """One per process: what is known of the cluster, how it is told, and the jobs."""

    def __init__(  # noqa: PLR0913 - the parts of a process
        self,
        client: Client,
        settings: LifecycleSettings,
        *,
        namespace: str,
        identity: str,
        release: str,
        metrics: ControllerMetrics,
        tracer: Tracer | None = None,
        keptn_metrics: Reflector[Metric] | None = None,
        definitions: DefinitionsWatch | None = None,
        scheduler: SchedulerSettings = SchedulerSettings(),  # noqa: B008 - frozen
    ) -> None:
        caches = Caches(client, metrics.watches, keptn_metrics, scheduler)
        namespaces = tuple(dict.fromkeys((namespace, *settings.definition_namespaces)))
        # Before any job, so that whoever is woken by a KeptnConfig finds what it says.
        configuration = ConfigurationHolder(caches, namespaces)
        self._metrics = LifecycleMetrics(metrics.registry)
        self._measures = Measures(caches)
        self._channels = Channels(
            client,
            configuration,
            metrics,
            self._metrics,
            identity=identity,
            namespace=namespace,
            release=release,
            tracer=tracer,
        )
        self._context = Context(
            client=client,
            caches=caches,
            settings=settings,
            configuration=configuration,
            signals=Signals(caches, self._channels, settings.event_vocabulary),
            now=utc_now,
            namespace=namespace,
            scheduler=scheduler,
        )
        makers = {**RECONCILERS, **(IN_SCHEDULER if scheduler.enabled else {})}
        jobs = {name: self._job(name, make, metrics) for name, make in makers.items()}
        self.jobs = tuple(jobs.values())
        self._timed = (jobs[wiring.CREATION_REQUESTS], jobs[wiring.WORKLOAD_VERSIONS])
        wiring.Wiring(caches, jobs).connect()
        configuration.on_change(self._note_configuration)
        defined = {
            resource: mirror
            for resource, mirror in caches.mirrors.items()
            if not resource.is_built_in
        }
        self._definitions = None if definitions is not None else DefinitionsWatch(client, defined)
        if definitions is not None:
            definitions.follow(defined)

    @property
    def shared_caches(self) -> list[SharedCache]:
        """The caches that the dashboard reads."""
        return self._context.caches.shared(_SHARED)

    @property
    def versions(self) -> Reflector[WorkloadVersion]:
        """The mirror of workload versions, for who answers from it."""
        return self._context.caches.workload_versions

    async def run(self) -> None:
        """Tell what happens, and look for kinds that come, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._channels.run())
            if self._definitions is not None:
                group.create_task(self._definitions.run())

    def note_leading(self, *, leading: bool) -> None:
        """Show Keptn's metrics where we lead, and nowhere else."""
        self._metrics.lead(self._measures if leading else None)

    def _note_configuration(self, _configuration: Configuration) -> None:
        # Times that they wait for follow from it.
        for job in self._timed:
            job.changed_all()

    def _job(self, name: str, make: Maker, metrics: ControllerMetrics) -> Job:
        def start(queue: WorkQueue) -> Reconciler:
            return make(self._context, queue.add)

        job = Job(name, start, metrics, workers=self._context.settings.workers)
        job.reflectors = self._context.caches.reflectors
        return job
