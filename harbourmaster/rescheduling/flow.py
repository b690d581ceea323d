"""The flow of one critical pod, from unschedulable to bound (rescheduler-spec 6.4): pure.

``advance`` decides the next action from the state and what is observed; ``apply_event`` makes the
next state from the result of an action. No other code makes states. Times are seconds of a
monotonic clock.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from harbourmaster.rescheduling.flow_model import (
    Abandoned,
    Adopted,
    AllEvicted,
    BackingOff,
    Binding,
    Checked,
    ClusterChanged,
    Detected,
    Disqualified,
    Draining,
    Evicted,
    Evicting,
    EvictionDelayed,
    EvictionFlow,
    Fits,
    Mismatched,
    NoFit,
    NotPlanned,
    Observation,
    Planned,
    Planning,
    Qualified,
    Reserved,
    Reserving,
    Unaffordable,
    VerificationDelayed,
    Verified,
    Verifying,
    VictimSpared,
    WaitingForFit,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from harbourmaster.rescheduling.flow_model import (
        ActivePlan,
        Event,
        FlowInputs,
        FlowState,
        LiveState,
    )

WAIT_FIT_SECONDS: Final = 60.0
"""Seconds for which the scheduler may leave a pod waiting that fits without evictions."""
BACKGROUND_SECONDS: Final = 600.0
"""Seconds for which a victim may stay whose eviction goes on in the background."""
LOST_SECONDS: Final = 1.0
"""Seconds for which room may be missing before it counts as lost: events arrive one by one."""
MAX_REPLANS: Final = 2
"""Further plans on a node whose room was lost."""


class Action(Enum):
    """The next action."""

    WAIT = "wait"
    QUALIFY = "qualify"
    PLAN = "plan"
    RESERVE = "reserve"
    MISMATCH = "mismatch"
    VERIFY = "verify"
    EVICT = "evict"
    MOVE = "move"
    """Avoid the node for a while and plan again."""
    REPLAN = "replan"
    """The node cannot be used; plan again."""
    FAIL = "fail"
    LOST = "lost"
    """Other pods took the room each time."""
    DONE = "done"
    CANCEL = "cancel"
    TIMEOUT = "timeout"


class Times(Struct, frozen=True, gc=False):
    """The settings that are durations, in seconds."""

    settle: float = 10.0
    verify: float = 1.0
    evict: float = 60.0
    gone: float = 40.0
    adds_grace: bool = False
    """Whether each victim's own grace period is added to ``gone``."""
    bind: float = 60.0


class FlowStep(Struct, frozen=True):
    """The flow after a decision, the action, and the seconds until it must be decided again."""

    flow: EvictionFlow
    action: Action = Action.WAIT
    requeue_after: float | None = None
    why: str = ""


def apply_event(flow: EvictionFlow, event: Event, now: float) -> EvictionFlow:
    """Return the flow after the result of an action. Raises ValueError if that cannot be."""
    make = _TRANSITIONS.get((type(flow.state), type(event)))
    if isinstance(event, Abandoned):
        state: FlowState = Detected() if event.until is None else BackingOff(event.until)
    elif make is not None:
        state = make(flow.state, event, now)
    else:
        raise ValueError(f"{flow.key}: {type(event).__name__} in state {flow.state.name}")
    if isinstance(event, Planned):
        return replace(flow, state=state, attempt=event.attempt)
    if isinstance(event, NotPlanned) and event.dry_note is not None:
        return replace(flow, state=state, dry_note=event.dry_note)
    return replace(flow, state=state)


def _wait_for_fit(state: Planning, event: Fits, now: float) -> FlowState:
    fit = state.fit
    if fit is not None and fit.node in event.nodes:
        return fit
    return WaitingForFit(event.nodes[0], now)


def _delay_verification(state: Verifying, event: VerificationDelayed, _now: float) -> FlowState:
    return replace(state, retry_at=event.until, busy=state.busy + event.is_busy)


def _check(state: Verifying, event: Checked, _now: float) -> FlowState:
    plan = replace(state.plan, tier=event.tier, victims=event.victims, tokens=event.tokens)
    return replace(state, plan=plan, retry_at=0.0, busy=0)


def _accept(state: Evicting, event: Evicted, now: float) -> FlowState:
    plan, uid = state.plan, event.victim.uid
    evictions, violations = plan.tokens
    plan = replace(
        plan,
        tokens=(max(evictions - 1, 0), max(violations - event.victim.violates, 0)),
        accepted=plan.accepted | {uid},
        in_background=plan.in_background | ({uid} if event.in_background else set()),
    )
    return Verifying(plan, now) if event.is_replaced else Evicting(plan)


def _delay_eviction(state: Evicting, event: EvictionDelayed, now: float) -> FlowState:
    if event.is_busy:
        return replace(state, retry_at=event.until, busy=state.busy + 1)
    return replace(state, retry_at=event.until, refused_since=state.refused_since or now)


_TRANSITIONS: Final[Mapping[tuple[type, type], Callable[[Any, Any, float], FlowState]]] = {
    (Detected, Qualified): lambda _state, _event, _now: Planning(),
    (BackingOff, Qualified): lambda _state, _event, _now: Planning(),
    (Detected, Adopted): lambda _state, event, now: Verifying(event.plan, now),
    (NoFit, ClusterChanged): lambda _state, _event, _now: Planning(),
    (WaitingForFit, ClusterChanged): lambda state, _event, _now: Planning(fit=state),
    (WaitingForFit, Mismatched): lambda _state, _event, _now: Planning(),
    (Planning, Disqualified): lambda _state, _event, _now: Detected(),
    (Planning, Fits): _wait_for_fit,
    (Planning, NotPlanned): lambda _state, _event, _now: NoFit(),
    (Planning, Unaffordable): lambda _state, event, _now: BackingOff(event.until),
    (Planning, Planned): lambda _state, event, _now: Reserving(event.plan),
    (Reserving, Reserved): lambda state, _event, now: Verifying(state.plan, now),
    (Verifying, VerificationDelayed): _delay_verification,
    (Verifying, Checked): _check,
    (Verifying, Verified): lambda state, _event, _now: Evicting(state.plan),
    (Evicting, Evicted): _accept,
    (Evicting, EvictionDelayed): _delay_eviction,
    (Evicting, VictimSpared): lambda state, _event, now: Verifying(state.plan, now),
    (Evicting, AllEvicted): lambda state, _event, now: Draining(state.plan, now),
}
"""The next state by state and event; ``Abandoned`` ends a plan in every state."""


def advance(flow: EvictionFlow, seen: FlowInputs, now: float, times: Times) -> FlowStep:
    """Return the next step for the pod."""
    ended = _end(flow, seen)
    if ended is not None:
        return ended
    match flow.state:
        case Reserving() | Verifying() | Evicting() | Draining() | Binding() as state:
            return _advance_live(flow, state, seen, now, times)
    return _advance_waiting(flow, seen, now, times)


def _end(flow: EvictionFlow, seen: FlowInputs) -> FlowStep | None:
    if seen.observation is Observation.BOUND:
        return FlowStep(flow, Action.DONE)
    if not seen.is_on:
        return FlowStep(flow, Action.CANCEL, why="rescheduling is switched off")
    if seen.observation is Observation.GONE:
        return FlowStep(flow, Action.CANCEL, why="the pod is gone")
    if seen.observation is Observation.EXCUSED:
        return FlowStep(flow, Action.CANCEL, why="the pod is gated or no longer critical")
    return None


def _advance_waiting(flow: EvictionFlow, seen: FlowInputs, now: float, times: Times) -> FlowStep:
    is_triggered = seen.observation is Observation.WAITING or (
        seen.observation is Observation.NOMINATED and seen.is_stuck
    )
    if not is_triggered:
        if seen.observation is Observation.QUIET and flow.unschedulable_since is None:
            return FlowStep(flow)
        # The scheduler acts now, which makes earlier results stale.
        return FlowStep(replace(flow, state=Detected(), unschedulable_since=None))
    since = now if flow.unschedulable_since is None else flow.unschedulable_since
    flow = replace(flow, unschedulable_since=since)
    left = since + times.settle - now
    if left > 0 and not seen.is_stuck:
        return FlowStep(flow, requeue_after=left)
    match flow.state:
        case BackingOff(until) if now < until:
            return FlowStep(flow, requeue_after=until - now)
        case NoFit():
            return FlowStep(flow)
        case WaitingForFit(_, fits_since):
            left = fits_since + WAIT_FIT_SECONDS - now
            return (
                FlowStep(flow, requeue_after=left) if left > 0 else FlowStep(flow, Action.MISMATCH)
            )
        case Planning():
            return FlowStep(flow, Action.PLAN)
    return FlowStep(flow, Action.QUALIFY)


def _advance_live(
    flow: EvictionFlow, state: LiveState, seen: FlowInputs, now: float, times: Times
) -> FlowStep:
    plan = state.plan
    if not seen.node_is_there:
        return FlowStep(flow, Action.REPLAN, why="the node is gone")
    scheduler_preempts = seen.observation is Observation.NOMINATED and not seen.is_stuck
    if scheduler_preempts and not plan.accepted:
        return FlowStep(flow, Action.CANCEL, why="the scheduler preempts for the pod")
    left = plan.deadline - now
    if left <= 0:
        return FlowStep(flow, Action.TIMEOUT)
    if scheduler_preempts and isinstance(state, Evicting):
        # Only the victims that terminate already are waited for.
        state = Draining(plan, now)
    state = _next_live_state(state, seen, now)
    step = _step(replace(flow, state=state), state, seen, now, times)
    if step.action is Action.WAIT and (step.requeue_after is None or step.requeue_after > left):
        return replace(step, requeue_after=left)
    return step


def _next_live_state(state: LiveState, seen: FlowInputs, now: float) -> LiveState:
    """Return the state that follows from time and from what is observed, without any action."""
    plan = state.plan
    if isinstance(state, Draining) and not _present(plan, seen):
        state = Binding(plan, now)
    is_lost = isinstance(state, Binding) and _is_lost(state, seen, now)
    if is_lost and plan.replans < MAX_REPLANS:
        return Verifying(replace(plan, replans=plan.replans + 1), now)
    return state


def _is_lost(state: Binding, seen: FlowInputs, now: float) -> bool:
    return seen.has_room is False and now - state.since >= LOST_SECONDS


def _step(
    flow: EvictionFlow, state: LiveState, seen: FlowInputs, now: float, times: Times
) -> FlowStep:
    match state:
        case Reserving():
            return FlowStep(flow, Action.RESERVE)
        case Verifying():
            left = max(state.since + times.verify, state.retry_at) - now
            return FlowStep(flow, requeue_after=left) if left > 0 else FlowStep(flow, Action.VERIFY)
        case Evicting() if not seen.node_is_open:
            return FlowStep(flow, Action.REPLAN, why="the node no longer accepts the pod")
        case Evicting():
            left = state.retry_at - now
            return FlowStep(flow, requeue_after=left) if left > 0 else FlowStep(flow, Action.EVICT)
        case Draining():
            left = state.since + _drain_seconds(state.plan, seen, times) - now
            if left > 0:
                return FlowStep(flow, requeue_after=left)
            return FlowStep(flow, Action.MOVE, why="pods did not terminate in time")
        case Binding():
            return _bind(flow, state, seen, now, times)


def _present(plan: ActivePlan, seen: FlowInputs) -> frozenset[str]:
    return (seen.staying | seen.leaving) & plan.accepted


def _drain_seconds(plan: ActivePlan, seen: FlowInputs, times: Times) -> float:
    present = _present(plan, seen)
    if present & plan.in_background:
        return BACKGROUND_SECONDS
    if not times.adds_grace:
        return times.gone
    graces = [victim.new_grace for victim in plan.victims if victim.uid in present]
    return times.gone + max(graces, default=0)


def _bind(
    flow: EvictionFlow, state: Binding, seen: FlowInputs, now: float, times: Times
) -> FlowStep:
    waited = now - state.since
    if _is_lost(state, seen, now):
        return FlowStep(flow, Action.LOST, why="the room was taken by others")
    if waited >= times.bind:
        return FlowStep(flow, Action.FAIL, why="the scheduler does not place the pod there")
    left = times.bind - waited
    if seen.has_room is False:
        left = min(left, LOST_SECONDS - waited)
    return FlowStep(flow, requeue_after=left)
