"""Starts the controllers of metrics and analyses, and the ports that serve metric values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harbourmaster.controller.controller import Controller
from harbourmaster.controller.evaluation.analysis_reconciler import AnalysisReconciler
from harbourmaster.controller.evaluation.caches import (
    BY_PROVIDER,
    UNFINISHED,
    MetricContext,
)
from harbourmaster.controller.evaluation.collectors import (
    AnalysisCollector,
    AnalysisMetricValues,
    create_lateness,
)
from harbourmaster.controller.evaluation.metric_reconciler import MetricReconciler
from harbourmaster.controller.exposure.exposure import CLIENTS, Exposure
from harbourmaster.controller.runtime import Runnables

if TYPE_CHECKING:
    from harbourmaster.controller.evaluation.query_service import QueryService
    from harbourmaster.controller.runtime import Runtime

METRICS: Final = "metrics"
ANALYSES: Final = "analyses"


def start(runtime: Runtime, queries: QueryService) -> Runnables:
    """Start both controllers and the ports."""
    controller = MetricsController(runtime, queries)
    settings = runtime.settings
    certificate = None
    if settings.metrics.custom_metrics_api:
        certificate = runtime.serving_certificate("custom metrics", CLIENTS)
    # Every replica serves them from its cache, as it does metric values.
    results = AnalysisCollector()
    results.set_source(AnalysisMetricValues(controller.caches.analyses.store).read)
    exposure = Exposure(
        runtime.client,
        settings.metrics,
        runtime.metric_caches.metrics.store,
        host=settings.server.host,
        intervals=settings.lifecycle.stale_after_intervals,
        results=results,
        certificate=certificate,
        watches=runtime.metrics.watches,
    )
    return Runnables(controllers=controller.controllers, background=(exposure.run,))


class MetricsController:
    """The two controllers on shared caches, each with its queue."""

    def __init__(self, runtime: Runtime, queries: QueryService) -> None:
        registry = runtime.metrics.registry
        self.caches = runtime.metric_caches
        context = MetricContext(
            client=runtime.client,
            caches=self.caches,
            settings=runtime.settings.metrics,
            queries=queries,
            events=runtime.events,
            now=runtime.now,
            references=runtime.settings.cross_namespace_references,
            lateness=create_lateness(registry),
            results=AnalysisCollector(registry),
        )

        def controller(name: str, kind: type[MetricReconciler | AnalysisReconciler]) -> Controller:
            return Controller(
                name,
                lambda queue: kind(context, queue.add),
                runtime.metrics,
                workers=runtime.settings.metrics.workers,
                reflectors=self.caches.reflectors,
            )

        metrics = controller(METRICS, MetricReconciler)
        analyses = controller(ANALYSES, AnalysisReconciler)
        self.controllers = (metrics, analyses)
        self._subscribe(metrics, analyses)

    def _subscribe(self, metrics: Controller, analyses: Controller) -> None:
        """Wake each controller for changes of the objects that it depends on."""
        caches = self.caches
        caches.metrics.subscribe(metrics.enqueue)
        caches.analyses.subscribe(analyses.enqueue)

        def providers_changed(keys: frozenset[str]) -> None:
            for key in keys:
                namespace, _, name = key.partition("/")
                users = caches.metrics.store.by_index(BY_PROVIDER, (namespace, name))
                metrics.enqueue(user.metadata.key for user in users)

        caches.providers.subscribe(providers_changed)

        def definitions_changed(_keys: frozenset[str]) -> None:
            unfinished = caches.analyses.store.by_index(UNFINISHED, True)
            analyses.enqueue([analysis.metadata.key for analysis in unfinished])

        caches.providers.subscribe(definitions_changed)
        caches.definitions.subscribe(definitions_changed)
        caches.templates.subscribe(definitions_changed)
