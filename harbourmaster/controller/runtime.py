"""What every controller of a process gets, and what it contributes to the process."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from harbourmaster.api.resources import NAMESPACES, SECRETS
from harbourmaster.api.times import utc_now
from harbourmaster.controller.controller import Controller
from harbourmaster.controller.evaluation.caches import metric_cache
from harbourmaster.controller.evaluation.query_service import create_query_service
from harbourmaster.controller.objects import data_of, decode_object
from harbourmaster.controller.registry import REGISTRATION
from harbourmaster.kube.caches import Cache
from harbourmaster.kube.definitions import DefinitionWatch
from harbourmaster.serving.certificates import MountedCertificate, SecretCertificate

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from harbourmaster.api.resources import Resource
    from harbourmaster.certs.reload import TlsOptions
    from harbourmaster.controller.evaluation.query_service import QueryService
    from harbourmaster.controller.namespaces import LabelledNamespace
    from harbourmaster.controller.settings import ControllerSettings
    from harbourmaster.evaluation.model import Metric
    from harbourmaster.kube.client import Client
    from harbourmaster.kube.events import EventRecorder
    from harbourmaster.kube.reflector import Reflector
    from harbourmaster.serving.certificates import ServingCertificate
    from harbourmaster.telemetry.controller_metrics import ControllerMetrics
    from harbourmaster.telemetry.spans import Tracer

Run = Callable[[], Coroutine[Any, Any, None]]
"""Works until cancelled."""


class Runnables(Struct, frozen=True, kw_only=True):
    """What a controller contributes to its process."""

    controllers: tuple[Controller, ...] = ()
    background: tuple[Run, ...] = ()
    """What runs on every replica."""
    on_leading: tuple[Callable[..., None], ...] = ()
    """Called with the keyword ``leading`` when this process begins or ends to lead."""
    on_stopping: tuple[Callable[[], None], ...] = ()
    shared_caches: dict[str, Cache[Any]] = {}
    """The caches that the dashboard reads, by its names for them."""


class Runtime:
    """What the controllers of one process get.

    What several of them share is made when the first of them asks for it, so they may start in any
    order. ``now`` is the time in UTC; ``clock`` counts seconds.
    """

    def __init__(  # noqa: PLR0913 - the parts of a process
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
        """Our own."""
        self.identity = identity
        """Of this replica."""
        self.events = events
        self.metrics = metrics
        self.tracer = tracer
        self.now = now
        self.clock = clock
        self.placement_since = ""
        """When placement was switched on, as a stamp; set before a term begins."""
        self.background: list[Run] = []
        """What runs for shared parts."""
        self._definitions: DefinitionWatch | None = None

    def follow_definitions(self, caches: Mapping[Resource, Reflector[Any]]) -> None:
        """Wake the caches of custom resources when their definitions come."""
        if self._definitions is None:
            self._definitions = DefinitionWatch(self.client, {})
            self.background.append(self._definitions.run)
        self._definitions.follow(
            {resource: each for resource, each in caches.items() if not resource.is_built_in}
        )

    @property
    def follows_definitions(self) -> bool:
        """Whether a controller asked for definitions, so that there is a right to read them."""
        return self._definitions is not None

    @cached_property
    def questions(self) -> QueryService:
        """QueryService to metric providers: what is asked at the same time is asked once."""
        found, keep = create_query_service(
            self.client, self.settings.metrics, self.metrics.registry
        )
        self.background.append(keep)
        return found

    @cached_property
    def keptn_metrics(self) -> Cache[Metric]:
        """The KeptnMetrics."""
        return metric_cache(self.client, self.metrics.watches)

    @cached_property
    def namespaces(self) -> Cache[LabelledNamespace]:
        """The Namespaces."""
        # The module imports this one.
        from harbourmaster.controller.namespaces import decode  # noqa: PLC0415

        return Cache(
            self.client, NAMESPACES, decode, metrics=self.metrics.watches, metadata_only=True
        )

    @property
    def excluded_namespaces(self) -> tuple[str, ...]:
        """Those that are never reviewed, our own among them."""
        return (*self.settings.webhook.excluded_namespaces, self.namespace)

    @cached_property
    def secret(self) -> Cache[dict[str, Any]]:
        """The Secret with our certificates."""
        return Cache(
            self.client,
            SECRETS,
            partial(decode_object, SECRETS),
            namespace=self.namespace,
            field_selector=f"metadata.name={self.settings.certificates.secret_name}",
            metrics=self.metrics.watches,
        )

    def secret_data(self) -> dict[str, bytes]:
        """Return what the Secret holds; empty without one."""
        secret_name = self.settings.certificates.secret_name
        return data_of(self.secret.store.get(f"{self.namespace}/{secret_name}"))

    def serving_certificate(
        self, served: str, options: TlsOptions, *, holds: bool = False
    ) -> ServingCertificate | None:
        """Return the certificate to serve ``served`` with; None where the settings name none."""
        directory = self.settings.metrics.custom_metrics_cert_dir
        if directory is not None:
            return MountedCertificate(served, options, directory)
        if REGISTRATION not in self.settings.running:
            return None
        certificate = SecretCertificate(served, options, self.secret_data, self.now, holds=holds)
        self.secret.subscribe(lambda _keys: certificate.changed())
        return certificate
