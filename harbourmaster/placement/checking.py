"""Decides what is checked before an application is deployed, changed or moved.

Until the checks of a generation for a cluster passed, nothing is bound: the choice is in
``status.proposed``. The decision is taken again afterwards, and prefers the cluster that was
checked as long as it suits. Checks after the deployment end a generation's record in
``status.checked``, or return the application to the one before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from harbourmaster.placement.application_status import format_time
from harbourmaster.placement.cluster_state import UNKNOWN
from harbourmaster.placement.deployed import DEPLOYED, READY
from harbourmaster.placement.model import (
    CHECKED,
    DEGRADED,
    FAILED,
    FALSE,
    PASSED,
    PENDING,
    SCHEDULED,
    TRUE,
    CheckedGeneration,
    Condition,
    condition,
    with_conditions,
)

if TYPE_CHECKING:
    from datetime import datetime

    from harbourmaster.placement.decision import Decision
    from harbourmaster.placement.model import Application, ApplicationStatus, CheckCause

CHECKING: Final = "Checking"
CHECK_FAILED: Final = "CheckFailed"
DEPLOYING: Final = "Deploying"
"""The reason of an application that may be deployed, and is not checked afterwards yet."""
DEFINITION_NOT_FOUND: Final = "DefinitionNotFound"
LIFECYCLE_OFF: Final = "LifecycleOff"
NOT_REQUIRED: Final = "NotRequired"
POST_CHECK_FAILED: Final = "PostCheckFailed"
REVERTED: Final = "Reverted"
TOO_LARGE: Final = "TooLarge"
_STATUSES: Final = {
    **dict.fromkeys((PASSED, NOT_REQUIRED), TRUE),
    **dict.fromkeys((CHECKING, DEFINITION_NOT_FOUND, DEPLOYING), UNKNOWN),
}
_RESULTS: Final = {"": DEPLOYING, PASSED: PASSED, FAILED: POST_CHECK_FAILED}
_LONGEST: Final = 1024


def cause_of(application: Application, decision: Decision) -> str:
    """Return which changes of a decision need a check, separated by commas; empty for none."""
    checks, status = application.spec.checks, application.status
    has_target = decision.target is not None
    if checks is None or not (has_target or decision.outcome == "Stayed"):
        return ""
    is_placed = status.scheduled_to is not None
    is_skipped = not decision.is_elective and checks.forced_moves == "Skip"
    causes: dict[CheckCause, bool] = {
        "Deploy": not is_placed,
        "Update": is_placed and decision.generation != status.scheduled_generation,
        "Move": is_placed and has_target and not is_skipped,
    }
    return ",".join(cause for cause, holds in causes.items() if holds and cause in checks.when)


def proposal(application: Application, decision: Decision) -> CheckedGeneration:
    """Return what a decision wants to deploy, without the name of its check."""
    place = decision.target or application.status.scheduled_to
    cause = cause_of(application, decision)
    name, uid = (place.name, place.uid) if place is not None else ("", "")
    return CheckedGeneration(generation=decision.generation, name=name, uid=uid, cause=cause)


def is_same(known: CheckedGeneration, wanted: CheckedGeneration) -> bool:
    """Return whether both are of the same generation and cluster."""
    return (known.generation, known.uid) == (wanted.generation, wanted.uid)


def with_result(
    status: ApplicationStatus, now: datetime, generation: int, reason: str, text: str
) -> ApplicationStatus:
    """Return the status with the condition Checked; ``reason`` says its value."""
    wanted = Condition(
        type=CHECKED,
        status=_STATUSES.get(reason, FALSE),
        reason=reason,
        message=text[:_LONGEST],
        observed_generation=generation,
    )
    return replace(status, conditions=with_conditions(status.conditions, format_time(now), wanted))


def forget(status: ApplicationStatus) -> ApplicationStatus:
    """Return the status of an application that has no checks any more."""
    conditions = tuple(part for part in status.conditions if part.type != CHECKED)
    return replace(status, proposed=None, checked=(), conditions=conditions)


def propose(
    status: ApplicationStatus, wanted: CheckedGeneration, now: datetime, reason: str, text: str
) -> ApplicationStatus:
    """Return the status while something is checked, or its check has failed."""
    scheduled = condition(status.conditions, SCHEDULED)
    if scheduled is not None and scheduled.status == FALSE:
        # A cluster suits now.
        conditions = tuple(part for part in status.conditions if part.type != SCHEDULED)
        status = replace(status, conditions=conditions, retries_left=None, next_retry_time="")
    where = f"generation {wanted.generation} is not deployed to '{wanted.name}'"
    phase = PENDING if status.phase in {"", DEGRADED, FAILED} else status.phase
    proposed = replace(status, proposed=wanted, phase=phase)
    return with_result(
        proposed, now, wanted.generation, reason, f"{where}: {text}" if text else where
    )


def bind(
    before: ApplicationStatus, bound: ApplicationStatus, wanted: CheckedGeneration, now: datetime
) -> ApplicationStatus:
    """Return the status ``bound`` with the record of what is deployed from now on.

    A generation that is deployed without a check counts as passed.
    """
    last, others = next(iter(before.checked), None), before.checked
    if last is not None and not wanted.check and last.generation == wanted.generation:
        # It moves only, so its last checks count on.
        checked = (replace(last, name=wanted.name, uid=wanted.uid), *others[1:])
    else:
        if last is not None and is_same(last, wanted):
            wanted, others = replace(wanted, result=last.result), others[1:]
        elif not wanted.check:
            wanted = replace(wanted, result=PASSED)
        # If it returns to that cluster, it is checked there again.
        passed = [replace(record, check="") for record in others if record.result == PASSED]
        checked = (wanted, *passed[:1])
    status = replace(bound, checked=checked)
    if before.proposed is not None and wanted.generation < before.proposed.generation:
        return status
    return conclude(status, now)


def conclude(status: ApplicationStatus, now: datetime, text: str = "") -> ApplicationStatus:
    """Return the status with nothing proposed, which says what is deployed."""
    last = status.checked[0]
    reason = _RESULTS[last.result] if last.cause else NOT_REQUIRED
    verb = "is being" if reason == DEPLOYING else "is"
    where = f"generation {last.generation} {verb} deployed to '{last.name}'"
    message = f"{where}: {text}" if text else where
    return with_result(replace(status, proposed=None), now, last.generation, reason, message)


def follow_rollback(status: ApplicationStatus, now: datetime) -> ApplicationStatus:
    """Return the status with the record of what is deployed if the last move was cancelled."""
    placed, last = status.scheduled_to, next(iter(status.checked), None)
    if placed is None or last is None or placed.uid == last.uid:
        return status
    deployed, others = replace(last, name=placed.name, uid=placed.uid), status.checked[1:]
    for record in others:
        if (record.uid, record.generation) == (placed.uid, status.scheduled_generation):
            deployed, others = record, ()
    status = replace(status, checked=(deployed, *others))
    return status if status.proposed is not None else conclude(status, now)


def is_ready_there(status: ApplicationStatus, record: CheckedGeneration) -> bool:
    """Whether a generation is deployed and ready on its cluster."""
    placed, running = status.scheduled_to, status.running_on
    conditions = [condition(status.conditions, name) for name in (DEPLOYED, READY)]
    return (
        placed is not None
        and placed.uid == record.uid
        and running is not None
        and running.name == placed.name
        and all(
            part is not None
            and part.status == TRUE
            and part.observed_generation == record.generation
            for part in conditions
        )
    )


def record_end(
    status: ApplicationStatus, now: datetime, *, has_passed: bool, text: str
) -> ApplicationStatus:
    """Return the status after the last checks of the deployed generation."""
    last = replace(status.checked[0], result=PASSED if has_passed else FAILED)
    ended = replace(status, checked=(last, *status.checked[1:]))
    return ended if status.proposed is not None else conclude(ended, now, text)


def revert(
    status: ApplicationStatus, bound: ApplicationStatus, now: datetime, text: str
) -> ApplicationStatus:
    """Return the status ``bound`` of the earlier generation, and that the later one has failed."""
    failed, former = status.checked
    placed = bound.scheduled_to
    if placed is not None:
        former = replace(former, name=placed.name, uid=placed.uid)
    proposed = replace(failed, result=FAILED)
    reverted = replace(bound, checked=(former,), proposed=proposed)
    text = (
        f"generation {failed.generation} on '{failed.name}' failed ({text}): generation "
        f"{former.generation} is deployed to '{former.name}' again"
    )
    return with_result(reverted, now, failed.generation, REVERTED, text)
