"""Chooses a cluster for each Application (krake-spec 3, 7.4): decisions are made in ``placement``.

A look decides, writes what changed by one patch, and says when to look again. Nothing is remembered
from one term to the next, and no event puts off a time that is due.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec.structs import replace

from harbourmaster.api.resources import APPLICATIONS
from harbourmaster.controller.own_writes import OwnWrites
from harbourmaster.controller.placement.writing import changes, is_news, write
from harbourmaster.kube.errors import NotFoundError
from harbourmaster.kube.event_series import ObjectReference
from harbourmaster.placement.application_status import next_time, settled
from harbourmaster.placement.decisions import decide
from harbourmaster.placement.model import FALSE, SCHEDULED, condition
from harbourmaster.placement.records import record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from harbourmaster.api.resources import Resource
    from harbourmaster.controller.placement.caches import PlacementCaches
    from harbourmaster.controller.placement.settings import PlacementSettings
    from harbourmaster.controller.placement.snapshots import Snapshots
    from harbourmaster.kube.client import Client
    from harbourmaster.kube.events import EventRecorder
    from harbourmaster.placement.decision import Decision
    from harbourmaster.placement.model import Application, Cluster, Condition, MagnumCluster
    from harbourmaster.telemetry.placement_metrics import PlacementMetrics

    Told: TypeAlias = Application | Cluster | MagnumCluster

SHORTEST: Final = 0.05
"""Seconds until a look that time alone asks for."""


class SchedulingContext:
    """What the reconcilers that decide are given: ``now`` is the time in UTC, ``clock`` seconds."""

    def __init__(  # noqa: PLR0913 - the world of a reconciler
        self,
        *,
        client: Client,
        caches: PlacementCaches,
        settings: PlacementSettings,
        snapshots: Snapshots,
        events: EventRecorder,
        metrics: PlacementMetrics,
        now: Callable[[], datetime],
        clock: Callable[[], float],
    ) -> None:
        self.client = client
        self.caches = caches
        self.settings = settings
        self.snapshots = snapshots
        self.events = events
        self.metrics = metrics
        self.now = now
        self.clock = clock

    def seconds_until(self, when: datetime | None) -> float | None:
        """What a reconciler returns to be called then."""
        if when is None:
            return None
        return max((when - self.now()).total_seconds(), SHORTEST)

    def tell(
        self,
        resource: Resource,
        decision: Decision,
        found: Told,
        conditions: tuple[Condition, ...],
    ) -> None:
        """Have people see what was decided, unless it was so before."""
        metadata = found.metadata
        regarding = ObjectReference(
            resource.api_version, resource.kind, metadata.name, metadata.namespace, metadata.uid
        )
        if decision.target is not None:
            reason = SCHEDULED if decision.outcome == "Placed" else "Rescheduled"
            text = f"to '{decision.target.label}': {decision.reason}"
            self.events.emit(regarding, "Normal", reason, text)
            return
        was = condition(found.status.conditions, SCHEDULED)
        now = condition(conditions, SCHEDULED)
        if now is None or now.status != FALSE:
            return
        if was is None or (was.status, was.reason, was.message) != (
            now.status,
            now.reason,
            now.message,
        ):
            self.events.emit(regarding, "Warning", now.reason, now.message)


class Scheduler:
    """Reconciles one Application; keys are ``namespace/name``."""

    def __init__(self, context: SchedulingContext) -> None:
        self._context = context
        self._applications = context.caches.applications.store
        self._own_writes = OwnWrites()

    def due(self, keys: Iterable[str] | None) -> Iterable[str]:
        """All: what is to be decided stands in no single field."""
        return list(self._applications.keys()) if keys is None else keys

    async def reconcile(self, key: str) -> float | None:
        """Decide about one application, and write what has changed. Raises ApiError."""
        context, found = self._context, self._applications.get(key)
        if found is None:
            self._own_writes.forget(key)
            return None
        if self._own_writes.hide(found.metadata):
            return None
        snapshot = context.snapshots.current()
        wait = snapshot.wait(found.metadata.namespace, context.clock())
        if wait is not None:
            return wait
        began = time.perf_counter()
        decision = decide(found, snapshot.seen, snapshot.crowd.herd(key))
        rules = context.settings
        status = settled(found, decision, rules, partial(record, seen=snapshot.seen))
        context.metrics.decided("Application", decision.outcome, time.perf_counter() - began)
        if is_news(found.status, status):
            try:
                await write(
                    context.client,
                    APPLICATIONS,
                    found.metadata,
                    {"status": changes(found.status, status)},
                )
            except NotFoundError:
                # Gone, which the watch is about to tell.
                return None
            self._own_writes.note(found.metadata)
            context.tell(APPLICATIONS, decision, found, status.conditions)
        after = replace(found, status=status)
        return context.seconds_until(next_time(after, rules, snapshot.seen.now))
