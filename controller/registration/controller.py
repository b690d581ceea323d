"""The controller of the registration: the Secret and whatever carries its authorities, in step.

Two keys, one worker: what the one writes is what the other waits for, and never both at a time.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from harbourmaster.api.resources import API_SERVICES, DEFINITIONS
from harbourmaster.api.times import utc_now
from harbourmaster.certs.bundle import CA_CERTIFICATE, TLS_CERTIFICATE, parse_certificates
from harbourmaster.certs.errors import CertificateError
from harbourmaster.controller.controller import Controller
from harbourmaster.controller.objects import decode_object
from harbourmaster.controller.parts import Part
from harbourmaster.controller.registration import api_services, conversions
from harbourmaster.controller.registration.api_services import SERVED, decode_api_service
from harbourmaster.controller.registration.carried import Carried
from harbourmaster.controller.registration.certificates import Certificates
from harbourmaster.controller.registration.configurations import RESOURCES, Configurations
from harbourmaster.controller.registration.conversions import CONVERTED, decode_converted
from harbourmaster.controller.registry import REGISTRATION
from harbourmaster.kube.caches import Cache
from harbourmaster.kube.errors import ApiError
from harbourmaster.registration import break_glass
from harbourmaster.registration.desired import NAME
from harbourmaster.registration.trust import Trust

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import msgspec

    from harbourmaster.api.resources import Resource
    from harbourmaster.controller.parts import Process
    from harbourmaster.controller.registration.carried import BundleField
    from harbourmaster.controller.settings import ControllerSettings
    from harbourmaster.kube.workqueue import WorkQueue

CERTIFICATES: Final = "certificates"
CARRIERS: Final = "carriers"
_ROLES: Final = {"authority": CA_CERTIFICATE, "leaf": TLS_CERTIFICATE}
"""The certificates of the Secret by what the metric calls them."""


def start(process: Process) -> Part:
    """Start the controller."""
    for role, key in _ROLES.items():
        process.metrics.certificate_expiry.labels(role).set_function(
            partial(_seconds_left, process.secret_data, key)
        )
    return Part(controllers=(RegistrationController(process).controller,))


class RegistrationController:
    """The controller and its caches."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._client = process.client
        self._settings = settings = process.settings
        self._namespace = process.namespace
        self._events = process.events
        self._metrics = process.metrics
        self.controller = Controller(REGISTRATION, self._start, process.metrics)
        self._configurations = {
            resource: Cache(
                process.client,
                resource,
                partial(decode_object, resource),
                field_selector=f"metadata.name={NAME}",
                metrics=process.metrics.watches,
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
        caches = (
            process.secret,
            *self._configurations.values(),
            *self._definitions.values(),
            *self._api_services.values(),
        )
        self.controller.reflectors = caches
        for each in caches:
            each.subscribe(self.controller.changed)
        for each in self._configurations.values():
            each.subscribe(self._note_break_glass)

    def _start(self, queue: WorkQueue) -> _Work:
        trust = Trust()

        def ca_bundle() -> bytes:
            return trust.bundle(self._process.secret_data(), self._process.now())

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

        def carried(place: BundleField, service: str, caches: Mapping[str, Cache[Any]]) -> Carried:
            return Carried(
                self._client,
                place,
                (home, service),
                {name: each.store for name, each in caches.items()},
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
        trust.remember(configurations.present_bundles(), self._process.now())
        certificates = Certificates(
            self._client,
            self._settings.certificates,
            self._namespace,
            names_of(self._settings, self._namespace),
            self._process.secret.store,
            trust=trust,
            carriers=carriers,
            on_announcement=lambda: queue.add(CARRIERS),
            events=self._events,
            clock=self._process.now,
        )
        return _Work(certificates, carriers)

    def _note_break_glass(self, _keys: frozenset[str]) -> None:
        # On every replica: another may lead next, and break-glass mode stays on.
        for resource, cache in self._configurations.items():
            is_on = break_glass.standing(cache.store.get(NAME)) is not None
            self._metrics.registration.break_glass.labels(resource.kind).set(is_on)

    def _named(
        self,
        resource: Resource,
        names: Iterable[str],
        decode: Callable[[msgspec.Raw], Any],
        title: Callable[[str], str],
    ) -> dict[str, Cache[Any]]:
        """One cache for each object, by its name; ``title`` gets the first part of the name."""
        return {
            name: Cache(
                self._client,
                resource,
                decode,
                field_selector=f"metadata.name={name}",
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


def _seconds_left(data: Callable[[], Mapping[str, bytes]], key: str) -> float:
    """Seconds until the first certificate ends; not a number without one."""
    try:
        end = parse_certificates(data().get(key), key)[0].not_valid_after_utc
    except (CertificateError, IndexError):
        return math.nan
    return (end - utc_now()).total_seconds()
