"""Keeps both webhook configurations as the settings define them.

The stored configuration is compared with the wanted one. A change by another client is repaired and
reported; a field that is changed again and again is repaired once a minute. What others add to
selectors and conditions stays, and an event names the namespaces that it excludes.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harbourmaster.api.resources import MUTATING_WEBHOOKS, NAMESPACES, VALIDATING_WEBHOOKS
from harbourmaster.controller.caches import decode_namespace
from harbourmaster.controller.objects import reference
from harbourmaster.kube.errors import ApiError
from harbourmaster.kube.reading import log_skipped, read_all
from harbourmaster.registration import additions
from harbourmaster.registration.break_glass import break_glass_of, with_open_webhooks
from harbourmaster.registration.desired import Home, desired_configurations, name_of
from harbourmaster.registration.drift import Repair, apply_repairs, compare, describe
from harbourmaster.registration.repair_limiter import RepairLimiter
from harbourmaster.registration.trust import bundle_of
from harbourmaster.telemetry.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from harbourmaster.api.resources import Resource
    from harbourmaster.controller.runtime import Runtime
    from harbourmaster.kube.event_series import ObjectReference
    from harbourmaster.kube.events import EventRecorder
    from harbourmaster.kube.store import Store
    from harbourmaster.registration.break_glass import BreakGlass
    from harbourmaster.telemetry.controller_metrics import RegistrationMetrics

RESOURCES: Final = (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)
RESYNC: Final = 600.0
"""Maximum seconds between two comparisons."""
_WHOLE: Final = Repair("", "", None, None)
"""The repair of a configuration that does not exist."""
_FOREIGN: Final = "webhooks"
"""The limiter's name for all webhooks of a configuration that are not ours."""


class ConfigurationReconciler:
    """Keeps both configurations, for one term of a leader."""

    def __init__(
        self,
        runtime: Runtime,
        stores: Mapping[Resource, Store[dict[str, Any]]],
        ca_bundle: Callable[[], bytes],
    ) -> None:
        """``ca_bundle`` returns the wanted PEM, empty if there is none yet."""
        self._client = runtime.client
        self._settings = runtime.settings.webhook
        self._name = name_of(self._settings)
        self._home = Home(runtime.namespace)
        self._stores = stores
        self._ca_bundle = ca_bundle
        self._events = runtime.events
        self._metrics = runtime.metrics.registration
        self._limiter = RepairLimiter()
        # The state last seen or written as wanted: what differs from it was changed by others.
        self._agreed: dict[Resource, dict[str, Any]] = {}
        self._break_glass: dict[Resource, BreakGlass] = {}
        self._exclusions: dict[Resource, tuple[str, ...]] = {}
        self._log = get_logger("registration")

    def bundles(self) -> list[bytes]:
        """The caBundle of each webhook that should exist; empty if it is missing."""
        wanted = desired_configurations(self._settings, self._home, None)
        return [
            bundle_of(self._entry(resource, entry["name"]))
            for resource, configuration in wanted.items()
            for entry in configuration["webhooks"]
        ]

    def present_bundles(self) -> Iterator[bytes]:
        """The caBundle of each existing webhook of our configurations, of any owner."""
        for store in self._stores.values():
            for entry in (store.get(self._name) or {}).get("webhooks") or ():
                yield bundle_of(entry)

    async def reconcile(self) -> float:
        """Create or repair both configurations; return the seconds until the next time.

        Raises ApiError: a ConflictError if the watch is behind, whose next event queues the key.
        """
        bundle = self._ca_bundle()
        if not bundle:
            return RESYNC
        if self._home.uid is None:
            await self._read_namespace()
        delays = [await self._reconcile(resource, bundle) for resource in RESOURCES]
        # An authority may expire meanwhile, which no watch reports.
        return min((delay for delay in delays if delay), default=RESYNC)

    async def _reconcile(self, resource: Resource, bundle: bytes) -> float:
        observed = self._stores[resource].get(self._name)
        if observed is None:
            return await self._create(resource, bundle)
        glass = self._note_break_glass(resource, observed)
        wanted = self._define(resource, bundle, glass)
        repairs = compare(observed, wanted)
        if any(repair.field == "metadata.ownerReferences" for repair in repairs):
            # Our namespace may have been recreated with another UID.
            await self._read_namespace()
            wanted = self._define(resource, bundle, glass)
            repairs = compare(observed, wanted)
        if not repairs:
            self._agreed[resource] = wanted
            await self._report_exclusions(resource, observed, wanted)
            return 0.0
        return await self._repair(resource, observed, wanted, repairs)

    async def _create(self, resource: Resource, bundle: bytes) -> float:
        now = _now()
        delay = self._limiter.delay(_field(resource, _WHOLE), _wanted(_WHOLE), now)
        if delay:
            return delay
        if not await self._read_namespace():
            # The configuration would be deleted with its owner, and its Service no longer answers.
            self._log.warning("own namespace is being deleted, webhooks not registered")
            return 0.0
        wanted = self._define(resource, bundle, None)
        stored = msgspec.json.decode(await self._client.create(resource, wanted))
        regarding = reference(resource, stored["metadata"])
        if resource in self._agreed:
            note = (
                f"{resource.kind} {self._name} was deleted by hand and is created again: "
                "to keep your own configurations, set registerWebhooks to false"
            )
            self._note_repair(resource, regarding, _WHOLE, note, now)
        else:
            self._events.emit(
                regarding, "Normal", "Registered", f"{resource.kind} {self._name} is created"
            )
        self._log.info("configuration created", kind=resource.kind)
        self._agreed[resource] = wanted
        return 0.0

    async def _repair(
        self,
        resource: Resource,
        observed: dict[str, Any],
        wanted: dict[str, Any],
        repairs: list[Repair],
    ) -> float:
        now = _now()
        delays = [
            self._limiter.delay(_field(resource, repair), _wanted(repair), now)
            for repair in repairs
        ]
        due = [repair for repair, delay in zip(repairs, delays, strict=True) if not delay]
        if due:
            await self._client.replace(resource, self._name, apply_repairs(observed, due, wanted))
            self._report(resource, observed, due, now)
        self._agreed[resource] = wanted
        return min((delay for delay in delays if delay), default=0.0)

    def _report(
        self, resource: Resource, observed: dict[str, Any], repairs: list[Repair], now: float
    ) -> None:
        regarding = reference(resource, observed["metadata"])
        before = self._agreed.get(resource)
        by_others = (
            {(change.entry, change.field) for change in compare(observed, before)}
            if before
            else set()
        )
        for repair in repairs:
            by_hand = (repair.entry, repair.field) in by_others
            note = describe(repair, by_hand=by_hand)
            self._log.info("configuration repaired", kind=resource.kind, by_hand=by_hand, what=note)
            if by_hand:
                self._note_repair(resource, regarding, repair, note, now)
            elif before is None and additions.APPLIED not in repair.field:
                self._events.emit(regarding, "Normal", "Updated", note)

    def _note_repair(
        self, resource: Resource, regarding: ObjectReference, repair: Repair, note: str, now: float
    ) -> None:
        is_fight = self._limiter.record(_field(resource, repair), _wanted(repair), now)
        subject = repair.subject if repair is not _WHOLE else f"{resource.kind} {self._name}"
        report_repair(
            self._events,
            self._metrics,
            regarding,
            repair.field or "webhook",
            note,
            fight=subject if is_fight else "",
        )

    def _define(
        self, resource: Resource, bundle: bytes, glass: BreakGlass | None
    ) -> dict[str, Any]:
        wanted = desired_configurations(self._settings, self._home, bundle)[resource]
        wanted = additions.with_applied(wanted, wanted)
        return with_open_webhooks(wanted) if glass is not None else wanted

    async def _report_exclusions(
        self, resource: Resource, stored: dict[str, Any], wanted: dict[str, Any]
    ) -> None:
        """Name what others exclude from our webhooks, whenever that is something else."""
        merged, before = additions.merge(stored, wanted), self._exclusions.get(resource)
        texts = additions.describe(merged, wanted)
        if not texts:
            self._exclusions.pop(resource, None)
            return
        subjects = [await self._read(kind) for kind in additions.SUBJECTS]
        excluded = additions.excluded_namespaces(merged, wanted, *subjects)
        # Which objects of a namespace the other fields exclude is unknown.
        others = [text for text in texts if not text.startswith(additions.NAMESPACE_SELECTOR)]
        exclusions = self._exclusions[resource] = (*excluded, *others)
        if exclusions and exclusions != before:
            note = (
                f"others exclude {', '.join(excluded) or 'objects'} from gates and policies: "
                f"change their labels, or remove what was added: {'; '.join(texts)}"
            )
            regarding = reference(resource, stored["metadata"])
            self._events.emit(regarding, "Warning", "NamespacesExcluded", note)

    async def _read(self, kind: Resource) -> list[additions.Subject]:
        """Read the objects of a kind; none if the API server refuses."""
        with suppress(ApiError):
            return await read_all(
                self._client, kind, additions.decode_subject, partial(log_skipped, self._log)
            )
        return []

    def _note_break_glass(self, resource: Resource, observed: dict[str, Any]) -> BreakGlass | None:
        before, glass = self._break_glass.get(resource), break_glass_of(observed)
        if glass == before:
            return glass
        regarding = reference(resource, observed["metadata"])
        if glass is None:
            del self._break_glass[resource]
            self._log.warning("break-glass mode ended", kind=resource.kind)
            note = "break-glass mode ended: failurePolicy is reset to the settings"
            self._events.emit(regarding, "Normal", "BreakGlassEnded", note)
            return None
        self._break_glass[resource] = glass
        self._log.warning(
            "break-glass mode started, all webhooks fail open",
            kind=resource.kind,
            details=str(glass),
        )
        note = (
            f"break-glass mode started {glass}: all webhooks fail open and failurePolicy is not "
            "repaired: to end it, run harbourmaster doctor --break-glass off"
        )
        self._events.emit(regarding, "Warning", "BreakGlassStarted", note)
        return glass

    async def _read_namespace(self) -> bool:
        """Read our namespace, which owns the configurations; False if it is being deleted."""
        namespace = decode_namespace(await self._client.get(NAMESPACES, self._home.name))
        self._home = Home(namespace.name, namespace.uid)
        return not namespace.is_ending

    def _entry(self, resource: Resource, name: str) -> dict[str, Any]:
        entries = (self._stores[resource].get(self._name) or {}).get("webhooks") or ()
        return next((entry for entry in entries if entry.get("name") == name), {})


def report_repair(
    events: EventRecorder,
    metrics: RegistrationMetrics,
    regarding: ObjectReference,
    field: str,
    note: str,
    *,
    fight: str,
) -> None:
    """Report a repair; ``fight`` names the object if another client changes it repeatedly."""
    metrics.repairs.labels(regarding.kind, field).inc()
    events.emit(regarding, "Warning", "DriftRepaired", note)
    if fight:
        metrics.fights.labels(regarding.kind, field).inc()
        events.emit(
            regarding,
            "Warning",
            "FieldFight",
            f"{fight} is changed repeatedly by another client and is now repaired once a "
            "minute: find that client, or set registerWebhooks to false",
        )


def _field(resource: Resource, repair: Repair) -> tuple[Resource, str, str]:
    if repair.entry and not repair.field and repair.wanted is None:
        # Another client may use a new name for each webhook that it adds.
        return (resource, "", _FOREIGN)
    return (resource, repair.entry, repair.field)


def _wanted(repair: Repair) -> str:
    # Another client may have new additions each time.
    return "" if repair.field in additions.MERGED else repr(repair.wanted)


def _now() -> float:
    return asyncio.get_running_loop().time()
