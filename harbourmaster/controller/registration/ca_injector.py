"""Writes our authorities into the ``caBundle`` of objects that refer to a Service of ours.

These are definitions whose versions our webhook converts (keptn-spec 1.4) and the APIServices by
which the API server finds our custom metrics API. Only the ``caBundle`` is ours: it is written by a
JSON Patch that tests whether the object still refers to our Service. An object that is absent, or
that refers to another Service, is left alone.
"""

from __future__ import annotations

import asyncio
import base64
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.metadata import Metadata
from harbourmaster.api.patches import JsonPatch
from harbourmaster.api.resources import API_SERVICES, APP_VERSIONS, APPS, DEFINITIONS, Resource
from harbourmaster.controller.objects import reference
from harbourmaster.controller.registration.configurations import RESYNC, report_repair
from harbourmaster.kube.errors import ApiError, ForbiddenError, InvalidError, NotFoundError
from harbourmaster.registration.drift import certificates_in
from harbourmaster.registration.repair_limiter import RepairLimiter
from harbourmaster.registration.trust import bundle_of
from harbourmaster.telemetry.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from harbourmaster.controller.registration.configurations import ConfigurationReconciler
    from harbourmaster.controller.runtime import Runtime
    from harbourmaster.kube.reflector import Reflector

CONVERTED: Final = tuple(resource.name for resource in (APPS, APP_VERSIONS))
"""The definitions with versions that differ by more than their names."""
SERVED: Final = tuple(f"{version}.custom.metrics.k8s.io" for version in ("v1beta1", "v1beta2"))
"""The APIServices of the custom metrics API; Keptn's have the same names."""


class ServiceReference(Struct, frozen=True):
    """The Service to which an object refers."""

    name: str = ""
    namespace: str = ""


class Injectable(Struct, frozen=True):
    """An object that refers to a Service, or to none, and may have a caBundle."""

    metadata: Metadata
    service: ServiceReference | None
    ca_bundle: Any
    """The stored value: PEM in base64, if it is valid."""
    is_unverified: bool = False
    """Whether the API server trusts any certificate, as in Keptn's APIServices."""


class BundleField(Struct, frozen=True):
    """The place of the caBundle in the objects of one kind."""

    resource: Resource
    path: str
    """JSON Pointer to the object with ``service`` and ``caBundle``."""
    field: str
    """The value of the label ``field`` in metrics."""
    title: str
    """The name of the field in events."""


CONVERSION: Final = BundleField(
    DEFINITIONS,
    "/spec/conversion/webhook/clientConfig",
    "conversion.caBundle",
    "caBundle of the conversion",
)
API_SERVICE: Final = BundleField(API_SERVICES, "/spec", "caBundle", "caBundle of the APIService")


class _ClientConfig(Struct, frozen=True, rename="camel"):
    service: ServiceReference | None = None
    ca_bundle: Any = None


class _Webhook(Struct, frozen=True, rename="camel"):
    client_config: _ClientConfig = _ClientConfig()


class _Conversion(Struct, frozen=True):
    strategy: str = "None"
    webhook: _Webhook | None = None


class _DefinitionSpec(Struct, frozen=True):
    conversion: _Conversion = _Conversion()


class _Definition(Struct, frozen=True):
    metadata: Metadata
    spec: _DefinitionSpec = _DefinitionSpec()


class _ApiServiceSpec(Struct, frozen=True, rename="camel"):
    service: ServiceReference | None = None
    ca_bundle: Any = None
    insecure: bool = msgspec.field(default=False, name="insecureSkipTLSVerify")


class _ApiService(Struct, frozen=True):
    metadata: Metadata
    spec: _ApiServiceSpec = _ApiServiceSpec()


_decode_definition: Final = msgspec.json.Decoder(_Definition).decode
_decode_api_service: Final = msgspec.json.Decoder(_ApiService).decode


def decode_definition(raw: msgspec.Raw | bytes) -> Injectable:
    """Decode a definition without its schemas; it refers to the Service that converts it."""
    definition = _decode_definition(raw)
    conversion = definition.spec.conversion
    client = conversion.webhook.client_config if conversion.webhook else _ClientConfig()
    service = client.service if conversion.strategy == "Webhook" else None
    return Injectable(definition.metadata, service, client.ca_bundle)


def decode_api_service(raw: msgspec.Raw | bytes) -> Injectable:
    """Decode an APIService; the API server itself serves one that refers to no Service."""
    api_service = _decode_api_service(raw)
    spec = api_service.spec
    return Injectable(
        api_service.metadata, spec.service, spec.ca_bundle, is_unverified=spec.insecure
    )


class CAInjector:
    """Keeps our authorities in the caBundles of one kind, for one term of a leader."""

    def __init__(
        self,
        runtime: Runtime,
        field: BundleField,
        service: str,
        caches: Mapping[str, Reflector[Injectable]],
        ca_bundle: Callable[[], bytes],
    ) -> None:
        """``service`` is the name of our Service; ``caches`` hold one object each, by its name.

        ``ca_bundle`` returns the wanted PEM, empty if there is none yet.
        """
        self._client = runtime.client
        self._field = field
        home = runtime.settings.webhook.service_namespace or runtime.namespace
        self._service = ServiceReference(service, home)
        self._caches = caches
        self._ca_bundle = ca_bundle
        self._events = runtime.events
        self._metrics = runtime.metrics.registration
        self._limiter = RepairLimiter()
        # The caBundle last seen or written as wanted: what differs from it was changed by others.
        self._agreed: dict[str, str] = {}
        self._refused: set[str] = set()
        self._log = get_logger("registration")

    def bundles(self) -> list[bytes]:
        """The caBundle of each object that refers to our Service, except those we must not write.

        A serving certificate does not wait for these.
        """
        return [
            bundle_of({"clientConfig": {"caBundle": injectable.ca_bundle}})
            for name in self._caches
            if name not in self._refused and (injectable := self._find_ours(name)) is not None
        ]

    async def reconcile(self) -> float:
        """Repair each caBundle; return the seconds until the next time.

        A failure does not stop the others. Raises ApiError.
        """
        bundle = self._ca_bundle()
        if not bundle:
            return RESYNC
        wanted = base64.b64encode(bundle).decode()
        delays = await run_sequentially(self._repair(name, wanted) for name in self._caches)
        # An authority may expire meanwhile, which no watch reports.
        return min((delay for delay in delays if delay), default=RESYNC)

    def _find_ours(self, name: str) -> Injectable | None:
        injectable = self._caches[name].store.get(name)
        if injectable is None or injectable.service != self._service:
            return None
        return injectable

    async def _repair(self, name: str, wanted: str) -> float:
        injectable = self._find_ours(name)
        if injectable is None:
            self._agreed.pop(name, None)
            return 0.0
        if _is_right(injectable, wanted):
            self._agreed[name] = wanted
            return 0.0
        now = asyncio.get_running_loop().time()
        delay = self._limiter.delay(name, wanted, now)
        if delay:
            return delay
        try:
            patch = JsonPatch(self._patch(injectable, wanted))
            await self._client.patch(self._field.resource, name, patch)
        except ForbiddenError:
            self._refused.add(name)
            raise
        except (InvalidError, NotFoundError):
            # The object was deleted or refers to another Service: the watch will report it.
            self._log.info("object changed meanwhile", kind=self._field.resource.kind, name=name)
            return 0.0
        self._refused.discard(name)
        self._report(injectable, wanted, now)
        self._agreed[name] = wanted
        return 0.0

    def _patch(self, injectable: Injectable, wanted: str) -> list[dict[str, Any]]:
        at = self._field.path
        patch: list[dict[str, Any]] = [
            {"op": "test", "path": f"{at}/service/namespace", "value": self._service.namespace},
            {"op": "test", "path": f"{at}/service/name", "value": self._service.name},
            {"op": "add", "path": f"{at}/caBundle", "value": wanted},
        ]
        if injectable.is_unverified:
            patch.append({"op": "add", "path": f"{at}/insecureSkipTLSVerify", "value": False})
        return patch

    def _report(self, injectable: Injectable, wanted: str, now: float) -> None:
        name, kind = injectable.metadata.name, self._field.resource.kind
        before = self._agreed.get(name)
        by_hand = before is not None and not _is_right(injectable, before)
        self._log.info("caBundle repaired", kind=kind, name=name, by_hand=by_hand)
        regarding = reference(self._field.resource, injectable.metadata)
        title = self._field.title
        if not by_hand:
            if before is None:
                note = f"{title} carries our authorities"
                self._events.emit(regarding, "Normal", "Updated", note)
            return
        note = f"{title} was changed by hand and carries our authorities again"
        is_fight = self._limiter.record(name, wanted, now)
        report_repair(
            self._events,
            self._metrics,
            regarding,
            self._field.field,
            note,
            fight=title if is_fight else "",
        )


class CABundleReconciler:
    """Brings authorities to everything that must have them before they sign what is served."""

    def __init__(self, configurations: ConfigurationReconciler, *injectors: CAInjector) -> None:
        self._configurations = configurations
        self._injectors = injectors

    def bundles(self) -> list[bytes]:
        """Every caBundle that should exist, in PEM; empty if it is missing."""
        return [*self._configurations.bundles(), *self._injected_bundles()]

    def present_bundles(self) -> list[bytes]:
        """The caBundle of each existing webhook, conversion and APIService.

        Empty without a webhook: the other objects come with the manifests, long before we serve.
        """
        present = list(self._configurations.present_bundles())
        return [*present, *self._injected_bundles()] if present else []

    async def reconcile(self) -> float:
        """Repair all caBundles; a failure does not stop the others. Raises ApiError."""
        reconcilers: tuple[ConfigurationReconciler | CAInjector, ...]
        reconcilers = (self._configurations, *self._injectors)
        return min(await run_sequentially(reconciler.reconcile() for reconciler in reconcilers))

    def _injected_bundles(self) -> list[bytes]:
        return [bundle for injector in self._injectors for bundle in injector.bundles()]


async def run_sequentially(awaitables: Iterable[Awaitable[float]]) -> list[float]:
    """Await all, one after the other; the first ApiError is raised when all are done."""
    results, errors = [], []
    for awaitable in awaitables:
        try:
            results.append(await awaitable)
        except ApiError as error:
            errors.append(error)
    if errors:
        raise errors[0]
    return results


def _is_right(injectable: Injectable, wanted: str) -> bool:
    if injectable.is_unverified:
        return False
    stored = injectable.ca_bundle
    return stored == wanted or certificates_in(stored) == certificates_in(wanted)
