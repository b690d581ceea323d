"""Starts the controller of webhook configurations, certificates and caBundles.

It has three keys and one worker, because each of them waits for what another one writes.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import math
from functools import partial
from typing import TYPE_CHECKING, Final

from harbourmaster.api.patches import MergePatch
from harbourmaster.api.resources import API_SERVICES, DEFINITIONS, PODS
from harbourmaster.api.times import utc_now
from harbourmaster.certs.child import end_of
from harbourmaster.certs.errors import CertificateError
from harbourmaster.certs.model import CA_CERTIFICATE, TLS_CERTIFICATE
from harbourmaster.controller.controller import Controller
from harbourmaster.controller.names import REGISTRATION
from harbourmaster.controller.objects import decode_object
from harbourmaster.controller.registration.ca_injector import (
    API_SERVICE,
    CONVERSION,
    CONVERTED,
    SERVED,
    CABundleReconciler,
    CAInjector,
    decode_api_service,
    decode_definition,
)
from harbourmaster.controller.registration.certificates import CertificateReconciler
from harbourmaster.controller.registration.configurations import (
    RESOURCES,
    RESYNC,
    ConfigurationReconciler,
)
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
    from harbourmaster.controller.registration.ca_injector import Injectable
    from harbourmaster.controller.runtime import Runtime
    from harbourmaster.controller.settings import ControllerSettings
    from harbourmaster.kube.reflector import Reflector
    from harbourmaster.kube.workqueue import WorkQueue

MARK: Final = "certs.harbourmaster.dev/serving-certificate"
"""The annotation of a pod that names the certificate of the last change."""
SELECTOR: Final = "app.kubernetes.io/name=harbourmaster,app.kubernetes.io/component=webhook"
AGAIN: Final = 60.0
"""Seconds until the next attempt to annotate the pods."""
_DIGITS: Final = 16


class MountReconciler:
    """Makes the kubelet mount a new serving certificate into the webhook's pods at once.

    The kubelet updates the mounts of a pod every 60 to 90 s, or when the pod changes. An annotation
    that names the certificate is such a change. Errors are logged and stop nothing, because the
    certificate is mounted within that time anyway.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._client = runtime.client
        self._namespace = runtime.namespace
        self._data = runtime.secret_data
        self._seen = ""
        self._reported = ""
        self._log = get_logger("certificates")

    async def reconcile(self) -> float:
        """Annotate the pods after a change; return the seconds until the next time."""
        certificate = self._data().get(TLS_CERTIFICATE)
        mark = hashlib.sha256(certificate).hexdigest()[:_DIGITS] if certificate else ""
        if mark and mark != self._seen:
            error = await self._annotate_pods(mark)
            if error is not None:
                self._report(mark, error)
                return AGAIN
        self._seen = mark
        return RESYNC

    async def _annotate_pods(self, mark: str) -> ApiError | None:
        try:
            page = await self._client.list(
                PODS, self._namespace, label_selector=SELECTOR, metadata_only=True
            )
        except ApiError as error:
            return error
        patch = MergePatch({"metadata": {"annotations": {MARK: mark}}})
        errors, marked = [], 0
        for pod in (decode_object(PODS, raw)["metadata"] for raw in page.items):
            if pod.get("annotations", {}).get(MARK) == mark:
                continue
            try:
                await self._client.patch(PODS, pod["name"], patch, self._namespace)
                marked += 1
            except NotFoundError:
                continue
            except ApiError as error:
                errors.append(error)
        if marked:
            self._log.info("mount of the certificate requested", pods=marked)
        return errors[0] if errors else None

    def _report(self, mark: str, error: ApiError) -> None:
        if mark != self._reported:
            self._log.warning(
                "mount of the certificate not requested, retrying every minute: grant the "
                "permission to list and patch pods, or restart the webhook's pods",
                error=str(error),
            )
        self._reported = mark


CERTIFICATES: Final = "certificates"
CA_BUNDLES: Final = "carriers"
MOUNTS: Final = "mounts"
_ROLES: Final = {"authority": CA_CERTIFICATE, "leaf": TLS_CERTIFICATE}
"""The keys of the certificates in the Secret, by the values of the label ``role``."""


def start(runtime: Runtime) -> Runnables:
    """Start the controller."""
    changes = asyncio.Event()
    runtime.secret.subscribe(lambda _keys: changes.set())
    return Runnables(
        controllers=(RegistrationController(runtime).controller,),
        background=(partial(_show_expiry, runtime, changes),),
    )


class RegistrationController:
    """Owns the controller and its caches."""

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
        self._definitions = self._caches_by_name(
            DEFINITIONS, converted, decode_definition, "conversion of"
        )
        served = SERVED if runtime.settings.metrics.custom_metrics_api and not shadow else ()
        self._api_services = self._caches_by_name(
            API_SERVICES, served, decode_api_service, "apiservice"
        )
        self.controller = Controller(
            REGISTRATION, self._start, runtime.metrics, reflectors=caches.reflectors
        )
        for reflector in caches.reflectors:
            reflector.subscribe(self.controller.enqueue)
        for configuration in self._configurations.values():
            configuration.subscribe(self._note_break_glass)

    def _start(self, queue: WorkQueue) -> RegistrationReconciler:
        runtime, settings, trust = self._runtime, self._runtime.settings, Trust()

        def ca_bundle() -> bytes:
            return trust.bundle(runtime.secret_data(), runtime.now())

        stores = {resource: cache.store for resource, cache in self._configurations.items()}
        configurations = ConfigurationReconciler(runtime, stores, ca_bundle)
        ca_bundles = CABundleReconciler(
            configurations,
            CAInjector(
                runtime, CONVERSION, settings.webhook.service_name, self._definitions, ca_bundle
            ),
            CAInjector(
                runtime, API_SERVICE, settings.metrics.service_name, self._api_services, ca_bundle
            ),
        )
        # A leader before us may have trusted what the Secret has lost since.
        trust.remember(configurations.present_bundles(), runtime.now())
        names = names_of(settings, runtime.namespace)
        permitted = names_of(settings, runtime.namespace, enabled=False)
        certificates = CertificateReconciler(
            runtime,
            (names, permitted),
            trust,
            ca_bundles,
            on_announcement=lambda: queue.add(CA_BUNDLES),
        )
        return RegistrationReconciler(certificates, ca_bundles, MountReconciler(runtime))

    def _note_break_glass(self, _keys: frozenset[str]) -> None:
        # On every replica: another may lead next, and break-glass mode stays on.
        for resource, cache in self._configurations.items():
            is_on = break_glass.break_glass_of(cache.store.get(self._name)) is not None
            gauge = self._runtime.metrics.registration.break_glass
            gauge.labels(resource.kind).set(is_on)

    def _caches_by_name(
        self,
        resource: Resource,
        names: Iterable[str],
        decode: Callable[[msgspec.Raw], Injectable],
        title: str,
    ) -> dict[str, Reflector[Injectable]]:
        return {
            name: self._caches.cache(
                resource,
                decode,
                field_selector=f"metadata.name={name}",
                name=f"{title} {name.partition('.')[0]}",
            )
            for name in names
        }


class RegistrationReconciler:
    """The work of one term of the leader, by key."""

    def __init__(
        self,
        certificates: CertificateReconciler,
        ca_bundles: CABundleReconciler,
        mounts: MountReconciler,
    ) -> None:
        self._certificates = certificates
        self._by_key: dict[str, CertificateReconciler | CABundleReconciler | MountReconciler] = {
            CERTIFICATES: certificates,
            CA_BUNDLES: ca_bundles,
            MOUNTS: mounts,
        }

    def map_changes(self, _keys: Iterable[str] | None) -> tuple[str, ...]:
        """Return all keys: each depends on all caches, and a comparison costs little."""
        self._certificates.observe()
        return tuple(self._by_key)

    async def reconcile(self, key: str) -> float:
        """Reconcile the Secret, the caBundles or the mounts. Raises ApiError."""
        return await self._by_key[key].reconcile()


def names_of(
    settings: ControllerSettings, namespace: str, *, enabled: bool = True
) -> tuple[str, ...]:
    """Return the DNS names of our enabled Services, or of all without ``enabled``.

    An API server uses the third of each four.
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


async def _show_expiry(runtime: Runtime, changes: asyncio.Event) -> None:
    """Keep the seconds until each first certificate expires; NaN without a certificate."""
    ends = dict.fromkeys(_ROLES, math.nan)
    for role in _ROLES:
        seconds = partial(_seconds_left, ends, role)
        runtime.metrics.certificate_expiry.labels(role).set_function(seconds)
    parsed: dict[str, bytes | None] = {}
    while True:
        await changes.wait()
        changes.clear()
        for role, key in _ROLES.items():
            pem = runtime.secret_data().get(key)
            if pem == parsed.get(role):
                continue
            parsed[role], ends[role] = pem, math.nan
            with contextlib.suppress(CertificateError):
                if pem:
                    ends[role] = (await end_of(pem, key)).timestamp()


def _seconds_left(ends: Mapping[str, float], role: str) -> float:
    return ends[role] - utc_now().timestamp()
