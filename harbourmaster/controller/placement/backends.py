"""Finds clouds for Clusters, projects for MagnumClusters, and reports Clusters' metrics (3.10).

Both are placed once and for all.
"""

from __future__ import annotations

import time
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from msgspec import to_builtins
from msgspec.structs import replace

from harbourmaster.api.resources import CLUSTERS, MAGNUM_CLUSTERS
from harbourmaster.api.times import format_rfc3339, moment
from harbourmaster.controller.placement.scheduler import PlacementReconciler
from harbourmaster.controller.placement.writes import is_news, write
from harbourmaster.kube.errors import NotFoundError
from harbourmaster.placement.backends import (
    cluster_is_settled,
    decide_cluster,
    decide_magnum_cluster,
    merge_project,
    settled_cluster,
    settled_magnum_cluster,
)
from harbourmaster.placement.cluster_state import METRICS_AVAILABLE
from harbourmaster.placement.model import (
    FALSE,
    TRUE,
    Condition,
    MagnumCluster,
    MetricReport,
    ReportedCluster,
    condition,
    with_conditions,
)
from harbourmaster.placement.records import record

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from harbourmaster.api.metadata import Metadata
    from harbourmaster.controller.placement.scheduler import SchedulingContext
    from harbourmaster.controller.placement.snapshots import TimedPass
    from harbourmaster.placement.filters import Candidate
    from harbourmaster.placement.measurements import Measurement
    from harbourmaster.placement.model import Project, ReportedStatus
    from harbourmaster.placement.passes import Pass


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
