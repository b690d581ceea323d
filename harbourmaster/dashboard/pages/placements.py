"""Builds the page of one application that is placed: its scores, its checks and its history."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from harbourmaster.api.resources import APP_VERSIONS, APPLICATIONS
from harbourmaster.api.times import moment
from harbourmaster.dashboard.pages import phases
from harbourmaster.dashboard.pages.clusters import PlacementRow, placement_row
from harbourmaster.dashboard.pages.states import ShownState, Tone, show_state
from harbourmaster.dashboard.sources import lookup
from harbourmaster.placement.model import CHECKED, ApplicationChecks, CandidateRecord, Condition
from harbourmaster.placement.model import condition as find_condition

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from harbourmaster.dashboard.query import PageQuery
    from harbourmaster.dashboard.sources import PageSources
    from harbourmaster.dashboard.visibility import Visibility
    from harbourmaster.placement.model import (
        ApplicationStatus,
        DecisionRecord,
        Term,
    )

WIDTH: Final = 1000
"""The width of a bar, in units: a score of 1."""
_CLOSE: Final = 0.001
_OUTCOMES: Final[dict[str, Tone]] = {
    **dict.fromkeys(("Placed", "Moved", "Stayed"), "good"),
    **dict.fromkeys(("NoSuitableTarget", "InvalidConstraint"), "bad"),
}


class ScorePart(Struct, frozen=True, gc=False):
    """The share of a metric, or of staying, in a score; ``x`` and ``width`` are units of a bar."""

    name: str
    share: float
    how: str
    x: int
    width: int


class CandidateRow(Struct, frozen=True, gc=False):
    """A cluster that was considered; without parts, the bar is of the whole score."""

    record: CandidateRecord
    state: ShownState
    width: int
    parts: tuple[ScorePart, ...]


class PastEvent(Struct, frozen=True, gc=False):
    """An event of the time line, or the next one."""

    time: str
    tone: Tone
    title: str
    text: str = ""


class PlacementPage(Struct, frozen=True):
    """The page of one application that is placed."""

    row: PlacementRow
    tone: Tone
    """The tone of the decision."""
    candidates: tuple[CandidateRow, ...]
    more: int
    """The number of considered clusters of which status keeps no record."""
    checks: tuple[tuple[str, tuple[str, ...]], ...]
    """The names of definitions, by when they are checked."""
    checked: Condition | None
    steps: tuple[tuple[str, ShownState], ...]
    """The phases of the current checks, if the user may see them."""
    events: tuple[PastEvent, ...]
    """The events that status keeps, the newest first."""


def placement(
    sources: PageSources, visible: Visibility, query: PageQuery, _now: datetime
) -> PlacementPage | None:
    """Build the page; None if there is no such application, or none that the user may see."""
    key = f"{query.namespace}/{query.name}"
    sees = visible.sees(APPLICATIONS, query.namespace)
    application = lookup(sources.applications, key) if sees else None
    if application is None:
        return None
    row, status = placement_row(application), application.status
    decision, checks = row.decision, application.spec.checks or ApplicationChecks()
    sees_checks = visible.sees(APP_VERSIONS, query.namespace)
    run = lookup(sources.app_versions, f"{query.namespace}/{status.check}") if sees_checks else None
    dated = [(time, event) for event in _events(row, status) if (time := moment(event.time))]
    dated.sort(key=lambda entry: entry[0], reverse=True)
    specified = (("before", checks.pre_deployment), ("after", checks.post_deployment))
    named = ((when, (*phase.tasks, *phase.evaluations)) for when, phase in specified)
    return PlacementPage(
        row=row,
        tone=_tone(decision),
        candidates=tuple(_candidate(candidate, decision) for candidate in decision.candidates),
        more=max(decision.considered - len(decision.candidates), 0),
        checks=tuple((when, names) for when, names in named if names),
        checked=find_condition(status.conditions, CHECKED),
        steps=phases.steps(run) if run is not None else (),
        events=tuple(event for _, event in dated),
    )


def _candidate(candidate: CandidateRecord, decision: DecisionRecord) -> CandidateRow:
    if candidate.cluster == decision.chosen:
        state = ShownState("Chosen", "good")
    elif candidate.matched:
        state = ShownState("Possible", "idle")
    else:
        state = ShownState("Excluded", "warn")
    width = _units(candidate.score or 0.0)
    return CandidateRow(candidate, state, width, tuple(_parts(candidate)))


def _parts(candidate: CandidateRecord) -> Iterator[ScorePart]:
    """Yield the summands of a score, none if they do not add up to it.

    They do not if there are negative weights, or more metrics than status keeps.
    """
    stickiness = candidate.stickiness if candidate.terms else 0.0
    terms = [(term.metric, term.weight * term.normalised, _how(term)) for term in candidate.terms]
    if stickiness:
        terms.append(("it was there", stickiness, f"stickiness, weight {stickiness:g}"))
    weight = sum(term.weight for term in candidate.terms) + stickiness
    if candidate.score is None or weight <= 0 or any(share < 0 for _, share, _ in terms):
        return
    if not math.isclose(
        sum(share for _, share, _ in terms) / weight, candidate.score, abs_tol=_CLOSE
    ):
        return
    x = 0.0
    for name, share, how in terms:
        start, end = _units(x), _units(x + share / weight)
        yield ScorePart(name, share / weight, f"{how} of {weight:g}", start, end - start)
        x += share / weight


def _how(term: Term) -> str:
    value = f"value {term.value:g}" + (", inherited" if term.inherited else "")
    return f"{value}, normalised {term.normalised:g}, weight {term.weight:g}"


def _units(score: float) -> int:
    return round(min(max(score, 0.0), 1.0) * WIDTH)


def _events(row: PlacementRow, status: ApplicationStatus) -> Iterator[PastEvent]:
    """Yield the last decision, moves, failures and what comes next."""
    decision = row.decision
    if decision.outcome:
        to = f" on {decision.chosen}" if decision.outcome in {"Placed", "Stayed"} else ""
        if decision.outcome == "Moved":
            left = [past.cluster for past in decision.candidates if past.stickiness]
            to = "".join(f" from {name}" for name in left if name != decision.chosen)
            to += f" to {decision.chosen}"
        title = show_state(decision.outcome).label.capitalize()
        yield PastEvent(decision.time, _tone(decision), title + to, decision.reason)
    if row.target and status.scheduled_time != decision.time:
        yield PastEvent(status.scheduled_time, "good", f"Placed on {row.target}")
    for time in status.recent_moves:
        if time != status.scheduled_time:
            yield PastEvent(time, "idle", "Moved to a better cluster")
    for failed in status.failed_clusters:
        title = f"Generation {failed.generation} failed on {failed.name}"
        yield PastEvent(failed.time, "bad", title, failed.reason)
    yield PastEvent(status.next_retry_time, "idle", "Next attempt")
    yield PastEvent(status.next_reschedule_time, "idle", "Next search for a better cluster")
    yield PastEvent(status.suspended_until, "idle", "Suspended until then")


def _tone(decision: DecisionRecord) -> Tone:
    return _OUTCOMES.get(decision.outcome, "warn") if decision.outcome else "idle"
