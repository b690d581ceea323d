"""Builds the page of one application: a version on a time line, and its releases."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from msgspec import Struct

from harbourmaster.api.resources import APP_VERSIONS, TASKS, WORKLOAD_VERSIONS
from harbourmaster.api.times import format_rfc3339, moment
from harbourmaster.dashboard.pages.applications import MOST, link_of, newest_first, took, version_of
from harbourmaster.dashboard.pages.gates import GateFactsReader
from harbourmaster.dashboard.pages.lanes import (
    Lane,
    build_lane,
    plots_of,
    task_runs,
    version_row,
)
from harbourmaster.dashboard.pages.phases import Failure, failures, phase_rows, phase_runs
from harbourmaster.dashboard.pages.states import ShownState, show_state
from harbourmaster.dashboard.plots import Plot
from harbourmaster.dashboard.sources import values
from harbourmaster.dashboard.workload_pods import ApplicationRead, Warned

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from harbourmaster.dashboard.pages.lanes import VersionRow
    from harbourmaster.dashboard.query import PageQuery
    from harbourmaster.dashboard.sources import PageSources
    from harbourmaster.dashboard.visibility import Visibility
    from harbourmaster.lifecycle.check_facts import Facts
    from harbourmaster.lifecycle.model import AppVersion, Version, WorkloadEntry, WorkloadVersion


class Release(Struct, frozen=True, gc=False):
    """One version in the history of an application."""

    version: str
    object: str
    state: ShownState
    link: str
    is_current: bool
    start: str
    end: str
    took: str
    failed: tuple[Failure, ...]
    """The failures, one more than are shown if there are more."""


class ApplicationPage(Struct, frozen=True):
    """The page of one application."""

    namespace: str
    name: str
    shown: Release
    from_time: str
    """The begin of the time lines."""
    to_time: str
    """The end of the time lines."""
    previous: str
    releases: tuple[Release, ...]
    """The releases, the newest first; the shown one may be too old for the list."""
    lanes: tuple[Lane, ...]
    more: int
    """The number of workloads that are not on the page."""
    sees_workloads: bool
    first: Failure | None
    """The failure that came first in the shown version."""
    first_plots: tuple[Plot, ...]
    events: tuple[Warned, ...]
    unread: tuple[str, ...]
    """Lines that name what was not read, and why."""


def shown_versions(
    sources: PageSources, visible: Visibility, query: PageQuery
) -> tuple[AppVersion, list[AppVersion]] | None:
    """Return the version in the query, else the newest, and all of its app; None without any."""
    namespace = query.namespace
    versions = newest_first(
        value
        for value in values(sources.app_versions)
        if value.metadata.namespace == namespace and value.spec.app_name == query.name
    )
    if not versions or not visible.sees(APP_VERSIONS, namespace):
        return None
    named = (version for version in versions if version.metadata.name == query.version)
    return next(named, versions[0]), versions


def workloads_of(
    sources: PageSources, visible: Visibility, app: AppVersion
) -> list[tuple[WorkloadEntry, WorkloadVersion | None]]:
    """Return the workloads on the page of a version, with their versions as far as they exist."""
    if app.is_of_application or not visible.sees(WORKLOAD_VERSIONS, app.metadata.namespace):
        return []
    return [
        (entry, version_of(sources, app, entry.name, entry.version))
        for entry in app.spec.workloads[:MOST]
    ]


def application(
    sources: PageSources, visible: Visibility, query: PageQuery, now: datetime
) -> ApplicationPage | None:
    """Build the page of the version in the query, else of the newest; None without a version."""
    found_versions = shown_versions(sources, visible, query)
    if found_versions is None:
        return None
    version, versions = found_versions
    namespace, name = query.namespace, query.name
    sees = visible.sees(WORKLOAD_VERSIONS, namespace)
    listed = () if version.is_of_application else version.spec.workloads
    workloads = workloads_of(sources, visible, version)
    known: list[Version] = [
        version,
        *(workload for _, workload in workloads if workload is not None),
    ]
    start, end = _range(known, now)
    facts = GateFactsReader(sources, visible).facts_in(namespace)

    def release(candidate: AppVersion) -> Release:
        return Release(
            version=candidate.spec.version,
            object=candidate.metadata.name,
            state=show_state(candidate.status.status),
            link=link_of(namespace, name)
            + query.link(version=candidate.metadata.name, namespace=""),
            is_current=candidate is version,
            start=candidate.status.start_time,
            end=candidate.status.end_time,
            took=took(candidate, now),
            failed=_failures(sources, candidate, facts, now, sees=sees)[: MOST + 1],
        )

    shown = release(version)
    first = next(iter(shown.failed), None)
    read = sources.read or ApplicationRead()
    tasks = [
        task
        for task in (values(sources.tasks) if visible.sees(TASKS, namespace) else ())
        if task.metadata.namespace == namespace and task.spec.context.app_name == name
    ]

    def lane(kind: str, title: str, of: Version, *versions: VersionRow) -> Lane:
        phases = phase_rows(of, start, end, now, facts)
        object_shown = first.check.object if first is not None and first.check is not None else ""
        checks = [c for phase in phases for c in phase.checks if c.object != object_shown]
        plain = Lane(kind, title, of.spec.version, show_state(of.status.status), phases)
        return build_lane(plain, of, checks, facts, task_runs(of, tasks, now), versions)

    lanes = [lane("Application", name, version)]
    for entry, workload in workloads:
        if workload is None:
            state = show_state("Not there yet")
            lanes.append(Lane("Workload", entry.name, entry.version, state))
            continue
        previous = version_of(sources, version, entry.name, workload.spec.previous_version)
        rows = [
            row
            for word, of in (("New", workload), ("Old", previous))
            for row in version_row(word, of, read.pods.get(of.metadata.name) if of else None)
        ]
        lanes.append(lane("Workload", entry.name, workload, *rows))
    return ApplicationPage(
        namespace=namespace,
        name=name,
        shown=shown,
        from_time=format_rfc3339(start),
        to_time=format_rfc3339(end),
        previous=version.spec.previous_version,
        releases=tuple(map(release, versions[:MOST])),
        lanes=tuple(lanes),
        more=max(len(listed) - MOST, 0),
        sees_workloads=sees,
        first=first,
        first_plots=tuple(plots_of(first.check, facts) if first and first.check else ()),
        events=read.events,
        unread=read.faults,
    )


def _failures(
    sources: PageSources, version: AppVersion, facts: Facts, now: datetime, *, sees: bool
) -> tuple[Failure, ...]:
    """Return the failures of a release by time; those of workloads stand for its deployment."""
    failed: list[Failure] = []
    for entry in version.spec.workloads if sees else ():
        workload = version_of(sources, version, entry.name, entry.version)
        failed += failures(workload, facts, now, entry.name) if workload else ()
    is_of_workload = bool(failed)
    failed += [own for own in failures(version, facts, now) if own.check or not is_of_workload]
    return tuple(sorted(failed, key=attrgetter("rank")))


def _range(versions: Iterable[Version], now: datetime) -> tuple[datetime, datetime]:
    starts, ends = [], []
    for version in versions:
        status = version.status
        starts.append(moment(status.start_time))
        ends.append(moment(status.end_time) or (now if status.start_time else None))
        for run in phase_runs(version, now):
            starts.append(run.start)
            ends.append(run.end)
    return (
        min((start for start in starts if start is not None), default=now),
        max((end for end in ends if end is not None), default=now),
    )
