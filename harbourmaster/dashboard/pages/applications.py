"""Builds the pages of applications: the newest version of each, its phases and their failures."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from msgspec import Struct

from harbourmaster.api.resources import APP_VERSIONS, WORKLOAD_VERSIONS
from harbourmaster.api.times import format_rfc3339, moment
from harbourmaster.dashboard.pages.gates import GateFactsReader
from harbourmaster.dashboard.pages.phases import (
    DEPLOYMENT,
    Failure,
    PhaseRow,
    failures,
    name_of_current,
    name_of_failed,
    phase_rows,
    phase_runs,
    steps,
)
from harbourmaster.dashboard.pages.states import (
    Notice,
    ShownState,
    StateCount,
    Topic,
    parts_by_urgency,
    seconds_between,
    show_state,
    span,
)
from harbourmaster.dashboard.query import Listing, select_page
from harbourmaster.dashboard.sources import lookup, values
from harbourmaster.lifecycle.model import COMPLETED, FAILED
from harbourmaster.lifecycle.workloads import names_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from harbourmaster.dashboard.pages.states import Tally
    from harbourmaster.dashboard.query import PageQuery
    from harbourmaster.dashboard.sources import PageSources
    from harbourmaster.dashboard.visibility import Visibility
    from harbourmaster.lifecycle.check_facts import Facts
    from harbourmaster.lifecycle.model import AppVersion, Version, WorkloadVersion


PATH: Final = "/applications"
_TOPIC: Final = Topic("Applications", PATH, ("application", "applications"), ((APP_VERSIONS,),))


class ApplicationRow(Struct, frozen=True, gc=False):
    """One application in its newest version."""

    namespace: str
    name: str
    link: str
    version: str
    state: ShownState
    phase: str
    steps: tuple[tuple[str, ShownState], ...]
    start: str
    took: str
    workloads: int
    finished: int
    """The number of finished workloads."""


class ApplicationsPage(Struct, frozen=True):
    """The page of all applications."""

    listing: Listing[ApplicationRow]
    parts: tuple[StateCount, ...]


def applications(
    sources: PageSources, visible: Visibility, query: PageQuery, now: datetime
) -> ApplicationsPage:
    """Build the page of all applications, the most urgent first."""
    newest = newest_versions(sources, visible)
    listing = select_page(
        newest,
        query,
        namespace=lambda version: version.metadata.namespace,
        texts=lambda version: (
            version.spec.app_name,
            version.metadata.namespace,
            version.spec.version,
        ),
        key=_rank,
        row=lambda version: _row(sources, visible, version, now),
        holds=lambda version: not query.state or version.status.status == query.state,
    )
    return ApplicationsPage(listing, tuple(_parts(newest)))


def tally(sources: PageSources, visible: Visibility, _now: datetime) -> Tally:
    """Count applications for the overview."""
    newest = newest_versions(sources, visible)
    failed = sorted((version for version in newest if version.status.status == FAILED), key=_rank)
    return _TOPIC.tally(
        sources,
        visible,
        newest,
        _parts(newest),
        failed,
        lambda version: _notice(sources, visible, version),
    )


def _notice(sources: PageSources, visible: Visibility, version: AppVersion) -> Notice:
    where = _failed_phase(sources, visible, version).lower() or "checks"
    text = f"version {version.spec.version} failed in its {where}"
    place = (version.metadata.namespace, version.spec.app_name)
    return Notice("bad", "Application", "/".join(place), text, link_of(*place))


def newest_first(versions: Iterable[AppVersion]) -> list[AppVersion]:
    """Sort the versions of an app by age, the newest first."""
    return sorted(versions, key=_age, reverse=True)


def link_of(namespace: str, name: str) -> str:
    """Return the path of the page of an application."""
    return f"{PATH}/{quote(namespace, safe='')}/{quote(name, safe='')}"


def newest_versions(sources: PageSources, visible: Visibility) -> list[AppVersion]:
    """Return the newest version of each application that the user may see."""
    scope = visible.of(APP_VERSIONS)
    newest: dict[tuple[str, str], AppVersion] = {}
    for value in values(sources.app_versions):
        if not scope.sees(value.metadata.namespace):
            continue
        place = (value.metadata.namespace, value.spec.app_name)
        known = newest.get(place)
        if known is None or _age(value) > _age(known):
            newest[place] = value
    return list(newest.values())


def _failed_phase(sources: PageSources, visible: Visibility, version: AppVersion) -> str:
    """Return the phase that failed first: that of a workload, not the deployment around it."""
    own = name_of_failed(version) or name_of_current(version)
    if own != DEPLOYMENT or not visible.sees(WORKLOAD_VERSIONS, version.metadata.namespace):
        return own
    failed = [
        (workload.status.end_time, f"{phase} of {entry.name}")
        for entry in version.spec.workloads[:MOST]
        if (workload := _workload(sources, version, entry.name, entry.version)) is not None
        and (phase := name_of_failed(workload))
    ]
    return min(failed, default=("", own))[1]


def _age(version: AppVersion) -> tuple[str, int, str]:
    metadata = version.metadata
    return metadata.creation_timestamp, version.spec.revision, metadata.name


def _rank(version: AppVersion) -> tuple[int, str, str]:
    metadata = version.metadata
    return show_state(version.status.status).urgency, metadata.namespace, version.spec.app_name


def _parts(newest: Iterable[AppVersion]) -> Iterator[StateCount]:
    return parts_by_urgency(version.status.status for version in newest)


def _row(
    sources: PageSources, visible: Visibility, version: AppVersion, now: datetime
) -> ApplicationRow:
    status = version.status
    phase = "" if status.is_finished else name_of_current(version)
    if status.status == FAILED:
        phase = _failed_phase(sources, visible, version)
    return ApplicationRow(
        namespace=version.metadata.namespace,
        name=version.spec.app_name,
        link=link_of(version.metadata.namespace, version.spec.app_name),
        version=version.spec.version,
        state=show_state(status.status),
        phase=phase,
        steps=steps(version),
        start=status.start_time,
        took=_took(version, now),
        workloads=len(version.spec.workloads),
        finished=sum(workload.status in COMPLETED for workload in status.workload_status),
    )


def _took(version: Version, now: datetime) -> str:
    start, end = moment(version.status.start_time), moment(version.status.end_time)
    return span(seconds_between(start, end or now)) if start else ""


MOST: Final = 50
"""Maximum workloads on a page, releases, and failures of each release."""


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


def application(
    sources: PageSources, visible: Visibility, query: PageQuery, now: datetime
) -> ApplicationPage | None:
    """Build the page of the version in the query, else of the newest; None without a version."""
    namespace, name = query.namespace, query.name
    if not visible.sees(APP_VERSIONS, namespace):
        return None
    versions = newest_first(
        value
        for value in values(sources.app_versions)
        if value.metadata.namespace == namespace and value.spec.app_name == name
    )
    if not versions:
        return None
    version = next(
        (candidate for candidate in versions if candidate.metadata.name == query.version),
        versions[0],
    )
    sees = visible.sees(WORKLOAD_VERSIONS, namespace)
    listed = () if version.is_of_application else version.spec.workloads
    workloads = [
        (entry.name, entry.version, _workload(sources, version, entry.name, entry.version))
        for entry in listed[:MOST]
        if sees
    ]
    known: list[Version] = [
        version,
        *(workload for _, _, workload in workloads if workload is not None),
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
            took=_took(candidate, now),
            failed=tuple(islice(_failures(sources, candidate, facts, now, sees=sees), MOST + 1)),
        )

    rows = phase_rows(version, start, end, now, facts)
    state = show_state(version.status.status)
    lanes = [Lane("Application", name, version.spec.version, state, rows)]
    for name_of_workload, number, workload in workloads:
        if workload is None:
            lanes.append(Lane("Workload", name_of_workload, number, show_state("Not there yet")))
            continue
        nodes = tuple(node.name for node in workload.status.failed_nodes)
        state = show_state(workload.status.status)
        rows = phase_rows(workload, start, end, now, facts)
        lanes.append(Lane("Workload", name_of_workload, number, state, rows, nodes))
    return ApplicationPage(
        namespace=namespace,
        name=name,
        shown=release(version),
        from_time=format_rfc3339(start),
        to_time=format_rfc3339(end),
        previous=version.spec.previous_version,
        releases=tuple(map(release, versions[:MOST])),
        lanes=tuple(lanes),
        more=max(len(listed) - MOST, 0),
        sees_workloads=sees,
    )


def _failures(
    sources: PageSources, version: AppVersion, facts: Facts, now: datetime, *, sees: bool
) -> Iterator[Failure]:
    """Yield the failures of a release; those of its workloads stand for its deployment."""
    is_of_workload = False
    for entry in version.spec.workloads if sees else ():
        workload = _workload(sources, version, entry.name, entry.version)
        for failure in failures(workload, facts, now, entry.name) if workload else ():
            is_of_workload = True
            yield failure
    for failure in failures(version, facts, now):
        if failure.check or not is_of_workload:
            yield failure


def _workload(
    sources: PageSources, app: AppVersion, name: str, version: str
) -> WorkloadVersion | None:
    names = names_of(app.spec.app_name, name, version)
    return lookup(sources.workload_versions, f"{app.metadata.namespace}/{names.version}")


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
