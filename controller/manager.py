"""Starts and stops the parts of the controller process in order.

Start: health port, caches, election, controllers; stop in reverse. Every replica keeps its caches,
so the next leader works at once. Readiness is about the caches; who leads is a metric.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import socket
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from harbourmaster.api.times import utc_now
from harbourmaster.certs.bundle import CA_CERTIFICATE, TLS_CERTIFICATE, parse_certificates
from harbourmaster.certs.errors import CertificateError
from harbourmaster.controller.evaluation.controller import MetricsController
from harbourmaster.controller.exposure.exposure import CLIENTS, Exposure
from harbourmaster.controller.extender.answers import OUTCOMES, VERBS, Answers
from harbourmaster.controller.extender.extender import CLIENTS as SCHEDULERS
from harbourmaster.controller.extender.extender import Extender
from harbourmaster.controller.extender.rollouts import rollouts_job
from harbourmaster.controller.job import unguarded
from harbourmaster.controller.lifecycle.controller import LifecycleController
from harbourmaster.controller.namespaces import NamespaceController
from harbourmaster.controller.placement.controller import PlacementController
from harbourmaster.controller.registration.registration import Registration
from harbourmaster.controller.rescheduling.controller import RescheduleController
from harbourmaster.controller.rescheduling.switched_off import SwitchedOff
from harbourmaster.controller.settings import (
    LIFECYCLE,
    METRICS,
    NAMESPACES,
    PLACEMENT,
    REGISTRATION,
    RESCHEDULING,
)
from harbourmaster.kube.backoff import supervise
from harbourmaster.kube.election import LeaderElection
from harbourmaster.kube.events import EventRecorder
from harbourmaster.lifecycle.gate_verdict import GateWaitRules
from harbourmaster.serving.background import running
from harbourmaster.serving.certificates import MirroredCertificate, MountedCertificate
from harbourmaster.serving.health import health_app
from harbourmaster.serving.limits import Heartbeat
from harbourmaster.serving.readiness import Readiness
from harbourmaster.serving.site import Site
from harbourmaster.telemetry.extender_metrics import ExtenderMetrics
from harbourmaster.telemetry.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping

    from harbourmaster.certs.reload import TlsOptions
    from harbourmaster.controller.evaluation.questions import Questions
    from harbourmaster.controller.job import Guard, Job
    from harbourmaster.controller.settings import ControllerSettings
    from harbourmaster.dashboard.server import DashboardServer
    from harbourmaster.evaluation.model import Metric
    from harbourmaster.kube.client import Client
    from harbourmaster.kube.definitions import DefinitionsWatch
    from harbourmaster.kube.reflector import Reflector
    from harbourmaster.serving.certificates import ServingCertificate
    from harbourmaster.telemetry.controller_metrics import ControllerMetrics
    from harbourmaster.telemetry.spans import Tracer

LABELS: Final = {
    "app.kubernetes.io/component": "controller",
    "app.kubernetes.io/managed-by": "harbourmaster",
    "app.kubernetes.io/name": "harbourmaster",
}
SYNC_WAIT: Final = 15.0
"""Seconds for which a replica without full caches lets the others lead."""
HEARTBEAT: Final = 0.25
"""Seconds between two measurements of the event loop's lag."""
_ROLES: Final = {"authority": CA_CERTIFICATE, "leaf": TLS_CERTIFICATE}


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
        self._background: list[Callable[[], Coroutine[Any, Any, None]]] = [self._events.run]
        self._keptn_metrics: Reflector[Metric] | None = None
        self._definitions: DefinitionsWatch | None = None
        self._questions: Questions | None = None
        self._registration: Registration | None = None
        self.exposure: Exposure | None = None
        self.extender: Extender | None = None
        self._lifecycle: LifecycleController | None = None
        self._placement: PlacementController | None = None
        self._rescheduling: RescheduleController | None = None
        self._on_leading: list[Callable[..., None]] = [self._note_leading]
        self._on_stopping: list[Callable[[], None]] = []
        self._jobs = [job for name in settings.running for job in self._started(name)]
        self.dashboard = self._dashboard() if settings.dashboard.enabled else None
        if RESCHEDULING in settings.controllers and RESCHEDULING not in settings.running:
            self._jobs.append(SwitchedOff(client, settings.rescheduling, metrics).job)
        # Jobs may share caches.
        self._reflectors = tuple(
            dict.fromkeys(each for job in self._jobs for each in job.reflectors)
        )
        for job in self._jobs:
            job.tracer = tracer
        self._log = get_logger("controller")

    async def run(self, until: Callable[[], Awaitable[str]]) -> None:
        """Work until ``until`` returns, which gives the reason. Raises AddressError."""
        self.metrics.watches.follow(self._reflectors, asyncio.get_running_loop().time)
        self._readiness.add_probe("caches", self._probe)
        caches = (
            supervise(f"cache of {each.name}", each.run, self._note_crash)
            for each in self._reflectors
        )
        background = (each() for each in self._background)
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
            async with running(*background, *caches), running(self._stand()):
                reason = await until()
                self._readiness.set("stopping", "the process is stopping")
                self._log.info("stopping", signal=reason)
                for each in self._on_stopping:
                    each()
        finally:
            self._heartbeat.stop()
            await self.health.stop()
            if self._tracer is not None:
                await self._tracer.close()
        self._log.info("stopped")

    async def _stand(self) -> None:
        """Lead when it is our turn, again and again."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SYNC_WAIT):
                for reflector in self._reflectors:
                    await reflector.synced.wait()
        settings = self._settings.leader_election
        if not settings.enabled:
            self._tell_leading(leading=True)
            await self._lead(unguarded)
            return
        election = LeaderElection(
            self._client,
            name=settings.lease_name,
            namespace=self._namespace,
            identity=self._identity,
            lease_duration=settings.lease_duration_seconds,
            renew_deadline=settings.renew_deadline_seconds,
            retry_period=settings.retry_period_seconds,
            on_state=lambda leading: self._tell_leading(leading=leading),
            labels=LABELS,
        )
        await election.run(partial(self._lead, election.guarded))

    async def _lead(self, guard: Guard) -> None:
        """Run all controllers; one that crashes is started again and harms no other."""
        async with asyncio.TaskGroup() as group:
            for job in self._jobs:
                group.create_task(supervise(job.name, partial(job.lead, guard), self._note_crash))

    def _started(self, name: str) -> Iterable[Job]:
        settings = self._settings
        if name == REGISTRATION:
            registration = Registration(
                self._client,
                settings,
                self._namespace,
                events=self._events,
                metrics=self.metrics,
            )
            for role, key in _ROLES.items():
                self.metrics.certificate_expiry.labels(role).set_function(
                    partial(_seconds_left, registration.secret_data, key)
                )
            self._registration = registration
            return (registration.job,)
        if name == NAMESPACES:
            mirror = NamespaceController(
                self._client,
                excluded=(*settings.webhook.excluded_namespaces, self._namespace),
                events=self._events,
                metrics=self.metrics,
            )
            return (mirror.job,)
        if name == METRICS:
            metrics = MetricsController(
                self._client, settings.metrics, events=self._events, metrics=self.metrics
            )
            self._background.append(metrics.run)
            self._keptn_metrics = metrics.caches.metrics
            self._definitions = metrics.definitions
            self._questions = metrics.questions
            self.exposure = Exposure(
                self._client,
                settings.metrics,
                metrics.caches.metrics.store,
                host=settings.server.host,
                intervals=settings.lifecycle.stale_after_intervals,
                leaf=self._leaf("custom metrics", CLIENTS)
                if settings.metrics.custom_metrics_api
                else None,
                watches=self.metrics.watches,
            )
            self._background.append(self.exposure.run)
            return metrics.jobs
        if name == LIFECYCLE:
            lifecycle = LifecycleController(
                self._client,
                settings.lifecycle,
                namespace=self._namespace,
                identity=self._identity,
                release=version("harbourmaster"),
                metrics=self.metrics,
                tracer=self._tracer,
                keptn_metrics=self._keptn_metrics,
                definitions=self._definitions,
                scheduler=settings.scheduler,
            )
            self._lifecycle = lifecycle
            self._background.append(lifecycle.run)
            self._on_leading.append(lifecycle.note_leading)
            return (*lifecycle.jobs, *self._extend(lifecycle))
        if name == RESCHEDULING:
            rescheduling = RescheduleController(
                self._client,
                settings.rescheduling,
                namespace=self._namespace,
                identity=self._identity,
                metrics=self.metrics,
            )
            self._rescheduling = rescheduling
            self._background.append(rescheduling.run)
            self._on_leading.append(rescheduling.note_leading)
            self._on_stopping.append(rescheduling.note_stopping)
            return rescheduling.jobs
        if name == PLACEMENT:
            placement = PlacementController(
                self._client,
                settings.placement,
                asking=self._questions or settings.metrics,
                namespace=self._namespace,
                events=self._events,
                metrics=self.metrics,
                definitions=self._definitions,
            )
            self._placement = placement
            self._background.append(placement.run)
            return placement.jobs
        raise ValueError(f"no controller is called {name}")

    def _extend(self, lifecycle: LifecycleController) -> Iterable[Job]:
        """Answer a scheduler, where that is asked for; the jobs that come with it."""
        settings = self._settings.scheduler
        leaf = self._leaf("extender", SCHEDULERS, holds=True) if settings.enabled else None
        if leaf is None:
            return ()
        answers = Answers(
            lifecycle.versions,
            deadline=settings.pre_check_deadline_seconds,
            now=utc_now,
            scheduler=settings.scheduler_name,
        )
        self.extender = Extender(
            answers,
            leaf,
            ExtenderMetrics(self.metrics.registry, VERBS, OUTCOMES),
            host=settings.extender_host,
            port=settings.extender_port,
        )
        self._background.append(self.extender.run)
        if not settings.deployment:
            return ()
        job = rollouts_job(
            self._client,
            leaf,
            settings.deployment,
            self._namespace,
            events=self._events,
            metrics=self.metrics,
        )
        return (job,)

    def _dashboard(self) -> DashboardServer:
        """Pages for people; loaded only where they are wanted."""
        from harbourmaster.dashboard.mirrors import DashboardMirrors  # noqa: PLC0415
        from harbourmaster.dashboard.server import CLIENTS as PEOPLE  # noqa: PLC0415
        from harbourmaster.dashboard.server import DashboardServer  # noqa: PLC0415

        settings = self._settings
        mirrors = DashboardMirrors(
            self._client,
            metrics=self.metrics.watches,
            shared=[
                each
                for controller in (self._lifecycle, self._placement, self._rescheduling)
                if controller is not None
                for each in controller.shared_caches
            ],
        )
        if self._definitions is not None:
            self._definitions.follow(mirrors.optional)
        lifecycle = settings.lifecycle
        server = DashboardServer(
            self._client,
            settings.dashboard,
            mirrors,
            leaf=None if settings.dashboard.is_local else self._leaf("dashboard", PEOPLE),
            rules=GateWaitRules(
                max_age_seconds=lifecycle.max_gate_age_seconds,
                on_expiry=lifecycle.on_expiry,
                stale_after_intervals=lifecycle.stale_after_intervals,
            ),
            definition_namespaces=(self._namespace, *lifecycle.definition_namespaces),
            note_crash=self._note_crash,
        )
        self._background.append(server.run)
        return server

    def _leaf(
        self, served: str, options: TlsOptions, *, holds: bool = False
    ) -> ServingCertificate | None:
        """Where what is served with TLS has its certificate from; None where there is none."""
        directory = self._settings.metrics.custom_metrics_cert_dir
        if directory is not None:
            return MountedCertificate(served, options, directory)
        if self._registration is None:
            return None
        leaf = MirroredCertificate(
            served, options, self._registration.secret_data, utc_now, holds=holds
        )
        self._registration.on_secret.append(leaf.changed)
        return leaf

    async def _probe(self) -> str | None:
        missing = dict.fromkeys(text for job in self._jobs if (text := job.waiting_for()))
        return "; ".join(missing) or None

    def _tell_leading(self, *, leading: bool) -> None:
        for each in self._on_leading:
            each(leading=leading)

    def _note_leading(self, *, leading: bool) -> None:
        self.metrics.leader.set(leading)

    def _note_crash(self, name: str) -> None:
        self.metrics.restarts.labels(name).inc()


def _seconds_left(data: Callable[[], Mapping[str, bytes]], key: str) -> float:
    """Until the first certificate ends, for a metric; not a number where there is none."""
    try:
        end = parse_certificates(data().get(key), key)[0].not_valid_after_utc
    except (CertificateError, IndexError):
        return math.nan
    return (end - utc_now()).total_seconds()
