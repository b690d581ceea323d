"""The answers of the API server to evictions, and the next steps (rescheduler-spec 6.5): pure."""

from __future__ import annotations

from enum import Enum
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Collection

BUDGET_RETRY: Final = 5.0
"""Seconds between two tries where a disruption budget refuses."""
_BUSY_FIRST: Final = 0.5
_BUSY_LIMIT: Final = 15.0
_MAX_EXPONENT: Final = 10
_BUDGET_CAUSE: Final = "DisruptionBudget"
_SEVERAL: Final = "more than one PodDisruptionBudget"
_IN_BACKGROUND: Final = "Eviction triggered evacuation"
_NO_DRY_RUN: Final = "does not support dry run"


class EvictionOutcome(Enum):
    """The meaning of an answer; the value is a label of metrics."""

    EVICTED = "evicted"
    GONE = "gone"
    REPLACED = "replaced"
    BUDGET = "budget"
    UNSETTLED = "unsettled"
    """A disruption budget whose status is older than its spec."""
    BACKGROUND = "background"
    BUSY = "busy"
    TWO_BUDGETS = "two_budgets"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    """A dry run that an admission webhook does not support."""


class NextStep(Enum):
    """The step after an answer."""

    NEXT = "next"
    BACKGROUND = "background"
    VERIFY = "verify"
    RETRY = "retry"
    DELETE = "delete"
    WITHOUT_BUDGET = "without_budget"
    """Another plan, without the pods of this disruption budget."""
    WITHOUT_NODE = "without_node"
    WITHOUT_POD = "without_pod"


class Reply(Struct, frozen=True, gc=False):
    """An error answer; ``status`` is 0 where none came."""

    status: int
    reason: str = ""
    causes: tuple[str, ...] = ()
    message: str = ""
    retry_after: float | None = None


class EvictionState(Struct, frozen=True, gc=False):
    """The state of an eviction: its tier, how long a budget has refused it, and the rest."""

    tier: int
    may_violate: bool = False
    """Whether a disruption budget may be violated now."""
    refused: float = 0.0
    busy: int = 0
    timeout: float = 60.0


def read_answer(reply: Reply | None, *, in_background: bool = False) -> EvictionOutcome:
    """Return the meaning of an answer; None is a success."""
    if reply is None:
        return EvictionOutcome.BACKGROUND if in_background else EvictionOutcome.EVICTED
    if reply.status == HTTPStatus.NOT_FOUND:
        return EvictionOutcome.GONE
    if reply.status == HTTPStatus.CONFLICT:
        return EvictionOutcome.REPLACED
    if reply.status == HTTPStatus.TOO_MANY_REQUESTS:
        if _BUDGET_CAUSE in reply.causes:
            return (
                EvictionOutcome.BUDGET if reply.retry_after is None else EvictionOutcome.UNSETTLED
            )
        is_moving = in_background or _IN_BACKGROUND in reply.message
        return EvictionOutcome.BACKGROUND if is_moving else EvictionOutcome.BUSY
    if reply.status == HTTPStatus.INTERNAL_SERVER_ERROR:
        # It has no reason of its own, and neither has what a proxy says.
        is_ours = not reply.reason and _SEVERAL in reply.message
        return EvictionOutcome.TWO_BUDGETS if is_ours else EvictionOutcome.BUSY
    if HTTPStatus.BAD_REQUEST <= reply.status < HTTPStatus.INTERNAL_SERVER_ERROR:
        if reply.status == HTTPStatus.BAD_REQUEST and _NO_DRY_RUN in reply.message:
            return EvictionOutcome.UNKNOWN
        return EvictionOutcome.BUSY if reply.status in _PASSING else EvictionOutcome.REFUSED
    return EvictionOutcome.BUSY


_OF_BUDGETS: Final = frozenset(
    (EvictionOutcome.BUDGET, EvictionOutcome.UNSETTLED, EvictionOutcome.TWO_BUDGETS)
)
_PASSING: Final = frozenset((HTTPStatus.UNAUTHORIZED, HTTPStatus.REQUEST_TIMEOUT))


def choose_step(outcome: EvictionOutcome, state: EvictionState) -> NextStep:
    """The step after an eviction; a refusal by admission is never bypassed."""
    match outcome:
        case EvictionOutcome.EVICTED | EvictionOutcome.GONE | EvictionOutcome.UNKNOWN:
            return NextStep.NEXT
        case EvictionOutcome.BACKGROUND:
            return NextStep.BACKGROUND
        case EvictionOutcome.REPLACED:
            return NextStep.VERIFY
        case EvictionOutcome.BUSY:
            return NextStep.RETRY
        case EvictionOutcome.TWO_BUDGETS:
            return NextStep.DELETE if state.may_violate else NextStep.WITHOUT_NODE
        case EvictionOutcome.BUDGET if state.may_violate:
            return NextStep.DELETE
        case EvictionOutcome.BUDGET | EvictionOutcome.UNSETTLED:
            if state.refused < state.timeout:
                return NextStep.RETRY
            return NextStep.DELETE if state.may_violate else NextStep.WITHOUT_BUDGET
        case EvictionOutcome.REFUSED:
            return NextStep.WITHOUT_POD


def choose_dry_run_step(outcome: EvictionOutcome, state: EvictionState) -> NextStep:
    """The step after a dry run of an eviction."""
    if outcome in _OF_BUDGETS:
        if state.may_violate:
            return NextStep.NEXT
        return (
            NextStep.WITHOUT_NODE
            if outcome is EvictionOutcome.TWO_BUDGETS
            else NextStep.WITHOUT_BUDGET
        )
    step = choose_step(outcome, state)
    return NextStep.NEXT if step is NextStep.BACKGROUND else step


def pause(
    outcome: EvictionOutcome, state: EvictionState, retry_after: float | None, chance: float
) -> float:
    """Seconds until the next try; ``chance`` is from 0 to 1."""
    if outcome in _OF_BUDGETS:
        return retry_after or BUDGET_RETRY
    own = min(_BUSY_FIRST * 2.0 ** min(state.busy, _MAX_EXPONENT), _BUSY_LIMIT)
    return max(retry_after or 0.0, own * (0.5 + 0.5 * chance))


def in_order(budgeted: Collection[str], uids: Collection[str]) -> tuple[str, ...]:
    """Victims in the order of their eviction: those that a budget may refuse, then the rest."""
    return (*(uid for uid in uids if uid in budgeted), *(u for u in uids if u not in budgeted))
