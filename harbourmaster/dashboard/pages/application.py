"""Builds the page of one application: a version on a time line, and its releases."""

from __future__ import annotations

from contextlib import suppress
from operator import attrgetter
from typing import TYPE_CHECKING

from msgspec import Struct

from harbourmaster.api.resources import ANALYSES, APP_VERSIONS, TASKS, WORKLOAD_VERSIONS
from harbourmaster.api.times import format_rfc3339, moment
from harbourmaster.dashboard.pages.applications import MOST, link_of, newest_first, took, version_of
from harbourmaster.dashboard.pages.gates import GateFactsReader
from harbourmaster.dashboard.pages.phases import Failure, PhaseRow, failures, phase_rows, phase_runs
from harbourmaster.dashboard.pages.states import ShownState, show_state
from harbourmaster.dashboard.plots import Plot, plot
from harbourmaster.dashboard.sources import lookup, values
from harbourmaster.dashboard.workload_pods import ApplicationRead, VersionPods, Warned
from harbourmaster.evaluation.analysis import decode_raw
from harbourmaster.evaluation.criteria import decode_target
from harbourmaster.lifecycle.check_facts import CheckReport, report_on_check
from harbourmaster.lifecycle.model import AppVersion, Try

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from harbourmaster.dashboard.query import PageQuery
    from harbourmaster.dashboard.sources import PageSources
    from harbourmaster.dashboard.visibility import Visibility
    from harbourmaster.lifecycle.check_facts import Facts
    from harbourmaster.lifecycle.model import Task, Version, WorkloadEntry, WorkloadVersion


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


class Lane(Struct, frozen=True, gc=False):
    """The phases of the app, or of one of its workloads; none before its version exists."""

    kind: str
    name: str
    version: str
    state: ShownState
    phases: tuple[PhaseRow, ...] = ()
    failed_nodes: tuple[str, ...] = ()
    pods: tuple[tuple[str, str, VersionPods], ...] = ()
    """New or Old, the version, and its pods, as far as they were read."""
    plots: tuple[Plot, ...] = ()
    runs: tuple[CheckReport, ...] = ()
    """The runs of its tasks, the newest first; a task that was repeated has several."""


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
    fault: str
    """Why something was not read."""


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


def place_of(version: Version) -> tuple[str, str, str]:
    """Return the app, the workload and the version; an app's workload is empty."""
    spec = version.spec
    if isinstance(version, AppVersion):
        return version.spec.app_name, "", spec.version
    return version.spec.app, version.spec.workload_name, spec.version


def tasks_by_version(
    sources: PageSources, visible: Visibility, namespace: str
) -> dict[tuple[str, str, str], list[Task]]:
    """Return the tasks of a namespace by the place of their version."""
    tasks: dict[tuple[str, str, str], list[Task]] = {}
    for task in values(sources.tasks) if visible.sees(TASKS, namespace) else ():
        of = task.spec.context
        if task.metadata.namespace == namespace:
            place = (of.app_name, of.workload_name, of.workload_version or of.app_version)
            tasks.setdefault(place, []).append(task)
    return tasks


def application(
    sources: PageSources, visible: Visibility, query: PageQuery, now: datetime
) -> ApplicationPage | None:
    """Build the page of the version in the query, else of the newest; None without a version."""
    release_and_all = shown_versions(sources, visible, query)
    if release_and_all is None:
        return None
    version, versions = release_and_all
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

    def plots(check: CheckReport) -> Iterator[Plot]:
        yield from _plots(check, facts)
        if visible.sees(ANALYSES, namespace):
            yield from _analysis_plots(check, f"{namespace}/{check.object}", sources)

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
    tasks = tasks_by_version(sources, visible, namespace)
    first_check = first.check.object if first and first.check else ""

    def lane(kind: str, title: str, of: Version, previous: WorkloadVersion | None = None) -> Lane:
        phases = phase_rows(of, start, end, now, facts)
        checks = [
            check for phase in phases for check in phase.checks if check.object != first_check
        ]
        runs = [report_on_check(task, facts, now) for task in tasks.get(place_of(of), ())]
        return Lane(
            kind=kind,
            name=title,
            version=of.spec.version,
            state=show_state(of.status.status),
            phases=phases,
            failed_nodes=tuple(node.name for node in getattr(of.status, "failed_nodes", ())),
            pods=tuple(
                (word, shown_version.spec.version, read.pods[shown_version.metadata.name])
                for word, shown_version in (("New", of), ("Old", previous))
                if shown_version is not None and shown_version.metadata.name in read.pods
            ),
            plots=tuple(drawn for check in checks for drawn in plots(check)),
            runs=tuple(sorted(runs, key=attrgetter("since"), reverse=True)[:MOST]),
        )

    lanes = [lane("Application", name, version)]
    for entry, workload in workloads:
        if workload is None:
            state = show_state("Not there yet")
            lanes.append(Lane("Workload", entry.name, entry.version, state))
            continue
        previous = version_of(sources, version, entry.name, workload.spec.previous_version)
        lanes.append(lane("Workload", entry.name, workload, previous))
    return ApplicationPage(
        namespace=namespace,
        name=name,
        shown=shown,
        from_time=format_rfc3339(start),
        to_time=format_rfc3339(end),
        previous=version.spec.previous_version,
        releases=tuple(shown if old is version else release(old) for old in versions[:MOST]),
        lanes=tuple(lanes),
        more=max(len(listed) - MOST, 0),
        sees_workloads=sees,
        first=first,
        first_plots=tuple(plots(first.check) if first and first.check else ()),
        events=read.events,
        fault=read.fault,
    )


def _plots(check: CheckReport, facts: Facts) -> Iterator[Plot]:
    """Yield the recorded measurements of each objective of an evaluation."""
    evaluation = facts.evaluations.get(check.object)
    for objective, record in evaluation.status.measurements.items() if evaluation else ():
        name = ": ".join(dict.fromkeys((check.name, objective)))
        if drawn := plot(name, record.tries, record.target):
            yield drawn


def _analysis_plots(check: CheckReport, key: str, sources: PageSources) -> Iterator[Plot]:
    """Yield the values of each objective of an analysis, one for each stage of its version."""
    newest = lookup(sources.analyses, key)
    if newest is None:
        return
    runs = [
        run
        for run in values(sources.analyses)
        if run.metadata.controller == newest.metadata.controller
        and run.metadata.namespace == newest.metadata.namespace
        and run.spec.analysis_definition == newest.spec.analysis_definition
    ]
    measured: dict[str, list[Try]] = {}
    targets: dict[str, str] = {}
    for run in sorted(runs, key=attrgetter("metadata.creation_timestamp"))[-MOST:]:
        stored = decode_raw(run.status.raw)
        for result in stored.objective_results[:MOST] if stored is not None else ():
            name, state = result.objective.analysis_value_template_ref.name, result.result.state
            value = "" if result.error else f"{result.value:g}"
            time = run.status.timeframe.to or run.metadata.creation_timestamp
            made = Try(value=value, time=time, status=state, message=result.error)
            measured.setdefault(name, []).append(made)
            with suppress(ValueError):
                targets[name] = decode_target(result.objective.target).target
    for name, results in measured.items():
        if drawn := plot(f"{check.name}: {name}", results, targets.get(name, "")):
            yield drawn


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
