"""Finds clouds for Clusters and projects for MagnumClusters, and tells of Clusters' metrics (3.10).

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
from harbourmaster.api.times import stamp
from harbourmaster.controller.objects import OwnWrites
from harbourmaster.controller.placement.scheduler import changes, is_news, write
from harbourmaster.kube.errors import NotFoundError
from harbourmaster.placement.application_status import moment
from harbourmaster.placement.backends import (
    cluster_is_settled,
    decide_cluster,
    decide_magnum_cluster,
    merged,
    settled_cluster,
    settled_magnum_cluster,
)
from harbourmaster.placement.cluster_state import METRICS_AVAILABLE
from harbourmaster.placement.model import (
    FALSE,
    TRUE,
    Condition,
    MetricReport,
    condition,
    updated,
)
from harbourmaster.placement.records import record

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from harbourmaster.controller.placement.scheduler import SchedulingContext
    from harbourmaster.placement.candidates import Candidate
    from harbourmaster.placement.measuring import Measured
    from harbourmaster.placement.model import (
        MagnumCluster,
        Project,
        ReportedCluster,
        ReportedStatus,
    )
    from harbourmaster.placement.passes import Pass


FRESH: Final = timedelta(seconds=60)
"""For which other values of the same metrics are not written."""
_LONGEST: Final = 1024


def reported(
    status: ReportedStatus, candidate: Candidate, generation: int, now: datetime
) -> ReportedStatus:
    """The status with its metrics as they are; the same object where nothing changed."""
    measured = candidate.measured
    found = _condition(measured, generation)
    before = condition(status.conditions, METRICS_AVAILABLE)
    if before is None and not (measured.terms or measured.faults):
        return status
    after = replace(status, conditions=updated(status.conditions, stamp(now), found))
    reports = _reports(measured, stamp(now))
    if after == status and not _is_news(status.metrics, reports, now):
        return status
    return replace(after, metrics=reports)


def _condition(measured: Measured, generation: int) -> Condition:
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


def _reports(measured: Measured, time: str) -> tuple[MetricReport, ...]:
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
        return [replace(each, time="") for each in reports]

    if [(each.name, each.scope, each.reason) for each in before] != [
        (each.name, each.scope, each.reason) for each in after
    ]:
        return True
    if plain(before) == plain(after):
        return False
    told = moment(before[0].time) if before else None
    return told is None or abs(now - told) >= FRESH


class CloudScheduler:
    """Reconciles one Cluster; keys are ``namespace/name``."""

    def __init__(self, context: SchedulingContext) -> None:
        self._context = context
        self._clusters = context.caches.clusters.store
        self._own_writes = OwnWrites()

    def due(self, keys: Iterable[str] | None) -> Iterable[str]:
        """All: what is to be done stands in no single field."""
        return list(self._clusters.keys()) if keys is None else keys

    async def reconcile(self, key: str) -> float | None:
        """Find a cloud where one is wanted, and tell of the metrics. Raises ApiError."""
        context, found = self._context, self._clusters.get(key)
        if found is None:
            self._own_writes.forget(key)
            return None
        if self._own_writes.hide(found.metadata):
            return None
        snapshot = context.snapshots.current()
        wait = snapshot.wait(found.metadata.namespace, context.clock())
        if wait is not None:
            return wait
        seen = snapshot.seen
        began = time.perf_counter()
        decision = decide_cluster(found, seen)
        settled = settled_cluster(found, decision, partial(record, seen=seen))
        decided = cast("ReportedStatus", settled)
        if decision.outcome != "Waiting":
            context.metrics.decided("Cluster", decision.outcome, time.perf_counter() - began)
        before = found.status
        is_new = is_news(before, decided)
        status = self._told(found, decided if is_new else before, seen)
        if status is not before:
            try:
                await write(
                    context.client, CLUSTERS, found.metadata, {"status": changes(before, status)}
                )
            except NotFoundError:
                return None
            self._own_writes.note(found.metadata)
            if is_new:
                context.tell(CLUSTERS, decision, found, status.conditions)
        # What was not written counts as well.
        status = replace(status, next_retry_time=decided.next_retry_time)
        return self._wait(replace(found, status=status), seen)

    def _told(self, found: ReportedCluster, status: ReportedStatus, seen: Pass) -> ReportedStatus:
        metadata = found.metadata
        if metadata.deletion_timestamp or found.spec.kubeconfig_secret_ref is None:
            return status
        for each in seen.clusters(metadata.namespace):
            if each.name == metadata.name:
                return reported(status, each, metadata.generation, seen.now)
        return status

    def _wait(self, found: ReportedCluster, seen: Pass) -> float | None:
        again = moment(found.status.next_retry_time)
        if again is not None and again > seen.now and cluster_is_settled(found, seen.now):
            return self._context.seconds_until(again)
        return FRESH.total_seconds() if found.status.metrics else None


class ProjectScheduler:
    """Reconciles one MagnumCluster; keys are ``namespace/name``."""

    def __init__(self, context: SchedulingContext) -> None:
        self._context = context
        self._clusters = context.caches.magnum_clusters.store
        self._own_writes = OwnWrites()

    def due(self, keys: Iterable[str] | None) -> Iterable[str]:
        """Those that have no project."""
        for key in list(self._clusters.keys()) if keys is None else keys:
            found = self._clusters.get(key)
            if found is None or found.status.project is None:
                yield key

    async def reconcile(self, key: str) -> float | None:
        """Find a project where one is wanted. Raises ApiError."""
        context, found = self._context, self._clusters.get(key)
        if found is None:
            self._own_writes.forget(key)
            return None
        if self._own_writes.hide(found.metadata):
            return None
        snapshot = context.snapshots.current()
        wait = snapshot.wait("", context.clock())
        if wait is not None:
            return wait
        seen = snapshot.seen
        began = time.perf_counter()
        decision = decide_magnum_cluster(found, seen)
        projects = seen.snapshot.projects
        status = settled_magnum_cluster(found, decision, projects, partial(record, seen=seen))
        if decision.outcome != "Waiting":
            context.metrics.decided("MagnumCluster", decision.outcome, time.perf_counter() - began)
        if status is found.status:
            return None
        try:
            metadata, target = found.metadata, decision.target
            if target is not None:
                version = await self._merge(found, projects[target.namespace, target.name])
                metadata = replace(metadata, resource_version=version)
            fields = {"status": changes(found.status, status)}
            await write(context.client, MAGNUM_CLUSTERS, metadata, fields)
        except NotFoundError:
            return None
        self._own_writes.note(found.metadata)
        context.tell(MAGNUM_CLUSTERS, decision, found, status.conditions)
        return None

    async def _merge(self, found: MagnumCluster, project: Project) -> str:
        """Give the cluster what it takes over from its project; the new version."""
        labels, metrics = merged(found, project)
        if labels == found.metadata.labels and metrics == (found.spec.metrics or ()):
            return found.metadata.resource_version
        value = {"metadata": {"labels": labels}, "spec": {"metrics": to_builtins(metrics)}}
        return await write(
            self._context.client, MAGNUM_CLUSTERS, found.metadata, value, subresource=None
        )
