"""Starts the controllers of the lifecycle: reconcilers on shared caches, each with its queue."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Final, TypeAlias

from harbourmaster.controller.controller import Controller
from harbourmaster.controller.evaluation.evaluations import Evaluations
from harbourmaster.controller.extender.extender import start as start_extender
from harbourmaster.controller.lifecycle import watches
from harbourmaster.controller.lifecycle.apps import Apps
from harbourmaster.controller.lifecycle.caches import LifecycleCaches
from harbourmaster.controller.lifecycle.channels import Channels
from harbourmaster.controller.lifecycle.config import Configs, ConfigurationHolder
from harbourmaster.controller.lifecycle.context import Context
from harbourmaster.controller.lifecycle.creation_requests import CreationRequests
from harbourmaster.controller.lifecycle.failed_nodes import FailedNodes
from harbourmaster.controller.lifecycle.measures import Measures
from harbourmaster.controller.lifecycle.metrics import LifecycleMetrics
from harbourmaster.controller.lifecycle.pods import GatedPods
from harbourmaster.controller.lifecycle.signals import Signals
from harbourmaster.controller.lifecycle.task_definitions import TaskDefinitions
from harbourmaster.controller.lifecycle.tasks import Tasks
from harbourmaster.controller.lifecycle.versions import AppVersions
from harbourmaster.controller.lifecycle.workload_versions import WorkloadVersions
from harbourmaster.controller.lifecycle.workloads import Workloads
from harbourmaster.controller.parts import Part

if TYPE_CHECKING:
    from collections.abc import Callable

    from harbourmaster.controller.controller import Reconciler
    from harbourmaster.controller.parts import Process
    from harbourmaster.kube.workqueue import WorkQueue
    from harbourmaster.lifecycle.configuration import Configuration

Maker: TypeAlias = "Callable[[Context, Callable[[str], None]], Reconciler]"
"""Makes a reconciler; the second argument queues a key."""


def _plain(reconciler: Callable[[Context], Reconciler]) -> Maker:
    return lambda context, _wake: reconciler(context)


RECONCILERS: Final[dict[str, Maker]] = {
    watches.CONFIG: _plain(Configs),
    watches.TASK_DEFINITIONS: _plain(TaskDefinitions),
    watches.GATES: GatedPods,
    watches.WORKLOADS: _plain(Workloads),
    watches.CREATION_REQUESTS: _plain(CreationRequests),
    watches.APPS: _plain(Apps),
    watches.APP_VERSIONS: _plain(AppVersions),
    watches.WORKLOAD_VERSIONS: _plain(WorkloadVersions),
    watches.TASKS: _plain(Tasks),
    watches.EVALUATIONS: _plain(Evaluations),
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
IN_SCHEDULER: Final[dict[str, Maker]] = {watches.FAILED_NODES: _plain(FailedNodes)}
"""Those for pods that wait in a scheduler, besides."""


def start(process: Process) -> Part:
    """Start the reconcilers of the lifecycle, and answer a scheduler if the settings say so."""
    found = LifecycleController(process)
    extender = start_extender(process, found.caches.workload_versions)
    return Part(
        controllers=(*found.controllers, *extender.controllers),
        background=(found.run, *extender.background),
        on_leading=(found.note_leading,),
        shared_caches=found.caches.shared(_SHARED),
    )


class LifecycleController:
    """The reconcilers on shared caches, and the channels that report what happens."""

    def __init__(self, process: Process) -> None:
        client, metrics = process.client, process.metrics
        settings, scheduler = process.settings.lifecycle, process.settings.scheduler
        namespace = process.namespace
        caches = self.caches = LifecycleCaches(
            client, metrics.watches, process.keptn_metrics, scheduler
        )
        namespaces = tuple(dict.fromkeys((namespace, *settings.definition_namespaces)))
        # Before any controller, so that every listener of a KeptnConfig finds what it says.
        configuration = ConfigurationHolder(caches, namespaces)
        self._metrics = LifecycleMetrics(metrics.registry)
        self._measures = Measures(caches)
        self._channels = Channels(
            client,
            configuration,
            metrics,
            self._metrics,
            identity=process.identity,
            namespace=namespace,
            release=version("harbourmaster"),
            tracer=process.tracer,
        )
        context = Context(
            client=client,
            caches=caches,
            settings=settings,
            configuration=configuration,
            signals=Signals(caches, self._channels, settings.event_vocabulary),
            now=process.now,
            namespace=namespace,
            scheduler=scheduler,
        )

        def controller(name: str, make: Maker) -> Controller:
            def begin(queue: WorkQueue) -> Reconciler:
                return make(context, queue.add)

            return Controller(
                name, begin, metrics, workers=settings.workers, reflectors=caches.reflectors
            )

        makers = {**RECONCILERS, **(IN_SCHEDULER if scheduler.enabled else {})}
        by_name = {name: controller(name, make) for name, make in makers.items()}
        self.controllers = tuple(by_name.values())
        self._timed = (by_name[watches.CREATION_REQUESTS], by_name[watches.WORKLOAD_VERSIONS])
        watches.Watches(caches, by_name).connect()
        configuration.on_change(self._note_configuration)
        process.follow_definitions(caches.by_resource)

    async def run(self) -> None:
        """Report what happens, until cancelled."""
        await self._channels.run()

    def note_leading(self, *, leading: bool) -> None:
        """Expose Keptn's metrics on the leader, and nowhere else."""
        self._metrics.lead(self._measures if leading else None)

    def _note_configuration(self, _configuration: Configuration) -> None:
        # The times that they wait for follow from it.
        for controller in self._timed:
            controller.changed_all()
