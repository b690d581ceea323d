"""The record of the last decision about an application, for people and programs.

The controller writes a record when a decision changes something, so the last one explains the
current state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from harbourmaster.placement.deployed import DEPLOYED, READY
from harbourmaster.placement.model import (
    CHECKED,
    FALSE,
    SCHEDULED,
    TRUE,
    CheckedGeneration,
    Condition,
    DecisionRecord,
    condition,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harbourmaster.placement.model import Application, CandidateRecord, TargetReference, Term

_UNDECIDED: Final = "  nothing was decided yet: is placement switched on (placement.enabled)?"


class ShownApplication(Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """The status of an Application, as programs get it."""

    application: str
    generation: int
    scheduled_generation: int = 0
    phase: str = ""
    scheduled_to: str = ""
    scheduled_time: str = ""
    running_on: str = ""
    next_reschedule_time: str = ""
    next_retry_time: str = ""
    scheduled: Condition | None = None
    deployed: Condition | None = None
    ready: Condition | None = None
    proposed: CheckedGeneration | None = None
    checked: Condition | None = None
    decision: DecisionRecord | None = None


def report_of(application: Application) -> ShownApplication:
    """Return the report about an application."""
    status = application.status
    return ShownApplication(
        application=application.metadata.key,
        generation=application.metadata.generation,
        scheduled_generation=status.scheduled_generation,
        phase=status.phase,
        scheduled_to=_name(status.scheduled_to),
        scheduled_time=status.scheduled_time,
        running_on=_name(status.running_on),
        next_reschedule_time=status.next_reschedule_time,
        next_retry_time=status.next_retry_time,
        scheduled=condition(status.conditions, SCHEDULED),
        deployed=condition(status.conditions, DEPLOYED),
        ready=condition(status.conditions, READY),
        proposed=status.proposed,
        checked=condition(status.conditions, CHECKED),
        decision=status.last_decision,
    )


def lines(shown: ShownApplication) -> Iterator[str]:
    """The lines of the text output."""
    yield f"{shown.application}: {_where(shown)}"
    scheduled = shown.scheduled
    yield from _faults(shown)
    if shown.generation != shown.scheduled_generation and shown.scheduled_to:
        yield (
            f"  generation {shown.generation} is not handed over yet: "
            f"generation {shown.scheduled_generation} is"
        )
    if (proposed := shown.proposed) is not None:
        target = f"generation {proposed.generation} for '{proposed.name}' ({proposed.cause})"
        yield f"  proposed: {target}, checked by {proposed.check or 'nothing yet'}"
    decision = shown.decision
    if decision is None:
        # What waits for a confirmation has a condition, but no record.
        yield from () if scheduled else (_UNDECIDED,)
        return
    to = f" to '{decision.chosen}'" if decision.chosen else ""
    yield f"{decision.time}, generation {decision.generation}: {decision.outcome}{to}"
    yield f"  {decision.reason}"
    yield f"{decision.matched} of {decision.considered} clusters matched"
    for candidate in decision.candidates:
        yield from _candidate(candidate, is_chosen=candidate.cluster == decision.chosen)
    left = decision.considered - len(decision.candidates)
    if left > 0:
        yield f"    and {left} more, which are not kept"
    if decision.runner_up is not None:
        yield f"runner-up: {decision.runner_up.cluster}, {decision.runner_up.score:.6g}"
    if decision.would_change:
        yield "the decision would have been different"
        for text in decision.would_change:
            yield f"    {text}"


def _faults(shown: ShownApplication) -> Iterator[str]:
    """The conditions that are not True, and what the application waits for."""
    scheduled = shown.scheduled
    if scheduled is not None and scheduled.status == FALSE:
        yield f"  {scheduled.reason}: {scheduled.message}"
        if shown.next_retry_time:
            yield f"  the next try is at {shown.next_retry_time}"
    for part in (shown.checked, shown.deployed, shown.ready):
        if part is not None and part.status != TRUE:
            yield f"  {part.type}={part.status}, {part.reason}: {part.message}".rstrip(": ")


def _where(shown: ShownApplication) -> str:
    if not shown.scheduled_to:
        return "it is not placed"
    since = f" since {shown.scheduled_time}" if shown.scheduled_time else ""
    text = f"it is placed on '{shown.scheduled_to}'{since}"
    if shown.running_on == shown.scheduled_to:
        is_there = shown.deployed is not None and shown.deployed.status == TRUE
        return f"{text}, and runs there" if is_there else text
    return f"{text}, and runs on '{shown.running_on}'" if shown.running_on else text


def _candidate(candidate: CandidateRecord, *, is_chosen: bool) -> Iterator[str]:
    mark = "*" if is_chosen else " "
    if candidate.reason:
        yield f"  {mark} {candidate.cluster}: out, {candidate.reason}"
    elif candidate.score is None:
        yield f"  {mark} {candidate.cluster}: matches, not compared"
    else:
        yield f"  {mark} {candidate.cluster}: {candidate.score:.6g}"
    for term in candidate.terms:
        yield f"      {_term(term)}"
    if candidate.stickiness:
        yield f"      stickiness 1 x {candidate.stickiness:g}, because it is the current cluster"


def _term(term: Term) -> str:
    origin = ", of its cloud" if term.inherited else ""
    scope = "" if term.scope == "Global" else ", of the namespace"
    read = f"(read {term.value:g}{scope}{origin})"
    return f"{term.metric} {term.normalised:.6g} x {term.weight:g} {read}"


def _name(reference: TargetReference | None) -> str:
    return reference.name if reference is not None else ""
