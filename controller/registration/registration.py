"""The controller of the registration: the Secret and whatever carries its authorities, in step.

Two keys, one worker: what the one writes is what the other waits for, and never both at a time.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from harbourmaster.api.resources import API_SERVICES, DEFINITIONS, SECRETS
from harbourmaster.api.times import utc_now
from harbourmaster.controller.job import Job
from harbourmaster.controller.registration import api_services, conversions
from harbourmaster.controller.registration.api_services import SERVED, decode_api_service
from harbourmaster.controller.registration.carried import Carried
from harbourmaster.controller.registration.certificates import Certificates, data_of, decode_object
from harbourmaster.controller.registration.configurations import RESOURCES, Configurations
from harbourmaster.controller.registration.conversions import CONVERTED, decode_converted
from harbourmaster.controller.settings import REGISTRATION
from harbourmaster.kube.errors import ApiError
from harbourmaster.kube.reflector import Reflector
from harbourmaster.registration import break_glass
from harbourmaster.registration.desired import NAME
from harbourmaster.registration.trust import Trust

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime

    import msgspec

    from harbourmaster.api.resources import Resource
    from harbourmaster.controller.registration.carried import Place
    from harbourmaster.controller.settings import ControllerSettings
    from harbourmaster.kube.client import Client
    from harbourmaster.kube.events import EventRecorder
    from harbourmaster.kube.workqueue import WorkQueue
    from harbourmaster.telemetry.controller_metrics import ControllerMetrics

CERTIFICATES: Final = "certificates"
CARRIERS: Final = "carriers"


class Registration:
    """The job and its caches."""

    def __init__(
        self,
        client: Client,
        settings: ControllerSettings,
        namespace: str,
        *,
        events: EventRecorder,
        metrics: ControllerMetrics,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self._client = client
        self._settings = settings
        self._namespace = namespace
        self._events = events
        self._metrics = metrics
        self._clock = clock
        self.job = Job(REGISTRATION, self._start, metrics)
        secret_name = settings.certificates.secret_name
        self._secrets: Reflector[dict[str, Any]] = Reflector(
            client,
            SECRETS,
            partial(decode_object, SECRETS),
            namespace=namespace,
            field_selector=f"metadata.name={secret_name}",
            on_change=self._secret_changed,
            metrics=metrics.watches,
        )
        self._configurations = {
            resource: Reflector(
                client,
                resource,
                partial(decode_object, resource),
                field_selector=f"metadata.name={NAME}",
                on_change=self._configuration_changed,
                metrics=metrics.watches,
            )
            for resource in RESOURCES
        }
        self._definitions = self._named(
            DEFINITIONS, CONVERTED, decode_converted, lambda name: f"conversion of {name}"
        )
        self._api_services = self._named(
            API_SERVICES,
            SERVED if settings.metrics.custom_metrics_api else (),
            decode_api_service,
            lambda name: f"apiservice {name}",
        )
        self.job.reflectors = (
            self._secrets,
            *self._configurations.values(),
            *self._definitions.values(),
            *self._api_services.values(),
        )
        self._secret_key = f"{namespace}/{secret_name}"
        self.on_secret: list[Callable[[], None]] = []
        """Called when the Secret has changed, on every replica."""

    def secret_data(self) -> dict[str, bytes]:
        """What the Secret is known to hold, on every replica."""
        return data_of(self._secrets.store.get(self._secret_key))

    def _start(self, queue: WorkQueue) -> _Work:
        trust = Trust()

        def ca_bundle() -> bytes:
            return trust.bundle(self.secret_data(), self._clock())

        configurations = Configurations(
            self._client,
            self._settings.webhook,
            self._namespace,
            {resource: each.store for resource, each in self._configurations.items()},
            ca_bundle=ca_bundle,
            events=self._events,
            metrics=self._metrics.registration,
        )
        home = self._settings.webhook.service_namespace or self._namespace

        def carried(place: Place, service: str, mirrors: Mapping[str, Reflector[Any]]) -> Carried:
            return Carried(
                self._client,
                place,
                (home, service),
                {name: each.store for name, each in mirrors.items()},
                ca_bundle=ca_bundle,
                events=self._events,
                metrics=self._metrics.registration,
            )

        carriers = Carriers(
            configurations,
            carried(conversions.PLACE, self._settings.webhook.service_name, self._definitions),
            carried(api_services.PLACE, self._settings.metrics.service_name, self._api_services),
        )
        # A leader before us may have trusted what the Secret has lost since.
        trust.remember(configurations.present_bundles(), self._clock())
        certificates = Certificates(
            self._client,
            self._settings.certificates,
            self._namespace,
            names_of(self._settings, self._namespace),
            self._secrets.store,
            trust=trust,
            carriers=carriers,
            on_announcement=lambda: queue.add(CARRIERS),
            events=self._events,
            clock=self._clock,
        )
        return _Work(certificates, carriers)

    def _configuration_changed(self, keys: frozenset[str]) -> None:
        self.job.changed(keys)
        # By every replica: who leads may change, and the glass stays broken.
        for resource, mirror in self._configurations.items():
            stands = break_glass.standing(mirror.store.get(NAME)) is not None
            self._metrics.registration.break_glass.labels(resource.kind).set(stands)

    def _secret_changed(self, keys: frozenset[str]) -> None:
        self.job.changed(keys)
        for each in self.on_secret:
            each()

    def _named(
        self,
        resource: Resource,
        names: Iterable[str],
        decode: Callable[[msgspec.Raw], Any],
        title: Callable[[str], str],
    ) -> dict[str, Reflector[Any]]:
        """One mirror for each of the objects, by their names; ``title`` gets the name's first."""
        return {
            name: Reflector(
                self._client,
                resource,
                decode,
                field_selector=f"metadata.name={name}",
                on_change=self.job.changed,
                metrics=self._metrics.watches,
                name=title(name.partition(".")[0]),
            )
            for name in names
        }


class Carriers:
    """All that a new authority has to reach before a serving certificate of it is served."""

    def __init__(self, configurations: Configurations, *others: Carried) -> None:
        self._configurations = configurations
        self._others = others

    def bundles(self) -> list[bytes]:
        """The caBundle seen wherever one should be; empty where it is missing."""
        return [*self._configurations.bundles(), *self._carried()]

    def present_bundles(self) -> list[bytes]:
        """The caBundle of each webhook, conversion and APIService that is there.

        None where no webhook is: the others come with the manifests, long before we serve.
        """
        present = list(self._configurations.present_bundles())
        return [*present, *self._carried()] if present else []

    async def reconcile(self) -> float:
        """Repair what needs it; one that fails keeps no other from it. Raises ApiError."""
        waits = []
        faults = []
        carriers: tuple[Configurations | Carried, ...] = (self._configurations, *self._others)
        for each in carriers:
            try:
                waits.append(await each.reconcile())
            except ApiError as error:
                faults.append(error)
        if faults:
            raise faults[0]
        return min(waits)

    def _carried(self) -> list[bytes]:
        return [bundle for each in self._others for bundle in each.bundles()]


class _Work:
    """One term of leading."""

    def __init__(self, certificates: Certificates, carriers: Carriers) -> None:
        self._certificates = certificates
        self._carriers = carriers

    def due(self, _keys: Iterable[str] | None) -> tuple[str, ...]:
        """Both: each depends on all that is watched, and a look that finds nothing costs little."""
        return (CERTIFICATES, CARRIERS)

    async def reconcile(self, key: str) -> float:
        """Bring the Secret, or what carries its authorities, to where it should be."""
        if key == CERTIFICATES:
            return await self._certificates.reconcile()
        return await self._carriers.reconcile()


def names_of(settings: ControllerSettings, namespace: str) -> tuple[str, ...]:
    """The names by which our Services are called; an API server uses the third of each."""
    home = settings.webhook.service_namespace or namespace
    services = [settings.webhook.service_name]
    if settings.metrics.custom_metrics_api:
        services.append(settings.metrics.service_name)
    if settings.scheduler.enabled:
        services.append(settings.scheduler.service_name)
    if settings.dashboard.enabled and not settings.dashboard.is_local:
        services.append(settings.dashboard.service_name)
    return tuple(
        name
        for service in services
        for name in (
            service,
            f"{service}.{home}",
            f"{service}.{home}.svc",
            f"{service}.{home}.svc.cluster.local",
        )
    )
