"""The controller of metrics and analyses: reconcilers on shared caches, each with its queue."""

from __future__ import annotations

import asyncio
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import urlsplit

from harbourmaster.api.times import utc_now
from harbourmaster.controller.evaluation.analyses import Analyses
from harbourmaster.controller.evaluation.caches import BY_PROVIDER, UNFINISHED, MetricCaches
from harbourmaster.controller.evaluation.context import MetricContext
from harbourmaster.controller.evaluation.metrics import Metrics
from harbourmaster.controller.evaluation.questions import Questions
from harbourmaster.controller.job import Job
from harbourmaster.kube.definitions import DefinitionsWatch
from harbourmaster.providers.asking import Asker
from harbourmaster.providers.http import Http
from harbourmaster.telemetry.analysis_metrics import AnalysisMetrics
from harbourmaster.telemetry.metric_schedule import MetricSchedule
from harbourmaster.telemetry.query_metrics import QueryMetrics

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client import CollectorRegistry

    from harbourmaster.controller.evaluation.settings import MetricsSettings
    from harbourmaster.controller.job import Reconciler
    from harbourmaster.kube.client import Client
    from harbourmaster.kube.events import EventRecorder
    from harbourmaster.kube.reflector import Reflector
    from harbourmaster.kube.workqueue import WorkQueue
    from harbourmaster.telemetry.controller_metrics import ControllerMetrics

Maker: TypeAlias = "Callable[[MetricContext, Callable[[str], None]], Reconciler]"
"""Makes a reconciler; the second argument has a key looked at again."""

METRICS: Final = "metrics"
ANALYSES: Final = "analyses"
_RECONCILERS: Final[dict[str, Maker]] = {METRICS: Metrics, ANALYSES: Analyses}


class MetricsController:
    """One per process: what is known of the cluster, who is asked, and the jobs."""

    def __init__(
        self,
        client: Client,
        settings: MetricsSettings,
        *,
        events: EventRecorder,
        metrics: ControllerMetrics,
    ) -> None:
        caches = MetricCaches(client, metrics.watches)
        self.caches = caches
        self._http, asker = http_and_asker(client, settings, metrics.registry)
        self.questions = Questions(client, asker)
        """Others may ask by it, too: what is asked at the same time is asked once."""
        self._context = MetricContext(
            client=client,
            caches=caches,
            settings=settings,
            questions=self.questions,
            events=events,
            now=utc_now,
            schedule=MetricSchedule(metrics.registry),
            verdicts=AnalysisMetrics(metrics.registry),
        )
        self._jobs = {name: self._job(name, metrics) for name in _RECONCILERS}
        self._wire()
        self.definitions = DefinitionsWatch(client, caches.mirrors)
        """Others may have it follow theirs, too: one watch is enough."""

    @property
    def jobs(self) -> tuple[Job, ...]:
        """What the leader does."""
        return tuple(self._jobs.values())

    async def run(self) -> None:
        """Keep connections to providers, and look for kinds that come, until cancelled."""
        async with self._http, asyncio.TaskGroup() as group:
            group.create_task(self.definitions.run())

    def _job(self, name: str, metrics: ControllerMetrics) -> Job:
        def start(queue: WorkQueue) -> Reconciler:
            return _RECONCILERS[name](self._context, queue.add)

        job = Job(name, start, metrics, workers=self._context.settings.workers)
        job.reflectors = self._context.caches.reflectors
        return job

    def _wire(self) -> None:
        """Have the right ones look when something changes."""
        caches = self._context.caches
        metrics, analyses = self._jobs[METRICS], self._jobs[ANALYSES]
        caches.subscribe(caches.metrics, metrics.changed)
        caches.subscribe(caches.analyses, analyses.changed)

        def asked(keys: frozenset[str]) -> None:
            for key in keys:
                namespace, _, name = key.partition("/")
                metrics.changed(
                    found.metadata.key
                    for found in caches.metrics.store.by_index(BY_PROVIDER, (namespace, name))
                )

        caches.subscribe(caches.providers, asked)

        def unfinished(_keys: frozenset[str]) -> None:
            store = caches.analyses.store
            analyses.changed([found.metadata.key for found in store.by_index(UNFINISHED, True)])

        mirrors: tuple[Reflector[Any], ...] = (
            caches.providers,
            caches.definitions,
            caches.templates,
        )
        for mirror in mirrors:
            caches.subscribe(mirror, unfinished)


def http_and_asker(
    client: Client, settings: MetricsSettings, registry: CollectorRegistry
) -> tuple[Http, Asker]:
    """Who asks providers, and by what; once for a registry."""
    http = Http(
        settings.allowed_addresses,
        (*settings.denied_addresses, *_own_addresses(client.connection.server)),
        max_bytes=settings.max_answer_bytes,
    )
    asker = Asker(
        http,
        timeout=settings.query_timeout_seconds,
        per_target=settings.queries_per_provider,
        observer=QueryMetrics(registry),
    )
    return http, asker


def _own_addresses(server: str) -> tuple[str, ...]:
    """That of the API server, which is no provider; on loopback others may have it, too."""
    host = urlsplit(server).hostname or ""
    try:
        found = ip_address(host)
    except ValueError:
        return ()
    return () if found.is_loopback else (host,)
