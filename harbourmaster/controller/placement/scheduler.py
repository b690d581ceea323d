"""Chooses a cluster for each Application (krake-spec 3, 7.4): decisions are made in ``placement``.

A look decides, writes what changed by one patch, and says when to look again. Nothing is remembered
from one term to the next, and no event puts off a time that is due.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final, Generic, TypeVar

from msgspec.structs import replace

from harbourmaster.api.references import DEFAULT_MODE
from harbourmaster.api.resources import APPLICATIONS, CLUSTERS
from harbourmaster.controller.objects import OwnWrites, reference
from harbourmaster.controller.placement.caches import BY_NAMESPACE
from harbourmaster.controller.placement.writes import changes, is_news, write
from harbourmaster.kube.errors import NotFoundError
from harbourmaster.placement.application_status import next_time, settle
from harbourmaster.placement.confirmation import decide_confirmed
from harbourmaster.placement.model import (
    FALSE,
    SCHEDULED,
    Application,
    MagnumCluster,
    ReportedCluster,
    condition,
)
from harbourmaster.placement.records import record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from msgspec import Struct

    from harbourmaster.api.metadata import Metadata
    from harbourmaster.api.references import ReferenceMode
    from harbourmaster.api.resources import Resource
    from harbourmaster.controller.placement.caches import PlacementCaches
    from harbourmaster.controller.placement.metrics import PlacementMetrics
    from harbourmaster.controller.placement.settings import PlacementSettings
    from harbourmaster.controller.placement.snapshots import Snapshots, TimedPass
    from harbourmaster.kube.client import Client
    from harbourmaster.kube.events import EventRecorder
    from harbourmaster.kube.reflector import Reflector
    from harbourmaster.kube.store import Store
    from harbourmaster.placement.decision import Decision
    from harbourmaster.placement.model import Condition

T = TypeVar("T", Application, ReportedCluster, MagnumCluster)

SHORTEST: Final = 0.05
"""Seconds until a look that time alone asks for."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SchedulingContext:
    """The dependencies of the deciding reconcilers: ``now`` in UTC, ``clock`` in seconds."""

    client: Client
    caches: PlacementCaches
    settings: PlacementSettings
    snapshots: Snapshots
    events: EventRecorder
    metrics: PlacementMetrics
    now: Callable[[], datetime]
    clock: Callable[[], float]
    references: ReferenceMode = DEFAULT_MODE
    since: Callable[[], str] = str
    """Returns the RFC 3339 time since which placement is on; empty if that does not matter."""

    def seconds_until(self, when: datetime | None) -> float | None:
        """Return the ``requeue_after`` of a reconciler that is due at this time."""
        if when is None:
            return None
        return max((when - self.now()).total_seconds(), SHORTEST)


class PlacementReconciler(Generic[T]):
    """Decides about the objects of one cache; keys are ``namespace/name``."""

    resource: ClassVar[Resource]
    is_global: ClassVar[bool] = False
    """Whether decisions wait only for metrics that all namespaces may use."""

    def __init__(self, context: SchedulingContext, cache: Reflector[T]) -> None:
        self._context = context
        self._store: Store[T] = cache.store
        self._own_writes = OwnWrites()

    def map_changes(self, keys: Iterable[str] | None) -> Iterable[str]:
        """Return all keys: no single field says what is to be decided."""
        return list(self._store.keys()) if keys is None else keys

    async def reconcile(self, key: str) -> float | None:
        """Decide about one object, and write what has changed. Raises ApiError."""
        context, obj = self._context, self._store.get(key)
        if obj is None:
            self._own_writes.forget(key)
            return None
        if self._own_writes.hide(obj.metadata):
            return None
        snapshot = context.snapshots.current()
        namespace = "" if self.is_global else obj.metadata.namespace
        requeue_after = snapshot.requeue_after(namespace, context.clock())
        return await self._decide(obj, snapshot) if requeue_after is None else requeue_after

    async def _decide(self, obj: T, snapshot: TimedPass) -> float | None:
        raise NotImplementedError

    def _count(self, decision: Decision, began: float) -> None:
        seconds = time.perf_counter() - began
        self._context.metrics.count_answer(self.resource.kind, decision.outcome, seconds)

    async def _write(self, obj: T, status: Struct, stored: Metadata | None = None) -> bool:
        """Write what differs in the status; False where the object is gone.

        ``stored`` is its metadata, if something else of it was written just now.
        """
        fields = {"status": changes(obj.status, status)}
        try:
            await write(self._context.client, self.resource, stored or obj.metadata, fields)
        except NotFoundError:
            # The watch is about to tell.
            return False
        self._own_writes.note(obj.metadata)
        return True

    def _tell(self, decision: Decision, obj: T, conditions: tuple[Condition, ...]) -> None:
        """Report what was decided as an event, unless it was so before."""
        emit = partial(self._context.events.emit, reference(self.resource, obj.metadata))
        if decision.target is not None:
            reason = SCHEDULED if decision.outcome == "Placed" else "Rescheduled"
            emit("Normal", reason, f"to '{decision.target.label}': {decision.reason}")
            return
        was = condition(obj.status.conditions, SCHEDULED)
        now = condition(conditions, SCHEDULED)
        if now is None or now.status != FALSE or decision.outcome == "MoveLimited":
            return
        if was is None or (was.status, was.reason, was.message) != (
            now.status,
            now.reason,
            now.message,
        ):
            emit("Warning", now.reason, now.message)


class Scheduler(PlacementReconciler[Application]):
    """Chooses a cluster for each Application."""

    resource = APPLICATIONS

    def __init__(self, context: SchedulingContext) -> None:
        super().__init__(context, context.caches.applications)

    async def _decide(self, application: Application, snapshot: TimedPass) -> float | None:
        began, since = time.perf_counter(), self._context.since()
        decision = decide_confirmed(application, snapshot.seen, snapshot.herd, since=since)
        rules = self._context.settings
        status = settle(application, decision, rules, partial(record, seen=snapshot.seen))
        self._count(decision, began)
        if is_news(application.status, status):
            if not await self._write(application, status):
                return None
            if decision.cause:
                self._context.metrics.moved(decision.cause)
            self._tell(decision, application, status.conditions)
            if decision.outcome == "Moved" and not decision.is_elective:
                self._announce(decision, application, snapshot)
        after = replace(application, status=status)
        when = next_time(after, rules, snapshot.seen.now, decision.until)
        return self._context.seconds_until(when)

    def _announce(self, decision: Decision, application: Application, snapshot: TimedPass) -> None:
        """Tell once in a pass that applications must leave a cluster."""
        context, namespace = self._context, application.metadata.namespace
        key, announced = f"{namespace}/{decision.current}", snapshot.herd.announced
        cluster = context.caches.clusters.store.get(key)
        if cluster is None or key in announced:
            return
        announced.add(key)
        placed = (
            neighbour.status.scheduled_to
            for neighbour in self._store.by_index(BY_NAMESPACE, namespace)
        )
        count = sum(
            reference is not None and reference.name == decision.current for reference in placed
        )
        limit = context.settings.forced_moves_per_cluster or "any number"
        seconds = context.settings.sample_interval_seconds
        text = (
            f"of {count} applications that are placed here, those that must leave move, {limit} in "
            f"{seconds:g} seconds: {decision.reason}"
        )
        context.events.emit(reference(CLUSTERS, cluster.metadata), "Warning", "MovingAway", text)
