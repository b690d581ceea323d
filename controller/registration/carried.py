"""Keeps our authorities in objects of the manifests that lead to a Service of ours.

Only the caBundle is ours: the object, and where it leads, stand in the manifests. It goes by JSON
Patch with a test that it still leads to us (design, "Ownership"). An object that is absent, or that
leads to somebody else, is left alone.
"""

from __future__ import annotations

import asyncio
import base64
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Struct

from harbourmaster.api.patches import JsonPatch
from harbourmaster.api.resources import Resource
from harbourmaster.controller.objects import reference
from harbourmaster.controller.registration.configurations import RESYNC
from harbourmaster.kube.errors import ApiError, ForbiddenError, InvalidError, NotFoundError
from harbourmaster.registration.drift import certificates_in
from harbourmaster.registration.fights import Fights
from harbourmaster.registration.trust import bundle_of
from harbourmaster.telemetry.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from harbourmaster.kube.client import Client
    from harbourmaster.kube.events import EventRecorder
    from harbourmaster.kube.store import Store
    from harbourmaster.telemetry.controller_metrics import RegistrationMetrics


class Metadata(Struct, frozen=True, rename="camel"):
    """What of an object's metadata is used here."""

    name: str
    uid: str = ""
    resource_version: str = ""


class ServiceReference(Struct, frozen=True):
    """Where an object leads."""

    name: str = ""
    namespace: str = ""

    @property
    def place(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.namespace, self.name


class Carrier(Protocol):
    """An object that leads to a Service and may hold a caBundle."""

    @property
    def metadata(self) -> Metadata:
        """Its name."""

    @property
    def service(self) -> tuple[str, str] | None:
        """Namespace and name of the Service; None where it leads to none."""

    @property
    def ca_bundle(self) -> object:
        """As it is stored, in base64."""

    @property
    def is_unverified(self) -> bool:
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

    def __init__(  # noqa: PLR0913 - what to keep, where it is seen, and whom to tell
        self,
        client: Client,
        place: BundleField,
        service: tuple[str, str],
        stores: Mapping[str, Store[Any]],
        *,
        ca_bundle: Callable[[], bytes],
        events: EventRecorder,
        metrics: RegistrationMetrics,
    ) -> None:
        """``service`` is namespace and name of ours; ``stores`` hold Carriers, by their names.

        ``ca_bundle`` gives the PEM, empty for none yet.
        """
        self._client = client
        self._place = place
        self._service = service
        self._stores: Mapping[str, Store[Carrier]] = stores
        self._ca_bundle = ca_bundle
        self._events = events
        self._metrics = metrics
        self._fights = Fights()
        # What was wanted when it was last seen or written so: a change of it is not ours.
        self._agreed: dict[str, str] = {}
        self._refused: set[str] = set()
        self._log = get_logger("registration")

    def bundles(self) -> list[bytes]:
        """The caBundle of each object that leads to us; for one that refuses us nobody waits."""
        return [
            bundle_of({"clientConfig": {"caBundle": found.ca_bundle}})
            for name in self._stores
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
        waits, faults = [], []
        for name in self._stores:
            try:
                waits.append(await self._keep(name, wanted))
            except ApiError as error:
                faults.append(error)
        if faults:
            raise faults[0]
        # An authority may expire meanwhile, of which no watch tells.
        return min((wait for wait in waits if wait), default=RESYNC)

    def _ours(self, name: str) -> Carrier | None:
        found = self._stores[name].get(name)
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
        wait = self._fights.hold(name, wanted, now)
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
        namespace, service = self._service
        at = self._place.path
        patch: list[dict[str, Any]] = [
            {"op": "test", "path": f"{at}/service/namespace", "value": namespace},
            {"op": "test", "path": f"{at}/service/name", "value": service},
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
        regarding = reference(self._place.resource, msgspec.to_builtins(found.metadata))
        title = self._place.title
        if not by_hand:
            if before is None:
                note = f"{title} carries our authorities"
                self._events.emit(regarding, "Normal", "Updated", note)
            return
        self._metrics.repairs.labels(kind, self._place.field).inc()
        note = f"{title} was changed by hand and carries our authorities again"
        self._events.emit(regarding, "Warning", "DriftRepaired", note)
        if self._fights.record(name, wanted, now):
            self._metrics.fights.labels(kind, self._place.field).inc()
            self._events.emit(
                regarding,
                "Warning",
                "FieldFight",
                f"{title} is changed repeatedly by another client and is now repaired once a "
                "minute: find that client, or set registerWebhooks to false",
            )


def _is_right(found: Carrier, wanted: str) -> bool:
    if found.is_unverified:
        return False
    stored = found.ca_bundle
    return stored == wanted or certificates_in(stored) == certificates_in(wanted)
