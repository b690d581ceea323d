"""Builds the pages of applications: the newest version of each, its phases and their failures."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from harbourmaster.api.resources import APP_VERSIONS, WORKLOAD_VERSIONS
from harbourmaster.api.times import moment
from harbourmaster.dashboard.pages.phases import (
    DEPLOYMENT,
    name_of_current,
    name_of_failed,
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
from harbourmaster.dashboard.query import Listing, object_path, select_page
from harbourmaster.dashboard.sources import lookup, values
from harbourmaster.lifecycle.model import COMPLETED, FAILED, AppVersion, StageStatus
from harbourmaster.lifecycle.stages import HELD
from harbourmaster.lifecycle.workloads import names_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from harbourmaster.dashboard.pages.states import Tally
    from harbourmaster.dashboard.query import PageQuery
    from harbourmaster.dashboard.sources import PageSources
    from harbourmaster.dashboard.visibility import Visibility
    from harbourmaster.lifecycle.model import Version, WorkloadVersion


PATH: Final = "/applications"
MOST: Final = 50
"""Maximum workloads on a page, releases, and failures of each release."""
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
    held = [
        version
        for version in values(sources.workload_versions)
        if version.status.stage is not None
        and version.status.stage.state == HELD
        and not version.status.is_finished
        and visible.sees(WORKLOAD_VERSIONS, version.metadata.namespace)
    ]
    urgent: list[Version] = [*failed, *sorted(held, key=attrgetter("metadata.key"))]
    return _TOPIC.tally(
        sources,
        visible,
        newest,
        _parts(newest),
        urgent,
        lambda version: _notice(sources, visible, version),
    )


def _notice(sources: PageSources, visible: Visibility, version: Version) -> Notice:
    if isinstance(version, AppVersion):
        app = version.spec.app_name
        end = f"failed in its {_failed_phase(sources, visible, version).lower() or 'checks'}"
    else:
        app, stage = version.spec.app, version.status.stage or StageStatus()
        end = f"is held at stage {stage.number} of {stage.of}: {stage.message}"
    place = (version.metadata.namespace, app)
    text = f"version {version.spec.version} {end}"
    return Notice("bad", "Application", "/".join(place), text, link_of(*place))


def newest_first(versions: Iterable[AppVersion]) -> list[AppVersion]:
    """Sort the versions of an app by age, the newest first."""
    return sorted(versions, key=_age, reverse=True)


def link_of(namespace: str, name: str) -> str:
    """Return the path of the page of an application."""
    return object_path(PATH, namespace, name)


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
        if (workload := version_of(sources, version, entry.name, entry.version)) is not None
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
        took=took(version, now),
        workloads=len(version.spec.workloads),
        finished=sum(workload.status in COMPLETED for workload in status.workload_status),
    )


def version_of(
    sources: PageSources, app: AppVersion, workload: str, version: str
) -> WorkloadVersion | None:
    """Return a version of a workload of the app; None if it does not exist."""
    names = names_of(app.spec.app_name, workload, version)
    return lookup(sources.workload_versions, f"{app.metadata.namespace}/{names.version}")


def took(version: Version, now: datetime) -> str:
    """Return how long a version took, or takes until now; empty before its start."""
    start, end = moment(version.status.start_time), moment(version.status.end_time)
    return span(seconds_between(start, end or now)) if start else ""
