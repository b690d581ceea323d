"""The phases of a version: how each stands, and when it ran."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from harbourmaster.api.times import moment
from harbourmaster.dashboard.pages.states import ShownState, shown
from harbourmaster.dashboard.times import seconds_between, span
from harbourmaster.lifecycle.check_facts import CheckReport, Facts, check_reports
from harbourmaster.lifecycle.model import (
    FAILED,
    PENDING,
    PROGRESSING,
    SUCCEEDED,
    WARNING,
    AppVersion,
)
from harbourmaster.lifecycle.phases import PROMOTION, SETTLED, Phase, phases_of, state_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from harbourmaster.lifecycle.model import ItemStatus, Version

WIDTH: Final = 1000
"""Units of a time line."""
_LEAST: Final = 6
"""So wide is what took no time at all."""
_FAILED: Final = frozenset((FAILED, WARNING))
_NOTHING: Final = Facts()
_WORDS: Final = (
    ("Tasks", "tasks"),
    ("Evaluations", "evaluations"),
)


class Bar(Struct, frozen=True, gc=False):
    """A part of the time line, in its units."""

    x: int
    width: int


class PhaseRow(Struct, frozen=True, gc=False):
    """A phase with its time. ``bar`` is None where it has none yet."""

    name: str
    state: ShownState
    start: str
    took: str
    bar: Bar | None
    checks: tuple[CheckReport, ...]


class Failure(Struct, frozen=True, gc=False):
    """What failed of a version: a check, or without one a phase."""

    where: str
    check: CheckReport | None


class Ran(Struct, frozen=True, gc=False):
    """When a phase ran; the end of one that runs is now."""

    phase: Phase
    start: datetime | None
    end: datetime | None


def name_of(phase: Phase) -> str:
    """A phase in words; one that has a level belongs to an app or to a workload."""
    if phase.name == PROMOTION.name:
        return "Promotion"
    when = "Pre" if "Pre" in phase.name else "Post" if "Post" in phase.name else ""
    for mark, word in _WORDS:
        if when and phase.name.endswith(mark):
            return f"{when}-deployment {word}"
    return "Deployment"


def name_of_current(version: Version) -> str:
    """The phase in which a version is, in words; empty before the first and after the last."""
    current = version.status.current_phase
    return next((name_of(each) for each in phases_of(version) if each.name == current), "")


def steps(version: Version) -> tuple[tuple[str, ShownState], ...]:
    """All phases in order, each with its state."""
    return tuple((name_of(each), _state(version, each)) for each in _counted(version))


def ran(version: Version, now: datetime) -> tuple[Ran, ...]:
    """When each phase ran, as far as the status tells; a deployment lies between its neighbours."""
    status = version.status
    phases = _counted(version)
    known = [_of_items(_items(version, each), now) for each in phases]
    found: list[Ran] = []
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
        found.append(Ran(phase, start, end))
        last = end or last
    return tuple(found)


def failures(version: Version, facts: Facts, now: datetime, whose: str = "") -> Iterator[Failure]:
    """What failed, or ended with a warning; ``whose`` is the workload of a version of one."""
    for phase in phases_of(version):
        if state_of(version.status, phase) not in _FAILED:
            continue
        where = ": ".join(filter(None, (whose, name_of(phase))))
        found = [check for check in _checks(version, phase, facts, now) if check.state in _FAILED]
        yield from [Failure(where, each) for each in found] or [Failure(where, None)]


def phase_rows(
    version: Version, start: datetime, end: datetime, now: datetime, facts: Facts = _NOTHING
) -> tuple[PhaseRow, ...]:
    """The phases on a time line that reaches from one moment to another."""
    whole = max(seconds_between(start, end), 1.0)

    def bar(found: Ran) -> Bar | None:
        if found.start is None or found.end is None:
            return None
        x = int(seconds_between(start, found.start) / whole * WIDTH)
        width = int(seconds_between(found.start, found.end) / whole * WIDTH)
        width = max(width, _LEAST)
        return Bar(min(x, WIDTH - _LEAST), min(width, WIDTH - min(x, WIDTH - _LEAST)))

    return tuple(
        PhaseRow(
            name=name_of(each.phase),
            state=_state(version, each.phase),
            start=each.start.isoformat() if each.start is not None else "",
            took=span(seconds_between(each.start, each.end)) if each.start and each.end else "",
            bar=bar(each),
            checks=tuple(_checks(version, each.phase, facts, now)),
        )
        for each in ran(version, now)
    )


def _state(version: Version, phase: Phase) -> ShownState:
    """How a phase stands; one that passed because there was nothing to check is not good."""
    state = state_of(version.status, phase)
    has_checks = phase.checks and (getattr(version.spec, phase.checks) or _items(version, phase))
    if phase.checks and state == SUCCEEDED and not has_checks:
        return ShownState("No checks", "idle")
    return shown(state)


def _counted(version: Version) -> tuple[Phase, ...]:
    """Its phases; the promotion only where there is one."""
    phases = phases_of(version)
    if isinstance(version, AppVersion) and not version.spec.promotion_tasks:
        return tuple(phase for phase in phases if phase.name != PROMOTION.name)
    return phases


def _items(version: Version, phase: Phase) -> tuple[ItemStatus, ...]:
    items: tuple[ItemStatus, ...] = getattr(version.status, phase.items) if phase.items else ()
    return items


def _of_items(
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
