"""Builds the page of one application that is placed: its scores, its checks and its history."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from harbourmaster.api.resources import APP_VERSIONS, APPLICATIONS
from harbourmaster.api.times import moment
from harbourmaster.dashboard.pages import applications, phases
from harbourmaster.dashboard.pages.clusters import (
    PlacementRow,
    checks_link,
    name_of,
    placement_row,
)
from harbourmaster.dashboard.pages.states import ShownState, Tone, show_state
from harbourmaster.dashboard.sources import lookup, values
from harbourmaster.lifecycle.model import APPLICATION_PREFIX
from harbourmaster.placement.model import CHECKED, ApplicationChecks, Condition
from harbourmaster.placement.model import condition as find_condition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from harbourmaster.dashboard.query import PageQuery
    from harbourmaster.dashboard.sources import PageSources
    from harbourmaster.dashboard.visibility import Visibility
    from harbourmaster.lifecycle.model import AppVersion
    from harbourmaster.placement.model import (
        Application,
        ApplicationStatus,
        CandidateRecord,
        DecisionRecord,
        Term,
    )

MOST: Final = 10
"""Maximum runs of checks in the history, the newest ones."""
WIDTH: Final = 1000
"""The width of a bar, in units: a score of 1."""
_CLOSE: Final = 0.001
_OUTCOMES: Final[dict[str, Tone]] = {
    **dict.fromkeys(("Placed", "Moved", "Stayed"), "good"),
    **dict.fromkeys(("NoSuitableTarget", "InvalidConstraint"), "bad"),
}
_STATUSES: Final[dict[str, Tone]] = {"True": "good", "False": "bad"}


class ScorePart(Struct, frozen=True, gc=False):
    """The share of a metric, or of staying, in a score; ``x`` and ``width`` are units of a bar."""

    name: str
    share: float
    how: str
    x: int
    width: int


class CandidateRow(Struct, frozen=True, gc=False):
    """A cluster that was considered; without parts, the bar is of the whole score."""

    cluster: str
    state: ShownState
    score: float | None
    width: int
    parts: tuple[ScorePart, ...]
    reason: str


class PastEvent(Struct, frozen=True, gc=False):
    """An event of the time line, or the next one."""

    time: str
    tone: Tone
    title: str
    text: str = ""
    link: str = ""


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
    runs = _runs(sources, visible, application)
    current = next((run for run in runs if run.metadata.name == status.check), None)
    events = [*_decided(status), *_conditions(status), *_checks(application, runs)]
    dated = [(time, event) for event in events if (time := moment(event.time)) is not None]
    dated.sort(key=lambda entry: entry[0], reverse=True)
    specified = (("before", checks.pre_deployment), ("after", checks.post_deployment))
    named = ((when, (*phase.tasks, *phase.evaluations)) for when, phase in specified)
    return PlacementPage(
        row=row,
        tone=_OUTCOMES.get(decision.outcome, "warn") if decision.outcome else "idle",
        candidates=tuple(_candidate(candidate, decision) for candidate in decision.candidates),
        more=max(decision.considered - len(decision.candidates), 0),
        checks=tuple((when, names) for when, names in named if names),
        checked=find_condition(status.conditions, CHECKED),
        steps=phases.steps(current) if current is not None else (),
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
    parts = tuple(_parts(candidate))
    return CandidateRow(
        candidate.cluster, state, candidate.score, width, parts, reason=candidate.reason
    )


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


def _decided(status: ApplicationStatus) -> Iterator[PastEvent]:
    """Yield the last decision, moves, failures and what comes next."""
    decision, placed = status.last_decision, name_of(status.scheduled_to)
    if decision is not None and decision.time:
        tone = _OUTCOMES.get(decision.outcome, "warn")
        title = show_state(decision.outcome).label.capitalize()
        to = f" on {decision.chosen}" if decision.outcome in {"Placed", "Stayed"} else ""
        if decision.outcome == "Moved":
            left = [past.cluster for past in decision.candidates if past.stickiness]
            to = "".join(f" from {name}" for name in left if name != decision.chosen)
            to += f" to {decision.chosen}"
        yield PastEvent(decision.time, tone, title + to, decision.reason)
    is_told = decision is not None and decision.time == status.scheduled_time
    if status.scheduled_time and placed and not is_told:
        yield PastEvent(status.scheduled_time, "good", f"Placed on {placed}")
    for time in status.recent_moves:
        if time != status.scheduled_time:
            yield PastEvent(time, "idle", "Moved to a better cluster")
    for failed in status.failed_clusters:
        title = f"Generation {failed.generation} failed on {failed.name}"
        yield PastEvent(failed.time, "bad", title, failed.reason)
    for time, title in (
        (status.next_retry_time, "Next attempt"),
        (status.next_reschedule_time, "Next search for a better cluster"),
        (status.suspended_until, "Suspended until then"),
    ):
        if time:
            yield PastEvent(time, "idle", title)


def _conditions(status: ApplicationStatus) -> Iterator[PastEvent]:
    for condition in status.conditions:
        if condition.last_transition_time:
            is_true = condition.status == "True"
            tone = _STATUSES.get(condition.status, "busy")
            title = condition.type if is_true else f"{condition.type}: {condition.status}"
            text = ": ".join(filter(None, (condition.reason, condition.message)))
            yield PastEvent(condition.last_transition_time, tone, title, text)


def _runs(sources: PageSources, visible: Visibility, application: Application) -> list[AppVersion]:
    """Return the newest runs of its checks that the user may see."""
    metadata = application.metadata
    if not visible.sees(APP_VERSIONS, metadata.namespace):
        return []
    app = APPLICATION_PREFIX + metadata.name
    return applications.newest_first(
        version
        for version in values(sources.app_versions)
        if version.spec.app_name == app and version.metadata.namespace == metadata.namespace
    )[:MOST]


def _checks(application: Application, runs: Iterable[AppVersion]) -> Iterator[PastEvent]:
    for run in runs:
        cluster = run.spec.metadata.get("cluster", "")
        what = f"Checks of generation {run.spec.version}" + (f" on {cluster}" if cluster else "")
        link = checks_link(application, run.metadata.name)
        status = run.status
        if status.start_time:
            cause = run.spec.metadata.get("cause", "")
            yield PastEvent(status.start_time, "busy", f"{what} began", cause, link)
        if status.end_time:
            state = show_state(status.status)
            yield PastEvent(status.end_time, state.tone, f"{what}: {state.label}", "", link)
