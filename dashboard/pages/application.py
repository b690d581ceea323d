"""One application: a version of it and of its workloads on one time line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from harbourmaster.api.resources import APP_VERSIONS, WORKLOAD_VERSIONS
from harbourmaster.api.times import stamp
from harbourmaster.dashboard.pages.applications import link_of, newest_first
from harbourmaster.dashboard.pages.phases import PhaseRow, phase_rows, ran
from harbourmaster.dashboard.pages.states import Shown, shown
from harbourmaster.dashboard.times import moment, seconds_between, span
from harbourmaster.dashboard.world import found, values
from harbourmaster.lifecycle.workloads import names_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from harbourmaster.dashboard.query import Query
    from harbourmaster.dashboard.sight import Sight
    from harbourmaster.dashboard.world import World
    from harbourmaster.lifecycle.model import AppVersion, Version, WorkloadVersion

MOST: Final = 50
"""Workloads on a page, and versions that are offered."""


class VersionLink(Struct, frozen=True, gc=False):
    """A version to choose."""

    version: str
    object: str
    state: Shown
    link: str
    is_current: bool


class Lane(Struct, frozen=True, gc=False):
    """The phases of the app, or of one of its workloads. Without phases it is not there yet."""

    kind: str
    name: str
    version: str
    state: Shown
    phases: tuple[PhaseRow, ...] = ()
    failed_nodes: tuple[str, ...] = ()


class ApplicationPage(Struct, frozen=True):
    """The page."""

    namespace: str
    name: str
    version: str
    object: str
    state: Shown
    start: str
    end: str
    took: str
    from_time: str
    """When the time lines begin, and end."""
    to_time: str
    previous: str
    versions: tuple[VersionLink, ...]
    lanes: tuple[Lane, ...]
    more: int
    """Workloads beyond those on the page."""
    sees_workloads: bool


def application(
    world: World, sight: Sight, query: Query, now: datetime, namespace: str, name: str
) -> ApplicationPage | None:
    """The page of the version that is asked for, else of the newest; None where there is none."""
    if not sight.sees(APP_VERSIONS, namespace):
        return None
    versions = newest_first(
        each
        for each in values(world.app_versions)
        if each.metadata.namespace == namespace and each.spec.app_name == name
    )
    if not versions:
        return None
    version = next((each for each in versions if each.metadata.name == query.version), versions[0])
    sees = sight.sees(WORKLOAD_VERSIONS, namespace)
    listed = version.spec.workloads
    workloads = [
        (entry.name, entry.version, _workload(world, version, entry.name, entry.version))
        for entry in listed[:MOST]
        if sees
    ]
    known: list[Version] = [version, *(each for _, _, each in workloads if each is not None)]
    start, end = _range(known, now)
    status = version.status
    first, last = moment(status.start_time), moment(status.end_time)
    lanes = [
        Lane(
            "Application",
            name,
            version.spec.version,
            shown(status.status),
            _rows(version, start, end, now),
        )
    ]
    for workload, number, each in workloads:
        if each is None:
            lanes.append(Lane("Workload", workload, number, shown("Not there yet")))
            continue
        nodes = tuple(one.name for one in each.status.failed_nodes)
        state = shown(each.status.status)
        lanes.append(Lane("Workload", workload, number, state, _rows(each, start, end, now), nodes))
    return ApplicationPage(
        namespace=namespace,
        name=name,
        version=version.spec.version,
        object=version.metadata.name,
        state=shown(status.status),
        start=status.start_time,
        end=status.end_time,
        took=span(seconds_between(first, last or now)) if first else "",
        from_time=stamp(start),
        to_time=stamp(end),
        previous=version.spec.previous_version,
        versions=tuple(
            VersionLink(
                version=each.spec.version,
                object=each.metadata.name,
                state=shown(each.status.status),
                link=link_of(each) + query.link(version=each.metadata.name),
                is_current=each is version,
            )
            for each in versions[:MOST]
        ),
        lanes=tuple(lanes),
        more=max(len(listed) - MOST, 0),
        sees_workloads=sees,
    )


def _rows(version: Version, start: datetime, end: datetime, now: datetime) -> tuple[PhaseRow, ...]:
    return tuple(phase_rows(version, start, end, now))


def _workload(world: World, app: AppVersion, name: str, version: str) -> WorkloadVersion | None:
    names = names_of(app.spec.app_name, name, version)
    return found(world.workload_versions, f"{app.metadata.namespace}/{names.version}")


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
        min((each for each in starts if each is not None), default=now),
        max((each for each in ends if each is not None), default=now),
    )
