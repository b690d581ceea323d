"""Starts the controllers of the lifecycle: reconcilers on shared caches, each with its queue."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from harbourmaster import __version__
from harbourmaster.controller.controller import Controller
from harbourmaster.controller.evaluation.evaluation_reconciler import EvaluationReconciler
from harbourmaster.controller.extender.extender import start as start_extender
from harbourmaster.controller.lifecycle import watches
from harbourmaster.controller.lifecycle.app_versions import AppVersionReconciler
from harbourmaster.controller.lifecycle.apps import AppReconciler
from harbourmaster.controller.lifecycle.caches import LifecycleCaches
from harbourmaster.controller.lifecycle.config import ConfigReconciler
from harbourmaster.controller.lifecycle.configuration import ConfigurationHolder
from harbourmaster.controller.lifecycle.context import Context
from harbourmaster.controller.lifecycle.creation_requests import CreationRequestReconciler
from harbourmaster.controller.lifecycle.failed_nodes import FailedNodeReconciler
from harbourmaster.controller.lifecycle.history import HistoryReconciler
from harbourmaster.controller.lifecycle.metric_values import MetricValues
from harbourmaster.controller.lifecycle.metrics import LifecycleMetrics
from harbourmaster.controller.lifecycle.mistakes import (
    report_definition_mistakes,
    report_pod_mistakes,
)
from harbourmaster.controller.lifecycle.pods import GatedPodReconciler
from harbourmaster.controller.lifecycle.signals import Channels, Signals
from harbourmaster.controller.lifecycle.task_definitions import TaskDefinitionReconciler
from harbourmaster.controller.lifecycle.tasks import TaskReconciler
from harbourmaster.controller.lifecycle.wait_events import WaitEventReconciler
from harbourmaster.controller.lifecycle.workload_versions import WorkloadVersionReconciler
from harbourmaster.controller.lifecycle.workloads import WorkloadReconciler
from harbourmaster.controller.runtime import Runnables

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from harbourmaster.controller.controller import Reconciler
    from harbourmaster.controller.runtime import Runtime
    from harbourmaster.kube.workqueue import WorkQueue
    from harbourmaster.lifecycle.keptn_config import LifecycleConfiguration

RECONCILERS: Final[Mapping[str, Callable[[Context], Reconciler]]] = {
    watches.CONFIG: ConfigReconciler,
    watches.TASK_DEFINITIONS: TaskDefinitionReconciler,
    watches.WORKLOADS: WorkloadReconciler,
    watches.CREATION_REQUESTS: CreationRequestReconciler,
    watches.APPS: AppReconciler,
    watches.APP_VERSIONS: AppVersionReconciler,
    watches.WORKLOAD_VERSIONS: WorkloadVersionReconciler,
    watches.TASKS: TaskReconciler,
    watches.EVALUATIONS: EvaluationReconciler,
    watches.EVALUATION_DEFINITIONS: report_definition_mistakes,
    watches.MISTAKES: report_pod_mistakes,
    watches.FAILED_NODES: FailedNodeReconciler,
    watches.WAIT_EVENTS: WaitEventReconciler,
    watches.HISTORY: HistoryReconciler,
}
"""Reconcilers by the name of their controller, without that of pods, which gets its queue."""


def start(runtime: Runtime) -> Runnables:
    """Start the reconcilers of the lifecycle, and answer a scheduler if the settings say so."""
    client, metrics = runtime.client, runtime.metrics
    settings, scheduler = runtime.settings.lifecycle, runtime.settings.scheduler
    namespaces = tuple(dict.fromkeys((runtime.namespace, *settings.definition_namespaces)))
    caches = LifecycleCaches(client, metrics.watches, runtime.metric_caches, scheduler, settings)
    namespaces_now = caches.include(runtime.namespaces).store
    excluded = frozenset(runtime.excluded_namespaces)

    def has_gates(name: str) -> bool:
        namespace = namespaces_now.get(name)
        return namespace is not None and namespace.is_annotated and name not in excluded

    # Before any controller, so that every listener finds the configuration in force.
    configuration = ConfigurationHolder(caches, namespaces)
    keptn_metrics, measures = LifecycleMetrics(metrics.registry), MetricValues(caches)
    channels = Channels(
        client,
        configuration,
        metrics,
        keptn_metrics,
        identity=runtime.identity,
        namespace=runtime.namespace,
        release=__version__,
        tracer=runtime.tracer,
    )
    context = Context(
        client=client,
        caches=caches,
        settings=settings,
        configuration=configuration,
        signals=Signals(caches, channels, settings.event_vocabulary),
        now=runtime.now,
        namespace=runtime.namespace,
        scheduler=scheduler,
        references=runtime.settings.cross_namespace_references,
        has_gates=has_gates,
    )
    by_name = {
        name: Controller(
            name,
            partial(_reconciler, context, name),
            metrics,
            # Those events share an allowance, which one worker keeps, and deletions have time.
            workers=1 if name in {watches.WAIT_EVENTS, watches.HISTORY} else settings.workers,
            reflectors=caches.reflectors,
        )
        for name in (watches.GATES, *RECONCILERS)
        # Only pods that wait in a scheduler avoid nodes.
        if name != watches.FAILED_NODES or scheduler.enabled
    }
    watches.Watches(caches, by_name).connect()

    def note_configuration(_configuration: LifecycleConfiguration) -> None:
        # Their waits depend on it.
        for name in (watches.CREATION_REQUESTS, watches.WORKLOAD_VERSIONS):
            by_name[name].enqueue_all()

    def note_leading(*, leading: bool) -> None:
        # Keptn's metrics are those of the leader.
        keptn_metrics.lead(measures if leading else None)

    configuration.on_change(note_configuration)
    extender = start_extender(runtime, caches.workload_versions)
    return Runnables(
        controllers=(*by_name.values(), *extender.controllers),
        background=(channels.run, caches.wait_watches.run, *extender.background),
        on_leading=(note_leading,),
        shared_caches={
            "app_versions": caches.app_versions,
            "workloads": caches.workloads,
            "workload_versions": caches.workload_versions,
            "tasks": caches.tasks,
            "task_definitions": caches.task_definitions,
            "evaluations": caches.evaluations,
            "evaluation_definitions": caches.evaluation_definitions,
            "metrics": caches.metrics,
            "analyses": caches.analyses,
            "analysis_definitions": caches.analysis_definitions,
            "gated_pods": caches.pods,
            "waits": caches.wait_watches,
        },
    )


def _reconciler(context: Context, name: str, queue: WorkQueue) -> Reconciler:
    if name == watches.GATES:
        return GatedPodReconciler(context, queue.add)
    return RECONCILERS[name](context)
