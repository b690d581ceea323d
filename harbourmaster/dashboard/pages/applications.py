"""Builds the pages of applications: the newest version of each, its phases and their failures."""

from __future__ import annotations

from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from msgspec import Struct

from harbourmaster.api.resources import APP_VERSIONS, WORKLOAD_VERSIONS
from harbourmaster.api.times import format_rfc3339, moment
from harbourmaster.dashboard.pages.gates import GateFactsReader
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
from harbourmaster.lifecycle.check_facts import CheckReport, Facts, check_reports
from harbourmaster.lifecycle.model import (
    COMPLETED,
    FAILED,
    PENDING,
    PROGRESSING,
    SUCCEEDED,
    WARNING,
    AppVersion,
    WorkloadVersion,
)
from harbourmaster.lifecycle.phases import (
    PROMOTION,
    SETTLED,
    Phase,
    phases_of,
    stage_phases,
    state_of,
)
from harbourmaster.lifecycle.stages import is_staging
from harbourmaster.lifecycle.workloads import names_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from harbourmaster.dashboard.pages.states import Tally
    from harbourmaster.dashboard.query import PageQuery
    from harbourmaster.dashboard.sources import PageSources
    from harbourmaster.dashboard.visibility import Visibility
    from harbourmaster.lifecycle.model import ItemStatus, StageStatus, Version


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
    newest = _newest_versions(sources, visible)
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
        row=lambda version: _row(version, now),
        holds=lambda version: not query.state or version.status.status == query.state,
    )
    return ApplicationsPage(listing, tuple(_parts(newest)))


def tally(sources: PageSources, visible: Visibility, _now: datetime) -> Tally:
    """Count applications for the overview."""
    newest = _newest_versions(sources, visible)
    failed = sorted((version for version in newest if version.status.status == FAILED), key=_rank)
    return _TOPIC.tally(sources, visible, newest, _parts(newest), failed, _notice)


def _notice(version: AppVersion) -> Notice:
    text = f"version {version.spec.version} failed in its {_where(version)}"
    place = (version.metadata.namespace, version.spec.app_name)
    return Notice("bad", "Application", "/".join(place), text, link_of(*place))


def newest_first(versions: Iterable[AppVersion]) -> list[AppVersion]:
    """Sort the versions of an app by age, the newest first."""
    return sorted(versions, key=_age, reverse=True)


def link_of(namespace: str, name: str) -> str:
    """Return the path of the page of an application."""
    return f"{PATH}/{quote(namespace, safe='')}/{quote(name, safe='')}"


def _newest_versions(sources: PageSources, visible: Visibility) -> list[AppVersion]:
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


def _where(version: AppVersion) -> str:
    return name_of_current(version).lower() or "checks"


def _age(version: AppVersion) -> tuple[str, int, str]:
    metadata = version.metadata
    return metadata.creation_timestamp, version.spec.revision, metadata.name


def _rank(version: AppVersion) -> tuple[int, str, str]:
    metadata = version.metadata
    return show_state(version.status.status).urgency, metadata.namespace, version.spec.app_name


def _parts(newest: Iterable[AppVersion]) -> Iterator[StateCount]:
    return parts_by_urgency(version.status.status for version in newest)


def _row(version: AppVersion, now: datetime) -> ApplicationRow:
    status = version.status
    return ApplicationRow(
        namespace=version.metadata.namespace,
        name=version.spec.app_name,
        link=link_of(version.metadata.namespace, version.spec.app_name),
        version=version.spec.version,
        state=show_state(status.status),
        phase="" if status.is_finished and status.status != FAILED else name_of_current(version),
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


WIDTH: Final = 1000
"""The width of a time line, in units."""
_LEAST: Final = 6
"""The minimum width of a bar, in units."""
_STAGE_ROW: Final = 3
_FAILED: Final = frozenset((FAILED, WARNING))
_NOTHING: Final = Facts()
_WORDS: Final = (
    ("Tasks", "tasks"),
    ("Evaluations", "evaluations"),
)


class Bar(Struct, frozen=True, gc=False):
    """A part of the time line, in units."""

    x: int
    width: int


class PhaseRow(Struct, frozen=True, gc=False):
    """A phase with its times; ``bar`` is None before it starts."""

    name: str
    state: ShownState
    start: str
    took: str
    bar: Bar | None
    checks: tuple[CheckReport, ...]
    note: str = ""
    allowed: Bar | None = None
    """The pods that a stage allows, whose ``bar`` is of the released ones."""


class Failure(Struct, frozen=True, gc=False):
    """A failed check of a version, or a failed phase without a check."""

    where: str
    check: CheckReport | None


class PhaseRun(Struct, frozen=True, gc=False):
    """The start and end of a phase; the end of a running one is now."""

    phase: Phase
    start: datetime | None
    end: datetime | None


def name_of(phase: Phase) -> str:
    """Return the title of a phase."""
    if phase.name == PROMOTION.name:
        return "Promotion"
    when = "Pre" if "Pre" in phase.name else "Post" if "Post" in phase.name else ""
    for mark, word in _WORDS:
        if when and phase.name.endswith(mark):
            return f"{when}-deployment {word}"
    return "Deployment"


def name_of_current(version: Version) -> str:
    """Return the title of the current phase; empty before the first and after the last."""
    current = version.status.current_phase
    return next((name_of(phase) for phase in phases_of(version) if phase.name == current), "")


def steps(version: Version) -> tuple[tuple[str, ShownState], ...]:
    """Return the titles and states of all phases, in order."""
    return tuple((name_of(phase), _state(version, phase)) for phase in _shown_phases(version))


def phase_runs(version: Version, now: datetime) -> tuple[PhaseRun, ...]:
    """Return the times of all phases; a deployment lasts from its former to its next phase."""
    status = version.status
    phases = _shown_phases(version)
    known = [_times_of_items(_items(version, phase), now) for phase in phases]
    runs: list[PhaseRun] = []
    last = moment(status.start_time)
    for place, phase in enumerate(phases):
        start, end = known[place]
        state = state_of(status, phase)
        if not phase.kind and state != PENDING:
            # A deployment has no items: it lasts until something of a later phase begins.
            begun = "" if isinstance(version, AppVersion) else version.status.deployment_start_time
            start = moment(begun) or last
            later = [first for first, _ in known[place + 1 :] if first is not None]
            over = min(later, default=moment(status.end_time))
            end = over if state in SETTLED and over is not None else now
        runs.append(PhaseRun(phase, start, end))
        last = end or last
    return tuple(runs)


def failures(
    version: Version, facts: Facts, now: datetime, workload: str = ""
) -> Iterator[Failure]:
    """Yield what failed or ended with a warning; ``workload`` is named if it is a workload's."""
    for phase in phases_of(version):
        if state_of(version.status, phase) not in _FAILED:
            continue
        where = ": ".join(filter(None, (workload, name_of(phase))))
        checks = [check for check in _checks(version, phase, facts, now) if check.state in _FAILED]
        yield from [Failure(where, check) for check in checks] or [Failure(where, None)]


def phase_rows(
    version: Version, start: datetime, end: datetime, now: datetime, facts: Facts = _NOTHING
) -> tuple[PhaseRow, ...]:
    """Return the phases on a time line from ``start`` to ``end``."""
    whole = max(seconds_between(start, end), 1.0)

    def bar(run: PhaseRun) -> Bar | None:
        if run.start is None or run.end is None:
            return None
        x = int(seconds_between(start, run.start) / whole * WIDTH)
        width = int(seconds_between(run.start, run.end) / whole * WIDTH)
        width = max(width, _LEAST)
        return Bar(min(x, WIDTH - _LEAST), min(width, WIDTH - min(x, WIDTH - _LEAST)))

    rows = [
        PhaseRow(
            name=name_of(run.phase),
            state=_state(version, run.phase),
            start=run.start.isoformat() if run.start is not None else "",
            took=span(seconds_between(run.start, run.end)) if run.start and run.end else "",
            bar=bar(run),
            checks=tuple(_checks(version, run.phase, facts, now)),
        )
        for run in phase_runs(version, now)
    ]
    if isinstance(version, WorkloadVersion) and version.status.stage is not None:
        # Behind the deployment, of which it is a part.
        rows.insert(_STAGE_ROW, _stage_row(version, version.status.stage, facts, now))
    return tuple(rows)


def _stage_row(
    version: WorkloadVersion, stage: StageStatus, facts: Facts, now: datetime
) -> PhaseRow:
    """Return the stage of a version, with its pods instead of times."""
    released, allowed = (
        Bar(0, min(pods * WIDTH // max(stage.wanted, 1), WIDTH))
        for pods in (stage.released, stage.allowed)
    )
    pods = f"{stage.released} of {stage.wanted} pods released, {stage.allowed} allowed"
    return PhaseRow(
        name=f"Stage {stage.number} of {stage.of}" if stage.number else "Stages",
        state=show_state(stage.state),
        start="",
        took="",
        bar=released,
        checks=tuple(
            check
            for phase in stage_phases(stage.number)
            for check in (_checks(version, phase, facts, now) if is_staging(version) else ())
        ),
        note="; ".join(filter(None, (pods if stage.number else "", stage.message))),
        allowed=allowed,
    )


def _state(version: Version, phase: Phase) -> ShownState:
    # A phase that passed because it has no checks is not good.
    state = state_of(version.status, phase)
    has_checks = phase.checks and (getattr(version.spec, phase.checks) or _items(version, phase))
    if phase.checks and state == SUCCEEDED and not has_checks:
        return ShownState("No checks", "idle")
    return show_state(state)


def _shown_phases(version: Version) -> tuple[Phase, ...]:
    phases = phases_of(version)
    if isinstance(version, AppVersion) and not version.spec.promotion_tasks:
        return tuple(phase for phase in phases if phase.name != PROMOTION.name)
    return phases


def _items(version: Version, phase: Phase) -> tuple[ItemStatus, ...]:
    items: tuple[ItemStatus, ...] = getattr(version.status, phase.items) if phase.items else ()
    return items


def _times_of_items(
    items: Iterable[ItemStatus], now: datetime
) -> tuple[datetime | None, datetime | None]:
    times = [(moment(item.start_time), moment(item.end_time), item.status) for item in items]
    starts = [start for start, _, _ in times if start is not None]
    if not starts:
        return None, None
    ends = [end for _, end, _ in times if end is not None]
    is_open = any(state in {PENDING, PROGRESSING} for _, _, state in times)
    return min(starts), now if is_open or not ends else max(ends)


def _checks(version: Version, phase: Phase, facts: Facts, now: datetime) -> list[CheckReport]:
    return check_reports(version, facts, now, phases=(phase,)) if phase.checks else []
