"""The controller of the registration: the Secret and whatever carries its authorities, in step.

Three keys, one worker: what one of them writes is what another waits for, and never two at a time.
"""

from __future__ import annotations

import hashlib
import math
from functools import partial
from typing import TYPE_CHECKING, Final

from harbourmaster.api.patches import MergePatch
from harbourmaster.api.resources import API_SERVICES, DEFINITIONS, PODS
from harbourmaster.api.times import utc_now
from harbourmaster.certs.bundle import CA_CERTIFICATE, TLS_CERTIFICATE, parse_certificates
from harbourmaster.certs.errors import CertificateError
from harbourmaster.controller.controller import Controller
from harbourmaster.controller.names import REGISTRATION
from harbourmaster.controller.objects import decode_object
from harbourmaster.controller.registration import api_services, conversions
from harbourmaster.controller.registration.api_services import SERVED, decode_api_service
from harbourmaster.controller.registration.carried import Carried, Carriers
from harbourmaster.controller.registration.certificates import Certificates
from harbourmaster.controller.registration.configurations import RESOURCES, RESYNC, Configurations
from harbourmaster.controller.registration.conversions import CONVERTED, decode_converted
from harbourmaster.controller.runtime import Runnables
from harbourmaster.kube.caches import Caches
from harbourmaster.kube.errors import ApiError, NotFoundError
from harbourmaster.registration import break_glass
from harbourmaster.registration.desired import name_of
from harbourmaster.registration.trust import Trust
from harbourmaster.telemetry.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import msgspec

    from harbourmaster.api.resources import Resource
    from harbourmaster.controller.registration.carried import Carrier
    from harbourmaster.controller.runtime import Runtime
    from harbourmaster.controller.settings import ControllerSettings
    from harbourmaster.kube.reflector import Reflector
    from harbourmaster.kube.workqueue import WorkQueue

MARK: Final = "certs.harbourmaster.dev/serving-certificate"
"""Annotation of a pod: the certificate for which the kubelet was asked to look."""
SELECTOR: Final = "app.kubernetes.io/name=harbourmaster,app.kubernetes.io/component=webhook"
AGAIN: Final = 60.0
"""Seconds until the next attempt; by then, the kubelet has often looked by itself."""
_DIGITS: Final = 16


class Mounts:
    """Has the kubelet mount a new serving certificate into the webhook's pods at once, in one term.

    It updates what pods mount when it syncs them: every 60 to 90 s, or when a pod changes. An
    annotation that names the certificate is such a change. Pods that start later mount it anyway,
    and the others without it within that time: an error is logged and stops nothing.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._client = runtime.client
        self._namespace = runtime.namespace
        self._data = runtime.secret_data
        self._seen = ""
        self._reported = ""
        self._log = get_logger("certificates")

    async def reconcile(self) -> float:
        """Mark the pods that may have mounted another certificate; seconds until the next look."""
        certificate = self._data().get(TLS_CERTIFICATE)
        mark = hashlib.sha256(certificate).hexdigest()[:_DIGITS] if certificate else ""
        if mark and mark != self._seen:
            fault = await self._mark_pods(mark)
            if fault is not None:
                self._report(mark, fault)
                return AGAIN
        self._seen = mark
        return RESYNC

    async def _mark_pods(self, mark: str) -> ApiError | None:
        """Mark all that can be marked; the first error."""
        try:
            page = await self._client.list(
                PODS, self._namespace, label_selector=SELECTOR, metadata_only=True
            )
        except ApiError as error:
            return error
        patch = MergePatch({"metadata": {"annotations": {MARK: mark}}})
        faults, marked = [], 0
        for pod in (decode_object(PODS, raw)["metadata"] for raw in page.items):
            if pod.get("annotations", {}).get(MARK) == mark:
                continue
            try:
                await self._client.patch(PODS, pod["name"], patch, self._namespace)
                marked += 1
            except NotFoundError:
                continue
            except ApiError as error:
                faults.append(error)
        if marked:
            self._log.info("mount of the certificate requested", pods=marked)
        return faults[0] if faults else None

    def _report(self, mark: str, fault: ApiError) -> None:
        """Log the first error of each certificate."""
        if mark != self._reported:
            self._log.warning(
                "mount of the certificate not requested, retrying every minute: grant the "
                "permission to list and patch pods, or restart the webhook's pods",
                error=str(fault),
            )
        self._reported = mark


CERTIFICATES: Final = "certificates"
CARRIERS: Final = "carriers"
MOUNTS: Final = "mounts"
_ROLES: Final = {"authority": CA_CERTIFICATE, "leaf": TLS_CERTIFICATE}
"""The certificates of the Secret by what the metric calls them."""


def start(runtime: Runtime) -> Runnables:
    """Start the controller."""
    for role, key in _ROLES.items():
        runtime.metrics.certificate_expiry.labels(role).set_function(
            partial(_seconds_left, runtime.secret_data, key)
        )
    return Runnables(controllers=(RegistrationController(runtime).controller,))


class RegistrationController:
    """The controller and its caches."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._caches = caches = Caches(runtime.client, runtime.metrics.watches)
        caches.include(runtime.secret)
        shadow = runtime.settings.webhook.shadow
        self._name = name_of(runtime.settings.webhook)
        self._configurations = {
            resource: caches.cache(
                resource,
                partial(decode_object, resource),
                field_selector=f"metadata.name={self._name}",
            )
            for resource in RESOURCES
        }
        converted = () if shadow else CONVERTED
        self._definitions = self._named(DEFINITIONS, converted, decode_converted, "conversion of")
        served = SERVED if runtime.settings.metrics.custom_metrics_api and not shadow else ()
        self._api_services = self._named(API_SERVICES, served, decode_api_service, "apiservice")
        self.controller = Controller(
            REGISTRATION, self._start, runtime.metrics, reflectors=caches.reflectors
        )
        for reflector in caches.reflectors:
            reflector.subscribe(self.controller.changed)
        for configuration in self._configurations.values():
            configuration.subscribe(self._note_break_glass)

    def _start(self, queue: WorkQueue) -> _Work:
        runtime, settings, trust = self._runtime, self._runtime.settings, Trust()

        def ca_bundle() -> bytes:
            return trust.bundle(runtime.secret_data(), runtime.now())

        stores = {resource: each.store for resource, each in self._configurations.items()}
        configurations = Configurations(runtime, stores, ca_bundle)
        carriers = Carriers(
            configurations,
            Carried(
                runtime,
                conversions.PLACE,
                settings.webhook.service_name,
                self._definitions,
                ca_bundle,
            ),
            Carried(
                runtime,
                api_services.PLACE,
                settings.metrics.service_name,
                self._api_services,
                ca_bundle,
            ),
        )
        # A leader before us may have trusted what the Secret has lost since.
        trust.remember(configurations.present_bundles(), runtime.now())
        names = names_of(settings, runtime.namespace)
        permitted = names_of(settings, runtime.namespace, enabled=False)
        certificates = Certificates(
            runtime,
            (names, permitted),
            trust,
            carriers,
            on_announcement=lambda: queue.add(CARRIERS),
        )
        return _Work(certificates, carriers, Mounts(runtime))

    def _note_break_glass(self, _keys: frozenset[str]) -> None:
        # On every replica: another may lead next, and break-glass mode stays on.
        for resource, cache in self._configurations.items():
            is_on = break_glass.standing(cache.store.get(self._name)) is not None
            gauge = self._runtime.metrics.registration.break_glass
            gauge.labels(resource.kind).set(is_on)

    def _named(
        self,
        resource: Resource,
        names: Iterable[str],
        decode: Callable[[msgspec.Raw], Carrier],
        title: str,
    ) -> dict[str, Reflector[Carrier]]:
        """One cache for each object, by its name."""
        return {
            name: self._caches.cache(
                resource,
                decode,
                field_selector=f"metadata.name={name}",
                name=f"{title} {name.partition('.')[0]}",
            )
            for name in names
        }


class _Work:
    """One term of leading."""

    def __init__(self, certificates: Certificates, carriers: Carriers, mounts: Mounts) -> None:
        self._certificates = certificates
        self._parts: dict[str, Certificates | Carriers | Mounts] = {
            CERTIFICATES: certificates,
            CARRIERS: carriers,
            MOUNTS: mounts,
        }

    def map_changes(self, _keys: Iterable[str] | None) -> tuple[str, ...]:
        """All: each depends on all that is watched, and a look that finds nothing costs little."""
        self._certificates.observe()
        return tuple(self._parts)

    async def reconcile(self, key: str) -> float:
        """Bring the Secret, what carries its authorities, or its mounts to where they belong."""
        return await self._parts[key].reconcile()


def names_of(
    settings: ControllerSettings, namespace: str, *, enabled: bool = True
) -> tuple[str, ...]:
    """The names by which our Services are called; an API server uses the third of each.

    Without ``enabled`` also of those that are off.
    """
    home = settings.webhook.service_namespace or namespace
    services = [settings.webhook.service_name]
    if settings.metrics.custom_metrics_api or not enabled:
        services.append(settings.metrics.service_name)
    if settings.scheduler.enabled or not enabled:
        services.append(settings.scheduler.service_name)
    if (settings.dashboard.enabled and not settings.dashboard.is_local) or not enabled:
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
