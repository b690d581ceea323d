"""Lays out the phases of a version on a time line, and finds those that failed. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from harbourmaster.api.times import moment
from harbourmaster.dashboard.pages.states import ShownState, seconds_between, show_state, span
from harbourmaster.gates.stages import parse_stages
from harbourmaster.lifecycle.check_facts import CheckReport, Facts, check_reports
from harbourmaster.lifecycle.model import (
    DEPRECATED,
    FAILED,
    PENDING,
    PROGRESSING,
    SUCCEEDED,
    WARNING,
    AppVersion,
    WorkloadVersion,
    WorkloadVersionStatus,
)
from harbourmaster.lifecycle.phases import (
    PROMOTION,
    SETTLED,
    Phase,
    phases_of,
    stage_phases,
    state_of,
)
from harbourmaster.lifecycle.stages import HELD, is_staging

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from harbourmaster.lifecycle.model import ItemStatus, StageStatus, Version


WIDTH: Final = 1000
"""The width of a time line, in units."""
DEPLOYMENT: Final = "Deployment"
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


class StageSegment(Struct, frozen=True, gc=False):
    """A stage as its part of the bar of all pods."""

    number: int
    state: ShownState
    bar: Bar
    pods: int
    """The number of pods that the stage adds."""
    released: int


class PhaseRow(Struct, frozen=True, gc=False):
    """A phase with its times; ``bar`` is None before it starts."""

    name: str
    state: ShownState
    start: str
    took: str
    bar: Bar | None
    checks: tuple[CheckReport, ...]
    note: str = ""
    stages: tuple[StageSegment, ...] = ()
    """The stages of a version, in place of the bar."""


class Failure(Struct, frozen=True, gc=False):
    """A failed check of a version, or a failed phase without a check."""

    where: str
    check: CheckReport | None
    text: str = ""
    """Why it failed without a check."""
    ended: str = ""

    @property
    def rank(self) -> tuple[bool, bool, str]:
        """The order of failures: warnings last, and what failed first before the others."""
        ended = self.ended
        return self.check is not None and self.check.state == WARNING, not ended, ended


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
    return DEPLOYMENT


def name_of_current(version: Version) -> str:
    """Return the title of the current phase; empty before the first and after the last."""
    current = version.status.current_phase
    return next((name_of(phase) for phase in phases_of(version) if phase.name == current), "")


def name_of_failed(version: Version) -> str:
    """Return the title of the first phase that failed; empty without one."""
    status = version.status
    failed = (name_of(phase) for phase in phases_of(version) if state_of(status, phase) == FAILED)
    return next(failed, "")


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
        has_run = state != PENDING and (state != DEPRECATED or _has_begun(version, phase))
        if not phase.kind and has_run:
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
    status = version.status
    failed: list[tuple[str, tuple[Phase, ...], str]] = [
        (name_of(phase), (phase,), "")
        for phase in phases_of(version)
        if state_of(status, phase) in _FAILED
    ]
    stage = status.stage if isinstance(status, WorkloadVersionStatus) else None
    if stage is not None and stage.state == HELD:
        where = f"Stage {stage.number} of {stage.of}"
        failed.append((where, stage_phases(stage.number), stage.message))
    for name, phases, text in failed:
        where = ": ".join(filter(None, (workload, name)))
        checks = [
            Failure(where, check, ended=check.ended or check.since)
            for phase in phases
            for check in _checks(version, phase, facts, now)
            if check.state in _FAILED
        ]
        ended = stage.since if stage is not None and text else status.end_time
        yield from checks or [Failure(where, None, text, ended)]


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
    unit = "pod" if stage.wanted == 1 else "pods"
    pods = f"{stage.released} of {stage.wanted} {unit} released, {stage.allowed} allowed"
    return PhaseRow(
        name=f"Stage {stage.number} of {stage.of}" if stage.number else "Stages",
        state=show_state(stage.state),
        start="",
        took="",
        bar=None,
        checks=tuple(
            check
            for phase in stage_phases(stage.number)
            for check in (_checks(version, phase, facts, now) if is_staging(version) else ())
        ),
        note="; ".join(filter(None, (pods if stage.number else "", stage.message))),
        stages=stage_segments(version, stage),
    )


def stage_segments(version: WorkloadVersion, stage: StageStatus) -> tuple[StageSegment, ...]:
    """Return the stages of a version in order; none where stages do not apply."""
    if not stage.number or not stage.wanted:
        return ()
    try:
        allowance = parse_stages(version.spec.stages).allowance
    except ValueError:
        return ()
    results = {result.number: result for result in stage.results if result.number < stage.number}
    segments = []
    before = 0
    for number in range(1, stage.of + 1):
        state, end = "To come", allowance(number, stage.wanted)
        if number in results:
            state, end = results[number].state, results[number].released
        elif number <= stage.number:
            state = stage.state if number == stage.number else "Skipped"
            end = stage.allowed if number == stage.number else end
        end = min(max(end, before), stage.wanted)
        x = min(before * WIDTH // stage.wanted, WIDTH - _LEAST)
        released = min(max(stage.released - before, 0), end - before)
        bar = Bar(x, max(end * WIDTH // stage.wanted - x, _LEAST))
        segments.append(StageSegment(number, show_state(state), bar, end - before, released))
        before = end
    return tuple(segments)


def _state(version: Version, phase: Phase) -> ShownState:
    # A phase that passed because it has no checks is not good.
    state = state_of(version.status, phase)
    has_checks = phase.checks and (getattr(version.spec, phase.checks) or _items(version, phase))
    if phase.checks and state == SUCCEEDED and not has_checks:
        return ShownState("No checks", "idle")
    if state == DEPRECATED:
        return ShownState("Superseded" if _has_begun(version, phase) else "Not run", "idle")
    return show_state(state)


def _has_begun(version: Version, phase: Phase) -> bool:
    """Whether a phase did something before its version failed or was superseded."""
    status = version.status
    if phase.kind:
        return bool(_items(version, phase))
    if isinstance(status, WorkloadVersionStatus):
        return bool(status.deployment_start_time)
    return any(workload.status != PENDING for workload in status.workload_status)


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
