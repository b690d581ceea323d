"""The times of decisions about an application, and its status after one (krake-spec 3.1).

The protocol of generations (7.3): the deployer acts where ``scheduledGeneration`` is the object's
generation. The Scheduled condition carries the generation that was tried last, so a new one leaves
a failure behind. A periodic pass that changes nothing writes nothing: its times follow from
``scheduledTime``.
"""

from __future__ import annotations

import math
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import msgspec

from harbourmaster.api.times import format_rfc3339, moment
from harbourmaster.placement.deployed import DEPLOYED
from harbourmaster.placement.model import (
    DEGRADED,
    FAILED,
    FALSE,
    NOT_CONFIRMED,
    PENDING,
    RUNNING,
    SCHEDULED,
    TRUE,
    Condition,
    TargetReference,
    condition,
    with_conditions,
)
from harbourmaster.placement.rules import MOST_MOVES, MOVE_WINDOW

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from harbourmaster.placement.decision import Decision
    from harbourmaster.placement.model import (
        Application,
        ApplicationStatus,
        DecisionRecord,
        RetryPolicy,
    )
    from harbourmaster.placement.rules import Rules

INVALID: Final = "InvalidConstraint"
LEAST_WAIT: Final = 1.0
"""Seconds between two tries, however short the backoff is."""
LONGEST_WAIT: Final = 86400.0
_LONGEST_MESSAGE: Final = 1024
_ALMOST_A_SECOND: Final = timedelta(microseconds=999_999)


format_time: Final = lru_cache(maxsize=256)(format_rfc3339)
"""Formats a time, cached: one pass has one time for thousands of objects."""


def is_new(application: Application) -> bool:
    """Whether this generation has not been decided about; unknown ones have."""
    scheduled = condition(application.status.conditions, SCHEDULED)
    tried = scheduled.observed_generation if scheduled is not None else 0
    tried = max(tried, application.status.scheduled_generation)
    return 0 < tried < application.metadata.generation


def is_refused(application: Application) -> bool:
    """Whether this generation is not placed: only a change of the object helps."""
    scheduled = condition(application.status.conditions, SCHEDULED)
    reason = scheduled.reason if scheduled is not None and scheduled.status == FALSE else ""
    return reason in {INVALID, NOT_CONFIRMED} and not is_new(application)


def has_failed(application: Application) -> bool:
    """Whether all tries of this generation are used up."""
    return application.status.phase == FAILED and not is_new(application)


def not_now(application: Application, now: datetime) -> str:
    """Why nothing is decided about it now; empty where something is."""
    if application.metadata.deletion_timestamp:
        return "it is being deleted"
    again = moment(application.status.next_retry_time)
    if again is not None and again > now and not is_new(application):
        return f"the next try is at {format_time(again)}"
    return ""


def held_until(application: Application, rules: Rules, now: datetime) -> datetime | None:
    """Until when it must not move to a better cluster; None where it can.

    A last move further in the future than one hold-off comes from a wrong clock and is ignored.
    """
    status = application.status
    if not rules.hold_off_on_update and is_new(application):
        return None
    moved = moment(status.scheduled_time)
    if moved is None or abs((now - moved).total_seconds()) >= rules.reschedule_after:
        return None
    return moved + timedelta(seconds=rules.reschedule_after)


def recent_times(moves: tuple[str, ...], now: datetime) -> tuple[str, ...]:
    """The stamps of moves by choice that still count."""
    times = ((move, moment(move)) for move in moves)
    return tuple(
        text
        for text, when in times
        if when is not None and abs((now - when).total_seconds()) < MOVE_WINDOW
    )[-MOST_MOVES:]


def next_time(
    application: Application, rules: Rules, now: datetime, until: datetime | None = None
) -> datetime | None:
    """Return the time of the next decision without any change; None if only a change matters.

    Periodic times have a fixed distance from the last move, so no event puts them off. ``until`` is
    when time alone may change the last decision.
    """
    status = application.status
    if (
        application.metadata.deletion_timestamp
        or has_failed(application)
        or is_refused(application)
    ):
        return None
    again = moment(status.next_retry_time)
    if again is not None and again > now and not is_new(application):
        return again
    if status.scheduled_to is None:
        return now if status.proposed is None else None
    constraints = application.spec.constraints
    if constraints is not None and not constraints.migration:
        return None
    period = max(rules.reschedule_after, LEAST_WAIT)
    since = (now - (moment(status.scheduled_time) or now)).total_seconds()
    following = now + timedelta(seconds=period - math.fmod(since, period) if since > 0 else period)
    suspended = moment(status.suspended_until)
    if suspended is not None and suspended > now:
        return max(following, suspended)
    return min(following, until) if until is not None and until > now else following


def settle(
    application: Application,
    decision: Decision,
    rules: Rules,
    record: Callable[[Decision], DecisionRecord],
) -> ApplicationStatus:
    """The status after a decision; the same object where there is nothing to write."""
    before = application.status
    match decision.outcome:
        case "Waiting":
            return before
        case "NoSuitableTarget" if has_failed(application):
            return before
        case "NoSuitableTarget":
            after = _after_failure(application, decision)
        case "MoveLimited":
            phase = DEGRADED if before.phase == FAILED else before.phase
            after = _with_condition(before, decision, FALSE, phase=phase)
        case "InvalidConstraint":
            after = _with_condition(before, decision, FALSE, phase=DEGRADED)
        case "NotConfirmed":
            # The condition only: nothing else is to change before.
            after = _with_condition(before, decision, FALSE, phase=before.phase)
            return before if after == before else after
        case _ if decision.target is not None:
            after = _bind(before, decision, rules)
        case _:
            after = _acknowledge(before, decision)
    if after == before:
        return before
    return msgspec.structs.replace(after, last_decision=record(decision))


def tries_left(backoff: RetryPolicy, left: int | None) -> int | None:
    """Return the tries that are left after one more has failed; None if none was left.

    Without a limit the result is -1.
    """
    if backoff.limit == -1:
        return -1
    left = backoff.limit if left is None else left
    return left - 1 if left > 0 else None


def next_try(backoff: RetryPolicy, now: datetime) -> str:
    """The time of the next try: always the same time later, whole seconds and never early."""
    wait = backoff.delay_seconds * backoff.factor
    wait = min(max(wait, LEAST_WAIT), LONGEST_WAIT) if math.isfinite(wait) else LONGEST_WAIT
    return format_time(now + timedelta(seconds=wait) + _ALMOST_A_SECOND)


def scheduled_condition(decision: Decision, status: str, reason: str, message: str) -> Condition:
    """Return the condition Scheduled after a decision."""
    return Condition(
        type=SCHEDULED,
        status=status,
        reason=reason,
        message=message[:_LONGEST_MESSAGE],
        observed_generation=decision.generation,
    )


def _with_condition(
    before: ApplicationStatus, decision: Decision, status: str, *, phase: str
) -> ApplicationStatus:
    """After a decision that counts no tries."""
    if status == TRUE:
        reason, message = SCHEDULED, f"it is placed on '{decision.current}'"
        if decision.target is not None:
            message = f"it is placed on '{decision.target.name}'"
    else:
        reason, message = decision.outcome, decision.reason
    wanted = scheduled_condition(decision, status, reason, message)
    return msgspec.structs.replace(
        before,
        phase=phase,
        retries_left=None,
        next_retry_time="",
        conditions=with_conditions(before.conditions, format_time(decision.time), wanted),
    )


def _bind(before: ApplicationStatus, decision: Decision, rules: Rules) -> ApplicationStatus:
    """All of a binding at one instant."""
    target, time = decision.target, format_time(decision.time)
    if target is None:
        return before
    phase = PENDING if before.phase in {"", DEGRADED, FAILED} else before.phase
    moves, failed = before.recent_moves, before.failed_clusters
    if decision.failed is not None:
        name = decision.failed.name
        failed = (*(failure for failure in failed if failure.name != name), decision.failed)
    if decision.is_elective:
        moves = (*recent_times(moves, decision.time), time)[-MOST_MOVES:]
    after = _with_condition(before, decision, TRUE, phase=phase)
    return msgspec.structs.replace(
        after,
        # What its deployment says is about the cluster before.
        conditions=tuple(
            msgspec.structs.replace(condition, observed_generation=0)
            if condition.type == DEPLOYED
            else condition
            for condition in after.conditions
        ),
        scheduled_to=TargetReference(name=target.name, uid=target.uid),
        scheduled_time=time,
        scheduled_generation=decision.generation,
        next_reschedule_time=format_time(decision.time + timedelta(seconds=rules.reschedule_after)),
        recent_moves=moves,
        awaits_ready=True,
        # A cluster that is tried again must not make a later move delete first.
        failed_clusters=tuple(
            failure
            for failure in failed
            if failure.generation == decision.generation and failure.name != target.name
        ),
    )


def _acknowledge(before: ApplicationStatus, decision: Decision) -> ApplicationStatus:
    """It stays; a new generation is handed over all the same."""
    scheduled = condition(before.conditions, SCHEDULED)
    phase = before.phase
    if scheduled is not None and scheduled.status == FALSE and phase in {DEGRADED, FAILED}:
        running = before.running_on.name if before.running_on is not None else ""
        phase = RUNNING if running == decision.current else PENDING
    after = _with_condition(before, decision, TRUE, phase=phase)
    return msgspec.structs.replace(after, scheduled_generation=decision.generation)


def _after_failure(application: Application, decision: Decision) -> ApplicationStatus:
    before, backoff = application.status, application.spec.backoff
    left = tries_left(backoff, None if is_new(application) else before.retries_left)
    has_more = left is not None
    wanted = scheduled_condition(decision, FALSE, decision.outcome, decision.reason)
    return msgspec.structs.replace(
        before,
        phase=DEGRADED if has_more else FAILED,
        retries_left=left,
        next_retry_time=next_try(backoff, decision.time) if has_more else "",
        conditions=with_conditions(before.conditions, format_time(decision.time), wanted),
    )
