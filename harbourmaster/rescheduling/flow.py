"""The flow of one critical pod, from unschedulable to bound (rescheduler-spec 6.4): pure.

The state and what is observed decide the next action. Times are seconds of a monotonic clock.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from harbourmaster.rescheduling.plans import Victim

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harbourmaster.rescheduling.model import PendingPod, Pod

WAIT_FIT_SECONDS: Final = 60.0
"""How long the scheduler may leave a pod waiting that fits somewhere as it is."""
BACKGROUND_SECONDS: Final = 600.0
"""How long a pod may take whose eviction goes on in the background."""
STUCK_SECONDS: Final = 300.0
"""How long a preemption may get nowhere."""
STUCK_OVERDUE: Final = 60.0
"""Seconds after the end of its grace at which a pod is taken for stuck."""
LOST_SECONDS: Final = 1.0
"""How long room may be missing before it counts as lost: events come one after the other."""
MAX_REPLANS: Final = 2
"""Further plans on a node whose room was lost."""


class FlowState(Enum):
    """The state of a flow."""

    DETECTED = "DETECTED"
    PLAN = "PLAN"
    WAIT_FIT = "WAIT_FIT"
    NOFIT = "NOFIT"
    RESERVE = "RESERVE"
    VERIFY = "VERIFY"
    EVICT = "EVICT"
    DRAIN = "DRAIN"
    BIND = "BIND"
    BACKOFF = "BACKOFF"


LIVE: Final = frozenset(
    (FlowState.RESERVE, FlowState.VERIFY, FlowState.EVICT, FlowState.DRAIN, FlowState.BIND)
)
"""States with a reservation, or with one that is being written."""


class Observation(Enum):
    """What the API says about the pod."""

    WAITING = "unschedulable"
    NOMINATED = "the scheduler preempts for it"
    QUIET = "not known to be unschedulable"
    EXCUSED = "not critical, or gated"
    BOUND = "bound"
    GONE = "gone"


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


class EvictionFlow(Struct, frozen=True, kw_only=True):
    """The progress for one critical pod. ``since`` is when its state began."""

    uid: str
    key: str
    owner: str = ""
    state: FlowState = FlowState.DETECTED
    since: float
    seen: float
    """When it was first seen without a node."""
    settled_from: float | None = None
    """When it was first seen unschedulable without a preemption in progress."""
    deadline: float | None = None
    attempt: int = 0
    node: str = ""
    tier: int = 0
    victims: tuple[Victim, ...] = ()
    accepted: frozenset[str] = frozenset()
    """The victims whose eviction was accepted."""
    background: frozenset[str] = frozenset()
    """Those of them that another controller evicts in the background."""
    retry_at: float = 0.0
    refused_from: float | None = None
    """Since when a disruption budget has refused the eviction of the next victim."""
    busy: int = 0
    """Consecutive answers that said that the API server is overloaded."""
    replans: int = 0
    tokens: tuple[int, int] = (0, 0)
    """The evictions and violations that are taken from the limits in advance."""
    fits_from: float | None = None
    """Since when it fits on its node without evictions and the scheduler does not place it."""
    recorded_from: str = ""
    """When its reservation was first written, as recorded there."""
    dry_note: str = ""
    """What the last dry run reported."""

    @property
    def is_live(self) -> bool:
        """Whether a node is reserved for it."""
        return self.state in LIVE

    def at(self, state: FlowState, now: float, **changes: object) -> EvictionFlow:
        """The same in another state."""
        return replace(self, state=state, since=now, **changes)


class FlowInputs(Struct, frozen=True):
    """What a decision depends on. Victims are given by UID."""

    observation: Observation
    is_on: bool = True
    node_is_there: bool = True
    node_is_open: bool = True
    """Whether the node accepts the pod, regardless of the pods on it."""
    staying: frozenset[str] = frozenset()
    """Victims that run and are not terminating."""
    leaving: frozenset[str] = frozenset()
    """Victims that are terminating."""
    has_room: bool | None = None
    """Whether the pod fits on its node now; None if that was not checked."""
    is_stuck: bool = False
    """Whether the preemption in progress for it is stuck."""


class FlowStep(Struct, frozen=True):
    """The flow after a decision, the action, and the seconds until it must be decided again."""

    flow: EvictionFlow
    action: Action = Action.WAIT
    requeue_after: float | None = None
    why: str = ""


def observe(uid: str, pod: Pod | None, pending: PendingPod | None) -> Observation:
    """What is observed of the pod with this UID; one that only has its name does not count."""
    found = pending.pod if pending is not None else pod
    if found is None or found.uid != uid or found.deletion is not None or found.is_finished:
        return Observation.GONE
    if found.node:
        return Observation.BOUND
    if pending is None or not found.is_critical or pending.is_gated:
        return Observation.EXCUSED
    if pending.nominated:
        return Observation.NOMINATED
    return Observation.WAITING if pending.is_unschedulable else Observation.QUIET


def preemption_is_stuck(
    ends: Iterable[float], seconds: float, now: float, *, overdue: float = STUCK_OVERDUE
) -> bool:
    """Whether all pods that a preemption waits for are long overdue (3.8, rule 3).

    ``ends`` are when the graces of those on the nominated node end, ``now`` is of the same clock;
    ``seconds`` says how long the node has been nominated.
    """
    found = list(ends)
    return seconds >= STUCK_SECONDS and bool(found) and all(now - end > overdue for end in found)


def advance(flow: EvictionFlow, seen: FlowInputs, now: float, times: Times) -> FlowStep:
    """The next step for the pod."""
    ended = _ended(flow, seen)
    if ended is not None:
        return ended
    if flow.is_live:
        return _advance_live(flow, seen, now, times)
    return _advance_waiting(flow, seen, now, times)


def _ended(flow: EvictionFlow, seen: FlowInputs) -> FlowStep | None:
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
        if seen.observation is Observation.QUIET and flow.settled_from is None:
            return FlowStep(flow)
        # The scheduler acts now, which makes earlier results stale.
        return FlowStep(flow.at(FlowState.DETECTED, now, settled_from=None))
    if flow.settled_from is None:
        flow = replace(flow, settled_from=now)
    left = (flow.settled_from or 0.0) + times.settle - now
    if left > 0 and not seen.is_stuck:
        return FlowStep(flow, requeue_after=left)
    if flow.state is FlowState.BACKOFF and now < flow.retry_at:
        return FlowStep(flow, requeue_after=flow.retry_at - now)
    if flow.state is FlowState.NOFIT:
        return FlowStep(flow)
    if flow.state is FlowState.WAIT_FIT:
        left = (flow.since if flow.fits_from is None else flow.fits_from) - now
        left += WAIT_FIT_SECONDS
        return FlowStep(flow, requeue_after=left) if left > 0 else FlowStep(flow, Action.MISMATCH)
    if flow.state is FlowState.PLAN:
        return FlowStep(flow, Action.PLAN)
    return FlowStep(flow, Action.QUALIFY)


def _advance_live(flow: EvictionFlow, seen: FlowInputs, now: float, times: Times) -> FlowStep:
    if not seen.node_is_there:
        return FlowStep(flow, Action.REPLAN, why="the node is gone")
    if seen.observation is Observation.NOMINATED and not flow.accepted and not seen.is_stuck:
        return FlowStep(flow, Action.CANCEL, why="the scheduler preempts for the pod")
    left = (flow.deadline or now) - now
    if left <= 0:
        return FlowStep(flow, Action.TIMEOUT)
    found = _LIVE_STATES[flow.state](flow, seen, now, times)
    if found.action is Action.WAIT and (found.requeue_after is None or found.requeue_after > left):
        return replace(found, requeue_after=left)
    return found


def _verify(flow: EvictionFlow, _seen: FlowInputs, now: float, times: Times) -> FlowStep:
    left = max(flow.since + times.verify, flow.retry_at) - now
    return FlowStep(flow, requeue_after=left) if left > 0 else FlowStep(flow, Action.VERIFY)


def _evict(flow: EvictionFlow, seen: FlowInputs, now: float, times: Times) -> FlowStep:
    if seen.observation is Observation.NOMINATED:
        # The scheduler helps itself by now; what already terminates is all that goes.
        return _drain(flow.at(FlowState.DRAIN, now), seen, now, times)
    if not seen.node_is_open:
        return FlowStep(flow, Action.REPLAN, why="the node no longer accepts the pod")
    left = flow.retry_at - now
    return FlowStep(flow, requeue_after=left) if left > 0 else FlowStep(flow, Action.EVICT)


def _drain(flow: EvictionFlow, seen: FlowInputs, now: float, times: Times) -> FlowStep:
    here = (seen.staying | seen.leaving) & flow.accepted
    if not here:
        return _bind(flow.at(FlowState.BIND, now), seen, now, times)
    limit = _gone_limit(flow, here, times)
    left = flow.since + limit - now
    if left > 0:
        return FlowStep(flow, requeue_after=left)
    return FlowStep(flow, Action.MOVE, why="pods did not terminate in time")


def _gone_limit(flow: EvictionFlow, here: frozenset[str], times: Times) -> float:
    if here & flow.background:
        return BACKGROUND_SECONDS
    if not times.adds_grace:
        return times.gone
    graces = [victim.new_grace for victim in flow.victims if victim.uid in here]
    return times.gone + max(graces, default=0)


def _bind(flow: EvictionFlow, seen: FlowInputs, now: float, times: Times) -> FlowStep:
    waited = now - flow.since
    if seen.has_room is False and waited >= LOST_SECONDS:
        if flow.replans < MAX_REPLANS:
            again = flow.at(FlowState.VERIFY, now, replans=flow.replans + 1, retry_at=0.0)
            return _verify(again, seen, now, times)
        return FlowStep(flow, Action.LOST, why="the room was taken by others")
    if waited >= times.bind:
        return FlowStep(flow, Action.FAIL, why="the scheduler does not place the pod there")
    requeue_after = times.bind - waited
    if seen.has_room is False:
        requeue_after = min(requeue_after, LOST_SECONDS - waited)
    return FlowStep(flow, requeue_after=requeue_after)


def _reserve(flow: EvictionFlow, _seen: FlowInputs, _now: float, _times: Times) -> FlowStep:
    return FlowStep(flow, Action.RESERVE)


_LIVE_STATES: Final = {
    FlowState.RESERVE: _reserve,
    FlowState.VERIFY: _verify,
    FlowState.EVICT: _evict,
    FlowState.DRAIN: _drain,
    FlowState.BIND: _bind,
}
