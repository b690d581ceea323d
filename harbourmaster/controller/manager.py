"""Starts the health port, the caches, the election and the controllers, and stops them in reverse.

Every replica keeps its caches, so that the next leader works at once. A replica is ready when its
caches are filled; a metric says which one leads.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from functools import partial
from typing import TYPE_CHECKING, Final

from harbourmaster.api.times import format_rfc3339
from harbourmaster.controller.controller import run_unguarded
from harbourmaster.controller.names import PLACEMENT
from harbourmaster.controller.registry import start
from harbourmaster.controller.runtime import Runtime
from harbourmaster.kube.backoff import supervise
from harbourmaster.kube.election import LeaderElection
from harbourmaster.kube.events import EventRecorder
from harbourmaster.serving.background import running
from harbourmaster.serving.limits import Heartbeat
from harbourmaster.serving.readiness import Readiness, health_app
from harbourmaster.serving.site import Site
from harbourmaster.telemetry.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from harbourmaster.controller.controller import Guard
    from harbourmaster.controller.settings import ControllerSettings
    from harbourmaster.kube.client import Client
    from harbourmaster.telemetry.controller_metrics import ControllerMetrics
    from harbourmaster.telemetry.spans import Tracer

LABELS: Final = {
    "app.kubernetes.io/component": "controller",
    "app.kubernetes.io/managed-by": "harbourmaster",
    "app.kubernetes.io/name": "harbourmaster",
}
PLACEMENT_SINCE: Final = "placement.harbourmaster.dev/since"
"""The annotation of our Lease that says since when placement is switched on."""
SYNC_WAIT: Final = 15.0
"""Seconds for which a replica waits for its caches before it takes part in the election."""
HEARTBEAT: Final = 0.25
"""Seconds between two measurements of the event loop's lag."""


class Manager:
    """One controller process in the namespace ``namespace``."""

    def __init__(
        self,
        settings: ControllerSettings,
        client: Client,
        namespace: str,
        metrics: ControllerMetrics,
        tracer: Tracer | None = None,
    ) -> None:
        self._settings = settings
        self._client = client
        self._namespace = namespace
        self._identity = os.environ.get("POD_NAME") or socket.gethostname()
        self._readiness = Readiness()
        self.metrics = metrics
        self._tracer = tracer
        self._heartbeat = Heartbeat(HEARTBEAT, metrics.event_loop_lag.set)
        self.health = Site(
            health_app(self._readiness, self.metrics.registry),
            host=settings.server.host,
            port=settings.server.health_port,
        )
        self._events = EventRecorder(
            client,
            controller="controller",
            instance=self._identity,
            on_outcome=lambda outcome: self.metrics.events.labels(outcome).inc(),
        )
        self._runtime = runtime = Runtime(
            settings,
            client,
            namespace,
            identity=self._identity,
            events=self._events,
            metrics=metrics,
            tracer=tracer,
        )
        groups = start(runtime)
        self.background = (
            self._events.run,
            *(run for group in groups for run in group.background),
        )
        """The tasks that run on every replica."""
        self._on_leading = [
            self._note_leading,
            *(callback for group in groups for callback in group.on_leading),
        ]
        self._on_stopping = [callback for group in groups for callback in group.on_stopping]
        self._controllers = [controller for group in groups for controller in group.controllers]
        # Controllers may share caches.
        self._reflectors = tuple(
            dict.fromkeys(
                reflector for controller in self._controllers for reflector in controller.reflectors
            )
        )
        for controller in self._controllers:
            controller.tracer = tracer
        self._log = get_logger("controller")

    async def run(self, until: Callable[[], Awaitable[str]]) -> None:
        """Work until ``until`` returns the reason to stop. Raises AddressError."""
        self.metrics.watches.follow(self._reflectors, asyncio.get_running_loop().time)
        self._readiness.add_probe("caches", self._probe)
        caches = (
            supervise(f"cache of {reflector.name}", reflector.run, self._runtime.note_crash)
            for reflector in self._reflectors
        )
        background = (run() for run in self.background)
        await self.health.start()
        self._heartbeat.start()
        try:
            self._log.info(
                "started",
                health=self.health.url,
                api_server=self._client.connection.server,
                namespace=self._namespace,
                controllers=list(self._settings.running),
                identity=self._identity,
            )
            async with running(*background, *caches), running(self._stand_for_election()):
                reason = await until()
                self._readiness.set("stopping", "the process is stopping")
                self._log.info("stopping", signal=reason)
                for callback in self._on_stopping:
                    callback()
        finally:
            self._heartbeat.stop()
            await self.health.stop()
            if self._tracer is not None:
                await self._tracer.close()
        self._log.info("stopped")

    async def _stand_for_election(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SYNC_WAIT):
                for reflector in self._reflectors:
                    await reflector.synced.wait()
        settings = self._settings.leader_election
        runtime = self._runtime
        if not settings.enabled:
            runtime.placement_since = format_rfc3339(runtime.now())
            self._report_leading(leading=True)
            await self._lead(run_unguarded)
            return
        election = LeaderElection(
            self._client,
            name=settings.lease_name,
            namespace=self._namespace,
            identity=self._identity,
            lease_duration=settings.lease_duration_seconds,
            renew_deadline=settings.renew_deadline_seconds,
            retry_period=settings.retry_period_seconds,
            on_state=lambda leading: self._report_leading(leading=leading),
            labels=LABELS,
            marks={PLACEMENT_SINCE: PLACEMENT in self._settings.running},
        )

        async def work() -> None:
            runtime.placement_since = election.marks.get(PLACEMENT_SINCE, "")
            await self._lead(election.guard)

        await election.run(work)

    async def _lead(self, guard: Guard) -> None:
        """Run all controllers; one that crashes is restarted without the others."""
        async with asyncio.TaskGroup() as group:
            for controller in self._controllers:
                lead = partial(controller.lead, guard)
                group.create_task(supervise(controller.name, lead, self._runtime.note_crash))

    async def _probe(self) -> str | None:
        missing = dict.fromkeys(
            text for controller in self._controllers if (text := controller.unfilled_caches())
        )
        return "; ".join(missing) or None

    def _report_leading(self, *, leading: bool) -> None:
        for callback in self._on_leading:
            callback(leading=leading)

    def _note_leading(self, *, leading: bool) -> None:
        self.metrics.leader.set(leading)
