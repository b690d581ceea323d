"""Chooses a cluster for each Application (krake-spec 3, 7.4): decisions are made in ``placement``.

A look decides, writes what changed by one patch, and says when to look again. Nothing is remembered
from one term to the next, and no event puts off a time that is due.
"""

from __future__ import annotations

import time
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec import Struct, structs
from msgspec.structs import replace

from harbourmaster.api.metadata import Metadata
from harbourmaster.api.patches import MergePatch
from harbourmaster.api.resources import APPLICATIONS
from harbourmaster.controller.objects import OwnWrites, reference
from harbourmaster.kube.errors import NotFoundError
from harbourmaster.placement.application_status import moment, next_time, settled
from harbourmaster.placement.decisions import decide
from harbourmaster.placement.model import (
    FALSE,
    SCHEDULED,
    ApplicationStatus,
    ClusterStatus,
    condition,
)
from harbourmaster.placement.records import record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from harbourmaster.api.resources import Resource
    from harbourmaster.controller.placement.caches import PlacementCaches
    from harbourmaster.controller.placement.metrics import PlacementMetrics
    from harbourmaster.controller.placement.settings import PlacementSettings
    from harbourmaster.controller.placement.snapshots import Snapshots
    from harbourmaster.kube.client import Client
    from harbourmaster.kube.events import EventRecorder
    from harbourmaster.placement.decision import Decision
    from harbourmaster.placement.model import Application, Cluster, Condition, MagnumCluster

    Told: TypeAlias = Application | Cluster | MagnumCluster

Status = TypeVar("Status", ApplicationStatus, ClusterStatus)
QUIET: Final = timedelta(seconds=10)
"""For which another failed try is not written."""


class _Stored(Struct, frozen=True):
    metadata: Metadata


_decode: Final = msgspec.json.Decoder(_Stored).decode


async def write(
    client: Client,
    resource: Resource,
    metadata: Metadata,
    value: dict[str, Any],
    *,
    subresource: str | None = "status",
) -> str:
    """Write fields of an object as it was read; its new version. Raises ApiError."""
    precondition = {"uid": metadata.uid, "resourceVersion": metadata.resource_version}
    value = {**value, "metadata": {**value.get("metadata", {}), **precondition}}
    raw = await client.patch(
        resource, metadata.name, MergePatch(value), metadata.namespace, subresource=subresource
    )
    return _decode(raw).metadata.resource_version


def changes(before: Struct, after: Struct) -> dict[str, Any]:
    """The fields in which two statuses of a kind differ; None takes a field away."""
    found = {}
    for field in structs.fields(after):
        value = getattr(after, field.name)
        if value != getattr(before, field.name):
            found[field.encode_name] = None if value == field.default else _whole(value)
    return found


def _whole(value: object) -> Any:  # noqa: ANN401 - JSON
    """A value that leaves nothing of an older one: a patch merges objects, but not lists."""
    if not isinstance(value, Struct):
        return value
    return {
        field.encode_name: None
        if (found := getattr(value, field.name)) == field.default
        else _whole(found)
        for field in structs.fields(value)
    }


def is_news(before: Status, after: Status) -> bool:
    """Whether a status is to be written: that of repeated failed tries only now and then."""
    if after is before or after.retries_left != -1 or before.retries_left != -1:
        return after is not before
    same = structs.replace(
        after, next_retry_time=before.next_retry_time, last_decision=before.last_decision
    )
    stored, wanted = moment(before.next_retry_time), moment(after.next_retry_time)
    if same != before or stored is None or wanted is None:
        return True
    return abs(wanted - stored) >= QUIET


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
        regarding = reference(resource, found.metadata)
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
