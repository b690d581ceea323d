"""Keeps our authorities in objects of the manifests that lead to a Service of ours.

Only the caBundle is ours: the object, and where it leads, stand in the manifests. It goes by JSON
Patch with a test that it still leads to us (design, "Ownership"). An object that is absent, or that
leads to somebody else, is left alone.
"""

from __future__ import annotations

import asyncio
import base64
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from harbourmaster.api.metadata import Metadata
from harbourmaster.api.patches import JsonPatch
from harbourmaster.api.resources import Resource
from harbourmaster.controller.objects import reference
from harbourmaster.controller.registration.configurations import RESYNC, report_repair
from harbourmaster.kube.errors import ApiError, ForbiddenError, InvalidError, NotFoundError
from harbourmaster.registration.drift import certificates_in
from harbourmaster.registration.repair_limiter import RepairLimiter
from harbourmaster.registration.trust import bundle_of
from harbourmaster.telemetry.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from harbourmaster.controller.registration.configurations import Configurations
    from harbourmaster.controller.runtime import Runtime
    from harbourmaster.kube.reflector import Reflector


class ServiceReference(Struct, frozen=True):
    """Where an object leads."""

    name: str = ""
    namespace: str = ""


class Carrier(Struct, frozen=True):
    """An object that leads to a Service, or to none, and may hold a caBundle."""

    metadata: Metadata
    service: ServiceReference | None
    ca_bundle: Any
    """As it is stored, in base64."""
    is_unverified: bool = False
    """Whether any server that answers is trusted."""


class BundleField(Struct, frozen=True):
    """Where objects of a kind have what is ours."""

    resource: Resource
    path: str
    """Of what holds ``service`` and ``caBundle``, as JSON Pointer."""
    field: str
    """In metrics."""
    title: str
    """In events."""


class Carried:
    """Reconciles the objects of one kind; one for each time that we lead."""

    def __init__(
        self,
        runtime: Runtime,
        place: BundleField,
        service: str,
        caches: Mapping[str, Reflector[Carrier]],
        ca_bundle: Callable[[], bytes],
    ) -> None:
        """``service`` is the name of ours; ``caches`` hold one object each, by its name.

        ``ca_bundle`` gives the PEM, empty for none yet.
        """
        self._client = runtime.client
        self._place = place
        home = runtime.settings.webhook.service_namespace or runtime.namespace
        self._service = ServiceReference(service, home)
        self._caches = caches
        self._ca_bundle = ca_bundle
        self._events = runtime.events
        self._metrics = runtime.metrics.registration
        self._limiter = RepairLimiter()
        # What was wanted when it was last seen or written so: a change of it is not ours.
        self._agreed: dict[str, str] = {}
        self._refused: set[str] = set()
        self._log = get_logger("registration")

    def bundles(self) -> list[bytes]:
        """The caBundle of each object that leads to us; for one that refuses us nobody waits."""
        return [
            bundle_of({"clientConfig": {"caBundle": found.ca_bundle}})
            for name in self._caches
            if name not in self._refused and (found := self._ours(name)) is not None
        ]

    async def reconcile(self) -> float:
        """Repair what needs it; seconds until a look that no change asks for.

        One that fails keeps no other from it. Raises ApiError.
        """
        bundle = self._ca_bundle()
        if not bundle:
            return RESYNC
        wanted = base64.b64encode(bundle).decode()
        waits = await in_turn(self._keep(name, wanted) for name in self._caches)
        # An authority may expire meanwhile, of which no watch tells.
        return min((wait for wait in waits if wait), default=RESYNC)

    def _ours(self, name: str) -> Carrier | None:
        found = self._caches[name].store.get(name)
        return found if found is not None and found.service == self._service else None

    async def _keep(self, name: str, wanted: str) -> float:
        found = self._ours(name)
        if found is None:
            self._agreed.pop(name, None)
            return 0.0
        if _is_right(found, wanted):
            self._agreed[name] = wanted
            return 0.0
        now = asyncio.get_running_loop().time()
        wait = self._limiter.delay(name, wanted, now)
        if wait:
            return wait
        try:
            patch = JsonPatch(self._patch(found, wanted))
            await self._client.patch(self._place.resource, name, patch)
        except ForbiddenError:
            self._refused.add(name)
            raise
        except (InvalidError, NotFoundError):
            # It leads elsewhere by now, or is gone: the watch will tell.
            self._log.info("object changed meanwhile", kind=self._place.resource.kind, name=name)
            return 0.0
        self._refused.discard(name)
        self._tell(found, wanted, now)
        self._agreed[name] = wanted
        return 0.0

    def _patch(self, found: Carrier, wanted: str) -> list[dict[str, Any]]:
        at = self._place.path
        patch: list[dict[str, Any]] = [
            {"op": "test", "path": f"{at}/service/namespace", "value": self._service.namespace},
            {"op": "test", "path": f"{at}/service/name", "value": self._service.name},
            {"op": "add", "path": f"{at}/caBundle", "value": wanted},
        ]
        if found.is_unverified:
            patch.append({"op": "add", "path": f"{at}/insecureSkipTLSVerify", "value": False})
        return patch

    def _tell(self, found: Carrier, wanted: str, now: float) -> None:
        name, kind = found.metadata.name, self._place.resource.kind
        before = self._agreed.get(name)
        by_hand = before is not None and not _is_right(found, before)
        self._log.info("caBundle repaired", kind=kind, name=name, by_hand=by_hand)
        regarding = reference(self._place.resource, found.metadata)
        title = self._place.title
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
            self._place.field,
            note,
            fight=title if is_fight else "",
        )


class Carriers:
    """All that a new authority has to reach before a serving certificate of it is served."""

    def __init__(self, configurations: Configurations, *others: Carried) -> None:
        self._configurations = configurations
        self._others = others

    def bundles(self) -> list[bytes]:
        """The caBundle seen wherever one should be, in PEM; empty where it is missing."""
        return [*self._configurations.bundles(), *self._carried()]

    def present_bundles(self) -> list[bytes]:
        """The caBundle of each webhook, conversion and APIService that is there.

        None where no webhook is: the others come with the manifests, long before we serve.
        """
        present = list(self._configurations.present_bundles())
        return [*present, *self._carried()] if present else []

    async def reconcile(self) -> float:
        """Repair what needs it; one that fails keeps no other from it. Raises ApiError."""
        carriers: tuple[Configurations | Carried, ...] = (self._configurations, *self._others)
        return min(await in_turn(carrier.reconcile() for carrier in carriers))

    def _carried(self) -> list[bytes]:
        return [bundle for each in self._others for bundle in each.bundles()]


async def in_turn(works: Iterable[Awaitable[float]]) -> list[float]:
    """Await all, one after the other; the first ApiError is raised when all are done."""
    results, faults = [], []
    for work in works:
        try:
            results.append(await work)
        except ApiError as error:
            faults.append(error)
    if faults:
        raise faults[0]
    return results


def _is_right(found: Carrier, wanted: str) -> bool:
    if found.is_unverified:
        return False
    stored = found.ca_bundle
    return stored == wanted or certificates_in(stored) == certificates_in(wanted)
