"""Applications: the newest version of each, and its phases."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from msgspec import Struct

from harbourmaster.api.resources import APP_VERSIONS, WORKLOAD_VERSIONS
from harbourmaster.api.times import format_rfc3339, moment
from harbourmaster.dashboard.pages.gate_facts import GateFactsReader
from harbourmaster.dashboard.pages.phases import (
    Failure,
    PhaseRow,
    failures,
    name_of_current,
    phase_rows,
    ran,
    steps,
)
from harbourmaster.dashboard.pages.states import (
    Notice,
    ShownState,
    StateCount,
    Topic,
    parts_by_urgency,
    shown,
)
from harbourmaster.dashboard.query import Listing, select_page
from harbourmaster.dashboard.sources import lookup, values
from harbourmaster.dashboard.times import seconds_between, span
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
    """Of the workloads."""


class ApplicationsPage(Struct, frozen=True):
    """The page."""

    listing: Listing[ApplicationRow]
    parts: tuple[StateCount, ...]


def applications(
    sources: PageSources, visible: Visibility, query: PageQuery, now: datetime
) -> ApplicationsPage:
    """The page, the most urgent first."""
    newest = _visible(sources, visible)
    listing = select_page(
        newest,
        query,
        namespace=lambda each: each.metadata.namespace,
        texts=lambda each: (each.spec.app_name, each.metadata.namespace, each.spec.version),
        key=_rank,
        row=lambda each: _row(each, now),
        holds=lambda each: not query.state or each.status.status == query.state,
    )
    return ApplicationsPage(listing, tuple(_parts(newest)))


def tally(sources: PageSources, visible: Visibility, _now: datetime) -> Tally:
    """What the overview says of them."""
    newest = _visible(sources, visible)
    failed = sorted((each for each in newest if each.status.status == FAILED), key=_rank)
    return _TOPIC.tally(sources, visible, newest, _parts(newest), failed, _notice)


def _notice(version: AppVersion) -> Notice:
    text = f"version {version.spec.version} failed in its {_where(version)}"
    place = (version.metadata.namespace, version.spec.app_name)
    return Notice("bad", "Application", "/".join(place), text, link_of(*place))


def newest_first(versions: Iterable[AppVersion]) -> list[AppVersion]:
    """The versions of an app by their age, the one that counts first."""
    return sorted(versions, key=_age, reverse=True)


def link_of(namespace: str, name: str) -> str:
    """Where the application's own page is."""
    return f"{PATH}/{quote(namespace, safe='')}/{quote(name, safe='')}"


def _visible(sources: PageSources, visible: Visibility) -> list[AppVersion]:
    """The newest version of each application that may be seen."""
    scope = visible.of(APP_VERSIONS)
    found: dict[tuple[str, str], AppVersion] = {}
    for value in values(sources.app_versions):
        if not scope.sees(value.metadata.namespace):
            continue
        place = (value.metadata.namespace, value.spec.app_name)
        known = found.get(place)
        if known is None or _age(value) > _age(known):
            found[place] = value
    return list(found.values())


def _where(version: AppVersion) -> str:
    return name_of_current(version).lower() or "checks"


def _age(version: AppVersion) -> tuple[str, int, str]:
    metadata = version.metadata
    return metadata.creation_timestamp, version.spec.revision, metadata.name


def _rank(version: AppVersion) -> tuple[int, str, str]:
    metadata = version.metadata
    return shown(version.status.status).urgency, metadata.namespace, version.spec.app_name


def _parts(newest: Iterable[AppVersion]) -> Iterator[StateCount]:
    return parts_by_urgency(each.status.status for each in newest)


def _row(version: AppVersion, now: datetime) -> ApplicationRow:
    status = version.status
    return ApplicationRow(
        namespace=version.metadata.namespace,
        name=version.spec.app_name,
        link=link_of(version.metadata.namespace, version.spec.app_name),
        version=version.spec.version,
        state=shown(status.status),
        phase="" if status.is_finished and status.status != FAILED else name_of_current(version),
        steps=steps(version),
        start=status.start_time,
        took=_took(version, now),
        workloads=len(version.spec.workloads),
        finished=sum(each.status in COMPLETED for each in status.workload_status),
    )


def _took(version: Version, now: datetime) -> str:
    start, end = moment(version.status.start_time), moment(version.status.end_time)
    return span(seconds_between(start, end or now)) if start else ""


MOST: Final = 50
"""Workloads on a page, releases, and failures of each."""


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
    """One more than are shown, if there are more."""


class Lane(Struct, frozen=True, gc=False):
    """The phases of the app, or of one of its workloads. Without phases it is not there yet."""

    kind: str
    name: str
    version: str
    state: ShownState
    phases: tuple[PhaseRow, ...] = ()
    failed_nodes: tuple[str, ...] = ()


class ApplicationPage(Struct, frozen=True):
    """The page."""

    namespace: str
    name: str
    shown: Release
    from_time: str
    """When the time lines begin, and end."""
    to_time: str
    previous: str
    releases: tuple[Release, ...]
    """The newest first, the shown one among them unless it is too old."""
    lanes: tuple[Lane, ...]
    more: int
    """Workloads beyond those on the page."""
    sees_workloads: bool


def application(
    sources: PageSources, visible: Visibility, query: PageQuery, now: datetime
) -> ApplicationPage | None:
    """The page of the version that is asked for, else of the newest; None where there is none."""
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
    version = next((each for each in versions if each.metadata.name == query.version), versions[0])
    sees = visible.sees(WORKLOAD_VERSIONS, namespace)
    listed = version.spec.workloads
    workloads = [
        (entry.name, entry.version, _workload(sources, version, entry.name, entry.version))
        for entry in listed[:MOST]
        if sees
    ]
    known: list[Version] = [version, *(each for _, _, each in workloads if each is not None)]
    start, end = _range(known, now)
    facts = GateFactsReader(sources, visible).facts_in(namespace)

    def release(each: AppVersion) -> Release:
        return Release(
            version=each.spec.version,
            object=each.metadata.name,
            state=shown(each.status.status),
            link=link_of(namespace, name) + query.link(version=each.metadata.name, namespace=""),
            is_current=each is version,
            start=each.status.start_time,
            end=each.status.end_time,
            took=_took(each, now),
            failed=tuple(islice(_failures(sources, each, facts, now, sees=sees), MOST + 1)),
        )

    rows = phase_rows(version, start, end, now, facts)
    state = shown(version.status.status)
    lanes = [Lane("Application", name, version.spec.version, state, rows)]
    for workload, number, each in workloads:
        if each is None:
            lanes.append(Lane("Workload", workload, number, shown("Not there yet")))
            continue
        nodes = tuple(node.name for node in each.status.failed_nodes)
        state = shown(each.status.status)
        rows = phase_rows(each, start, end, now, facts)
        lanes.append(Lane("Workload", workload, number, state, rows, nodes))
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
    """What failed of a release; of a deployment, what failed of its workloads."""
    is_of_workload = False
    for entry in version.spec.workloads if sees else ():
        workload = _workload(sources, version, entry.name, entry.version)
        for failure in failures(workload, facts, now, entry.name) if workload else ():
            is_of_workload = True
            yield failure
    yield from (each for each in failures(version, facts, now) if each.check or not is_of_workload)


def _workload(
    sources: PageSources, app: AppVersion, name: str, version: str
) -> WorkloadVersion | None:
    names = names_of(app.spec.app_name, name, version)
    return lookup(sources.workload_versions, f"{app.metadata.namespace}/{names.version}")


def _range(versions: Iterable[Version], now: datetime) -> tuple[datetime, datetime]:
    """From when to when the time line goes."""
    starts, ends = [], []
    for version in versions:
        status = version.status
        starts.append(moment(status.start_time))
        ends.append(moment(status.end_time) or (now if status.start_time else None))
        for each in ran(version, now):
            starts.append(each.start)
            ends.append(each.end)
    return (
        min((start for start in starts if start is not None), default=now),
        max((end for end in ends if end is not None), default=now),
    )
