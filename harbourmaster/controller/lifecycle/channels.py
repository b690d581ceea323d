"""The ways by which signals leave the process, as one thing to be run."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from harbourmaster.kube.event_series import Allowance
from harbourmaster.kube.events import EventRecorder
from harbourmaster.telemetry.cloud_events import CloudEventSender
from harbourmaster.telemetry.phase_spans import PhaseTracer

if TYPE_CHECKING:
    from collections.abc import Callable

    from harbourmaster.controller.lifecycle.configuration import ConfigurationHolder
    from harbourmaster.controller.lifecycle.metrics import LifecycleMetrics
    from harbourmaster.kube.client import Client
    from harbourmaster.telemetry.controller_metrics import ControllerMetrics
    from harbourmaster.telemetry.spans import Tracer

REPORTER: Final = "lifecycle"
QUEUE: Final = 10_000
"""Events that wait for the API server."""
PER_OBJECT: Final = Allowance(burst=200, period=1.5)
"""Phases, tasks and evaluations of one version are a few dozen; these are 200 in five minutes."""
OVERALL: Final = Allowance(burst=QUEUE, period=1 / 500)
SERIES: Final = 4096
LANES: Final = 16
"""Requests at the same time: with 20 ms for each, 800 events per second."""


class Channels:
    """Events, CloudEvents and spans, and the metrics that count them; ``run`` sends.

    ``identity`` is our pod, in ``namespace``; ``tracer`` is that of the process, for where no
    collector is configured at run time.
    """

    def __init__(  # noqa: PLR0913 - the parts of a process
        self,
        client: Client,
        configuration: ConfigurationHolder,
        metrics: ControllerMetrics,
        lifecycle_metrics: LifecycleMetrics,
        *,
        identity: str,
        namespace: str,
        release: str = "",
        tracer: Tracer | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.now = now
        self.metrics = lifecycle_metrics
        self.events = EventRecorder(
            client,
            controller=REPORTER,
            instance=identity,
            namespace=namespace,
            queue_size=QUEUE,
            per_object=PER_OBJECT,
            overall=OVERALL,
            series=SERIES,
            lanes=LANES,
            on_outcome=lambda outcome: metrics.events.labels(outcome).inc(),
        )
        self.cloud_events = CloudEventSender(
            lambda: configuration.current.cloud_events_endpoint, lifecycle_metrics.cloud_event
        )
        self.tracer = PhaseTracer(
            lambda: configuration.current.collector_url,
            {"service.version": release, "service.instance.id": identity},
            lambda outcome, count: metrics.spans.labels(outcome).inc(count),
            tracer,
        )

    async def run(self) -> None:
        """Send until cancelled, and then, for a few seconds at most, what is left."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.events.run())
                group.create_task(self.cloud_events.run())
        finally:
            await self.tracer.close()
