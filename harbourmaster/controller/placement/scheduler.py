"""Chooses targets for Applications, Clusters and MagnumClusters (krake-spec 3, 7.4).

Decisions are made in ``placement``. A look decides, writes what changed by one patch, and says when
to look again. Nothing is remembered from one term to the next, and no event puts off a time that is
due. Clusters also get their metrics reported (3.10).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final, Generic, TypeVar, cast

from msgspec import to_builtins
from msgspec.structs import replace

from harbourmaster.api.references import DEFAULT_MODE
from harbourmaster.api.resources import APPLICATIONS, CLUSTERS, MAGNUM_CLUSTERS
from harbourmaster.api.times import format_rfc3339, moment
from harbourmaster.controller.objects import OwnWrites, reference
from harbourmaster.controller.placement.caches import BY_NAMESPACE
from harbourmaster.controller.placement.writes import changes, is_news, write
from harbourmaster.kube.errors import NotFoundError
from harbourmaster.placement.application_status import next_time, settle
from harbourmaster.placement.backends import (
    cluster_is_settled,
    decide_cluster,
    decide_magnum_cluster,
    merge_project,
    settled_cluster,
    settled_magnum_cluster,
)
from harbourmaster.placement.cluster_state import METRICS_AVAILABLE
from harbourmaster.placement.confirmation import decide_confirmed
from harbourmaster.placement.decision import record
from harbourmaster.placement.model import (
    CHECKED,
    FALSE,
    SCHEDULED,
    TRUE,
    Application,
    Condition,
    MagnumCluster,
    MetricReport,
    ReportedCluster,
    condition,
    with_conditions,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from msgspec import Struct

    from harbourmaster.api.metadata import Metadata
    from harbourmaster.api.references import ReferenceMode
    from harbourmaster.api.resources import Resource
    from harbourmaster.controller.placement.caches import PlacementCaches
    from harbourmaster.controller.placement.checks import ApplicationChecks
    from harbourmaster.controller.placement.metrics import PlacementMetrics
    from harbourmaster.controller.placement.settings import PlacementSettings
    from harbourmaster.controller.placement.snapshots import Snapshots, TimedPass
    from harbourmaster.kube.client import Client
    from harbourmaster.kube.event_series import EventType
    from harbourmaster.kube.events import EventRecorder
    from harbourmaster.kube.reflector import Reflector
    from harbourmaster.kube.store import Store
    from harbourmaster.placement.candidates import Candidate
    from harbourmaster.placement.decision import Decision
    from harbourmaster.placement.measurements import Measurement
    from harbourmaster.placement.model import ApplicationStatus, Project, ReportedStatus
    from harbourmaster.placement.passes import Pass


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

    def settle(self, application: Application, decision: Decision, seen: Pass) -> ApplicationStatus:
        """Return the status of an application after a decision in this pass."""
        return settle(application, decision, self.settings, partial(record, seen=seen))


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
            self._forget(key)
            return None
        if self._own_writes.hide(obj.metadata):
            return None
        snapshot = context.snapshots.current()
        namespace = "" if self.is_global else obj.metadata.namespace
        requeue_after = snapshot.requeue_after(namespace, context.clock())
        return await self._decide(obj, snapshot) if requeue_after is None else requeue_after

    def _forget(self, key: str) -> None:
        self._own_writes.forget(key)

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

    def __init__(self, context: SchedulingContext, checks: ApplicationChecks) -> None:
        super().__init__(context, context.caches.applications)
        self._checks = checks

    def _forget(self, key: str) -> None:
        super()._forget(key)
        self._checks.forget(key)

    async def _decide(self, application: Application, snapshot: TimedPass) -> float | None:
        began, since = time.perf_counter(), self._context.since()
        rules, before = self._context.settings, application.status
        has_checks = self._checks.concern(application)
        if has_checks and not application.metadata.deletion_timestamp:
            if not self._checks.is_ready:
                # It is decided on once they are.
                return None
            decision, status = await self._checks.settle(application, snapshot)
            status = before if status == before else status
        else:
            decision = decide_confirmed(
                application, snapshot.seen, snapshot.move_limits, since=since
            )
            status = self._context.settle(application, decision, snapshot.seen)
        self._count(decision, began)
        if is_news(application.status, status):
            if not await self._write(application, status):
                return None
            if decision.cause:
                self._context.metrics.count_move(decision.cause)
            self._tell(decision, application, status.conditions)
            self._tell_check(application, condition(status.conditions, CHECKED))
            if decision.outcome == "Moved" and not decision.is_elective:
                self._announce(decision, application, snapshot)
        after = replace(application, status=status)
        when = next_time(after, rules, snapshot.seen.now, decision.until)
        return self._context.seconds_until(when)

    def _tell_check(self, application: Application, checked: Condition | None) -> None:
        """Report how far the checks are as an event, unless it was so before."""
        was = condition(application.status.conditions, CHECKED)
        told = (was.reason, was.message) if was is not None else None
        if checked is None or told == (checked.reason, checked.message):
            return
        kind: EventType = "Warning" if checked.status == FALSE else "Normal"
        about = reference(APPLICATIONS, application.metadata)
        self._context.events.emit(about, kind, checked.reason, checked.message)

    def _announce(self, decision: Decision, application: Application, snapshot: TimedPass) -> None:
        """Tell once in a pass that applications must leave a cluster."""
        context, namespace = self._context, application.metadata.namespace
        key, announced = f"{namespace}/{decision.current}", snapshot.move_limits.announced
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


FRESH: Final = timedelta(seconds=60)
"""For which other values of the same metrics are not written."""
_LONGEST: Final = 1024


def with_metrics(
    status: ReportedStatus, candidate: Candidate, generation: int, now: datetime
) -> ReportedStatus:
    """The status with its metrics as they are; the same object where nothing changed."""
    measured = candidate.measured
    new_condition = _condition(measured, generation)
    before = condition(status.conditions, METRICS_AVAILABLE)
    if before is None and not (measured.terms or measured.faults):
        return status
    after = replace(
        status, conditions=with_conditions(status.conditions, format_rfc3339(now), new_condition)
    )
    reports = _reports(measured, format_rfc3339(now))
    if after == status and not _is_news(status.metrics, reports, now):
        return status
    return replace(after, metrics=reports)


def _condition(measured: Measurement, generation: int) -> Condition:
    status, reason, message = TRUE, "MetricsAvailable", ""
    if measured.fault:
        status, reason, message = FALSE, measured.faults[0][1].reason, measured.fault[:_LONGEST]
    elif not measured.terms:
        reason = "NoMetrics"
    return Condition(
        type=METRICS_AVAILABLE,
        status=status,
        reason=reason,
        message=message,
        observed_generation=generation,
    )


def _reports(measured: Measurement, time: str) -> tuple[MetricReport, ...]:
    """Those with values, else those without: a target is measured as a whole."""
    known = tuple(
        MetricReport(
            name=term.metric,
            scope=term.scope,
            value=term.value,
            normalised=term.normalised,
            time=time,
        )
        for term in measured.terms
    )
    return known or tuple(
        MetricReport(name=name, time=time, reason=fault.reason) for name, fault in measured.faults
    )


def _is_news(
    before: tuple[MetricReport, ...], after: tuple[MetricReport, ...], now: datetime
) -> bool:
    """Whether other metrics are told of than before, or other values than long ago."""

    def plain(reports: tuple[MetricReport, ...]) -> list[MetricReport]:
        return [replace(report, time="") for report in reports]

    if [(reference.name, reference.scope, reference.reason) for reference in before] != [
        (reference.name, reference.scope, reference.reason) for reference in after
    ]:
        return True
    if plain(before) == plain(after):
        return False
    told = moment(before[0].time) if before else None
    return told is None or abs(now - told) >= FRESH


class CloudScheduler(PlacementReconciler[ReportedCluster]):
    """Finds a cloud for each Cluster that wants one, and reports the metrics of Clusters."""

    resource = CLUSTERS

    def __init__(self, context: SchedulingContext) -> None:
        super().__init__(context, context.caches.clusters)

    async def _decide(self, cluster: ReportedCluster, snapshot: TimedPass) -> float | None:
        seen = snapshot.seen
        began = time.perf_counter()
        decision = decide_cluster(cluster, seen)
        settled = settled_cluster(cluster, decision, partial(record, seen=seen))
        decided = cast("ReportedStatus", settled)
        if decision.outcome != "Waiting":
            self._count(decision, began)
        before = cluster.status
        is_new = is_news(before, decided)
        status = _with_metrics(cluster, decided if is_new else before, seen)
        if status is not before:
            if not await self._write(cluster, status):
                return None
            if is_new:
                self._tell(decision, cluster, status.conditions)
        # What was not written counts as well.
        status = replace(status, next_retry_time=decided.next_retry_time)
        return self._requeue_after(replace(cluster, status=status), seen)

    def _requeue_after(self, cluster: ReportedCluster, seen: Pass) -> float | None:
        again = moment(cluster.status.next_retry_time)
        if again is not None and again > seen.now and cluster_is_settled(cluster, seen.now):
            return self._context.seconds_until(again)
        return FRESH.total_seconds() if cluster.status.metrics else None


def _with_metrics(obj: ReportedCluster, status: ReportedStatus, seen: Pass) -> ReportedStatus:
    metadata = obj.metadata
    if metadata.deletion_timestamp or obj.spec.kubeconfig_secret_ref is None:
        return status
    for cluster in seen.clusters(metadata.namespace):
        if cluster.name == metadata.name:
            return with_metrics(status, cluster, metadata.generation, seen.now)
    return status


class ProjectScheduler(PlacementReconciler[MagnumCluster]):
    """Finds a project for each MagnumCluster that has none."""

    resource = MAGNUM_CLUSTERS
    is_global = True

    def __init__(self, context: SchedulingContext) -> None:
        super().__init__(context, context.caches.magnum_clusters)

    def map_changes(self, keys: Iterable[str] | None) -> Iterable[str]:
        """Those that have no project."""
        for key in super().map_changes(keys):
            magnum_cluster = self._store.get(key)
            if magnum_cluster is None or magnum_cluster.status.project is None:
                yield key

    async def _decide(self, magnum_cluster: MagnumCluster, snapshot: TimedPass) -> float | None:
        seen = snapshot.seen
        began = time.perf_counter()
        decision = decide_magnum_cluster(magnum_cluster, seen, self._context.references)
        projects = seen.snapshot.projects
        status = settled_magnum_cluster(
            magnum_cluster, decision, projects, partial(record, seen=seen)
        )
        if decision.outcome != "Waiting":
            self._count(decision, began)
        if status is magnum_cluster.status:
            return None
        stored, target = magnum_cluster.metadata, decision.target
        if target is not None:
            try:
                stored = await self._merge(magnum_cluster, projects[target.namespace, target.name])
            except NotFoundError:
                return None
        if await self._write(magnum_cluster, status, stored):
            self._tell(decision, magnum_cluster, status.conditions)
        return None

    async def _merge(self, magnum_cluster: MagnumCluster, project: Project) -> Metadata:
        """Give the cluster what it takes over from its project; returns its new metadata."""
        labels, metrics = merge_project(magnum_cluster, project)
        if labels == magnum_cluster.metadata.labels and metrics == (
            magnum_cluster.spec.metrics or ()
        ):
            return magnum_cluster.metadata
        value = {"metadata": {"labels": labels}, "spec": {"metrics": to_builtins(metrics)}}
        client = self._context.client
        return await write(client, self.resource, magnum_cluster.metadata, value, subresource=None)
