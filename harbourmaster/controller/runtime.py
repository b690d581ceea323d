"""Defines what each controller of a process gets, and what it returns to be run."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from harbourmaster.api.times import utc_now
from harbourmaster.controller.caches import namespace_cache, secret_cache
from harbourmaster.controller.controller import Controller
from harbourmaster.controller.evaluation.caches import MetricCaches
from harbourmaster.controller.names import REGISTRATION
from harbourmaster.controller.objects import data_of
from harbourmaster.kube.reflector import Reflector
from harbourmaster.serving.certificates import MountedCertificate, SecretCertificate

if TYPE_CHECKING:
    from datetime import datetime

    from harbourmaster.certs.reload import TlsOptions
    from harbourmaster.controller.caches import LabelledNamespace
    from harbourmaster.controller.settings import ControllerSettings
    from harbourmaster.kube.client import Client
    from harbourmaster.kube.events import EventRecorder
    from harbourmaster.serving.certificates import ServingCertificate
    from harbourmaster.telemetry.controller_metrics import ControllerMetrics
    from harbourmaster.telemetry.spans import Tracer

Run = Callable[[], Coroutine[Any, Any, None]]
"""Works until cancelled."""


class Runnables(Struct, frozen=True, kw_only=True):
    """The controllers and tasks of one package, for the manager to run."""

    controllers: tuple[Controller, ...] = ()
    background: tuple[Run, ...] = ()
    """Tasks that run on every replica."""
    on_leading: tuple[Callable[..., None], ...] = ()
    """Called with the keyword ``leading`` when this process begins or ends to lead."""
    on_stopping: tuple[Callable[[], None], ...] = ()
    shared_caches: dict[str, Any] = {}
    """The caches that the dashboard reads, by its names for them."""
    more_caches: tuple[Reflector[Any], ...] = ()
    """The caches besides those that the controllers read."""


class Runtime:
    """The environment of the controllers of one process: settings, client and shared caches.

    ``now`` is the time in UTC; ``clock`` counts seconds.
    """

    def __init__(  # noqa: PLR0913 - what controllers need
        self,
        settings: ControllerSettings,
        client: Client,
        namespace: str,
        *,
        events: EventRecorder,
        metrics: ControllerMetrics,
        identity: str = "",
        tracer: Tracer | None = None,
        now: Callable[[], datetime] = utc_now,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self.client = client
        self.namespace = namespace
        """The namespace in which the controller runs."""
        self.identity = identity
        """The name of this replica."""
        self.events = events
        self.metrics = metrics
        self.tracer = tracer
        self.now = now
        self.clock = clock
        self.placement_since = ""
        """The timestamp since when placement is on, set before a term begins; empty before."""

    def note_crash(self, name: str) -> None:
        """Count the restart of a controller or of another task."""
        self.metrics.restarts.labels(name).inc()

    @cached_property
    def metric_caches(self) -> MetricCaches:
        """The caches of metrics and analyses."""
        return MetricCaches(self.client, self.metrics.watches)

    @cached_property
    def namespaces(self) -> Reflector[LabelledNamespace]:
        """The cache of Namespaces."""
        return namespace_cache(self.client, self.metrics.watches)

    @property
    def excluded_namespaces(self) -> tuple[str, ...]:
        """The namespaces that are never reviewed; our own is one of them."""
        return (*self.settings.webhook.excluded_namespaces, self.namespace)

    @cached_property
    def secret(self) -> Reflector[dict[str, Any]]:
        """The cache of the Secret with our certificates."""
        name = self.settings.certificates.secret_name
        return secret_cache(self.client, self.metrics.watches, self.namespace, name)

    def secret_data(self) -> dict[str, bytes]:
        """Return the data of the Secret with our certificates; empty if it does not exist."""
        secret_name = self.settings.certificates.secret_name
        return data_of(self.secret.store.get(f"{self.namespace}/{secret_name}"))

    def serving_certificate(
        self, served: str, options: TlsOptions, *, holds: bool = False
    ) -> ServingCertificate | None:
        """Return the certificate for the port named ``served``, or None if there is no source."""
        directory = self.settings.metrics.custom_metrics_cert_dir
        if directory is not None:
            return MountedCertificate(served, options, directory)
        if REGISTRATION not in self.settings.running:
            return None
        certificate = SecretCertificate(served, options, self.secret_data, self.now, holds=holds)
        self.secret.subscribe(lambda _keys: certificate.changed())
        return certificate
