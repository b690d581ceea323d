"""The flow of one critical pod, from the first observe to its place (rescheduler-spec 6.4): pure.

State and what is seen give what is to be done. Times are seconds of a clock that nobody sets.
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


class State(Enum):
    """Where a pod is on its flow; what is passed through within one look is no state."""

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


LIVE: Final = frozenset((State.RESERVE, State.VERIFY, State.EVICT, State.DRAIN, State.BIND))
"""Those with a reservation, or one that is being written."""


class Observation(Enum):
    """What the API says of the pod."""

    WAITING = "unschedulable, and the scheduler knows no way"
    NOMINATED = "the scheduler preempts for it"
    QUIET = "not known to be unschedulable"
    EXCUSED = "not critical, or gated"
    BOUND = "bound"
    GONE = "gone"


class Action(Enum):
    """What is to be done now."""

    WAIT = "wait"
    QUALIFY = "qualify"
    PLAN = "plan"
    RESERVE = "reserve"
    MISMATCH = "mismatch"
    VERIFY = "verify"
    EVICT = "evict"
    MOVE = "move"
    """Leave the node alone for a while, and plan anew."""
    REPLAN = "replan"
    """The node can't be had; plan anew."""
    FAIL = "fail"
    LOST = "lost"
    """Others took the room, as often as it was made."""
    DONE = "done"
    CANCEL = "cancel"
    TIMEOUT = "timeout"


class Times(Struct, frozen=True, gc=False):
    """The settings that are times, in seconds."""

    settle: float = 10.0
    verify: float = 1.0
    evict: float = 60.0
    gone: float = 40.0
    adds_grace: bool = False
    """Whether each victim's own grace comes on top of ``gone``."""
    bind: float = 60.0
    overall: float = 600.0


class EvictionFlow(Struct, frozen=True, kw_only=True):
    """How far it has come with one pod. ``since`` is when its state began."""

    uid: str
    key: str
    owner: str = ""
    state: State = State.DETECTED
    since: float
    seen: float
    """When it was first seen without a node."""
    settled_from: float | None = None
    """When it was first seen unschedulable without a preemption that is under way."""
    deadline: float | None = None
    attempt: int = 0
    node: str = ""
    tier: int = 0
    victims: tuple[Victim, ...] = ()
    accepted: frozenset[str] = frozenset()
    """The victims of ours that are on their way, or gone."""
    background: frozenset[str] = frozenset()
    """Those of them that go when another part has moved them."""
    retry_at: float = 0.0
    refused_from: float | None = None
    """Since when a disruption budget has refused the next victim."""
    busy: int = 0
    """Answers in a row by which the API server wanted to be left alone."""
    replans: int = 0
    tokens: tuple[int, int] = (0, 0)
    """The evictions and violations that were counted for it beforehand."""
    fits_from: float | None = None
    """Since when it fits on its node as it is, and the scheduler does not see that."""
    recorded_from: str = ""
    """When its reservation was first written, as it says itself."""
    dry_note: str = ""
    """What a dry run told last."""

    @property
    def is_live(self) -> bool:
        """Whether a node is kept for it."""
        return self.state in LIVE

    def at(self, state: State, now: float, **changes: object) -> EvictionFlow:
        """The same in another state."""
        return replace(self, state=state, since=now, **changes)


class Inputs(Struct, frozen=True):
    """What is known at a moment. The victims are given by uid."""

    observe: Observation
    is_on: bool = True
    node_is_there: bool = True
    node_is_open: bool = True
    """Whether the node takes the pod, leaving aside who is on it."""
    staying: frozenset[str] = frozenset()
    """Victims that are there and not on their way."""
    leaving: frozenset[str] = frozenset()
    """Victims on their way."""
    has_room: bool | None = None
    """Whether the pod fits on its node now; None where that was not looked at."""
    is_stuck: bool = False
    """Whether the preemption under way for it gets nowhere."""


class Step(Struct, frozen=True):
    """What follows: the flow from here on, what to do, and when to look again at the latest."""

    flow: EvictionFlow
    action: Action = Action.WAIT
    wait: float | None = None
    why: str = ""


def observe(uid: str, pod: Pod | None, pending: PendingPod | None) -> Observation:
    """What is seen of the pod with this uid; a namesake is another."""
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
    """Whether the pods of which a preemption waits should all be gone for long (3.8, rule 3).

    ``ends`` are when the graces of those on the nominated node end, ``now`` is of the same clock;
    ``seconds`` says how long the node has been nominated.
    """
    found = list(ends)
    return seconds >= STUCK_SECONDS and bool(found) and all(now - end > overdue for end in found)


def advance(flow: EvictionFlow, seen: Inputs, now: float, times: Times) -> Step:
    """What is to be done for the pod now."""
    ended = _ended(flow, seen)
    if ended is not None:
        return ended
    if flow.is_live:
        return _advance_live(flow, seen, now, times)
    return _advance_waiting(flow, seen, now, times)


def _ended(flow: EvictionFlow, seen: Inputs) -> Step | None:
    if seen.observe is Observation.BOUND:
        return Step(flow, Action.DONE)
    if not seen.is_on:
        return Step(flow, Action.CANCEL, why="rescheduling is switched off")
    if seen.observe is Observation.GONE:
        return Step(flow, Action.CANCEL, why="the pod is gone")
    if seen.observe is Observation.EXCUSED:
        return Step(flow, Action.CANCEL, why="the pod is gated, or not critical any more")
    return None


def _advance_waiting(flow: EvictionFlow, seen: Inputs, now: float, times: Times) -> Step:
    is_triggered = seen.observe is Observation.WAITING or (
        seen.observe is Observation.NOMINATED and seen.is_stuck
    )
    if not is_triggered:
        if seen.observe is Observation.QUIET and flow.settled_from is None:
            return Step(flow)
        # What the scheduler does now makes whatever was found out before it old.
        return Step(flow.at(State.DETECTED, now, settled_from=None))
    if flow.settled_from is None:
        flow = replace(flow, settled_from=now)
    left = (flow.settled_from or 0.0) + times.settle - now
    if left > 0 and not seen.is_stuck:
        return Step(flow, wait=left)
    if flow.state is State.BACKOFF and now < flow.retry_at:
        return Step(flow, wait=flow.retry_at - now)
    if flow.state is State.NOFIT:
        return Step(flow)
    if flow.state is State.WAIT_FIT:
        left = (flow.since if flow.fits_from is None else flow.fits_from) - now
        left += WAIT_FIT_SECONDS
        return Step(flow, wait=left) if left > 0 else Step(flow, Action.MISMATCH)
    if flow.state is State.PLAN:
        return Step(flow, Action.PLAN)
    return Step(flow, Action.QUALIFY)


def _advance_live(flow: EvictionFlow, seen: Inputs, now: float, times: Times) -> Step:
    if not seen.node_is_there:
        return Step(flow, Action.REPLAN, why="the node is gone")
    if seen.observe is Observation.NOMINATED and not flow.accepted and not seen.is_stuck:
        return Step(flow, Action.CANCEL, why="the scheduler preempts for the pod")
    left = (flow.deadline or now) - now
    if left <= 0:
        return Step(flow, Action.TIMEOUT)
    found = _LIVE_STATES[flow.state](flow, seen, now, times)
    if found.action is Action.WAIT and (found.wait is None or found.wait > left):
        return replace(found, wait=left)
    return found


def _verify(flow: EvictionFlow, _seen: Inputs, now: float, times: Times) -> Step:
    left = max(flow.since + times.verify, flow.retry_at) - now
    return Step(flow, wait=left) if left > 0 else Step(flow, Action.VERIFY)


def _evict(flow: EvictionFlow, seen: Inputs, now: float, times: Times) -> Step:
    if seen.observe is Observation.NOMINATED:
        # The scheduler helps itself by now; what goes already is all that goes.
        return _drain(flow.at(State.DRAIN, now), seen, now, times)
    if not seen.node_is_open:
        return Step(flow, Action.REPLAN, why="the node takes the pod no more")
    left = flow.retry_at - now
    return Step(flow, wait=left) if left > 0 else Step(flow, Action.EVICT)


def _drain(flow: EvictionFlow, seen: Inputs, now: float, times: Times) -> Step:
    here = (seen.staying | seen.leaving) & flow.accepted
    if not here:
        return _bind(flow.at(State.BIND, now), seen, now, times)
    limit = _gone_limit(flow, here, times)
    left = flow.since + limit - now
    if left > 0:
        return Step(flow, wait=left)
    return Step(flow, Action.MOVE, why="pods did not go in time")


def _gone_limit(flow: EvictionFlow, here: frozenset[str], times: Times) -> float:
    if here & flow.background:
        return BACKGROUND_SECONDS
    if not times.adds_grace:
        return times.gone
    graces = [each.new_grace for each in flow.victims if each.uid in here]
    return times.gone + max(graces, default=0)


def _bind(flow: EvictionFlow, seen: Inputs, now: float, times: Times) -> Step:
    waited = now - flow.since
    if seen.has_room is False and waited >= LOST_SECONDS:
        if flow.replans < MAX_REPLANS:
            again = flow.at(State.VERIFY, now, replans=flow.replans + 1, retry_at=0.0)
            return _verify(again, seen, now, times)
        return Step(flow, Action.LOST, why="the room was taken by others")
    if waited >= times.bind:
        return Step(flow, Action.FAIL, why="the scheduler does not use the room")
    wait = times.bind - waited
    if seen.has_room is False:
        wait = min(wait, LOST_SECONDS - waited)
    return Step(flow, wait=wait)


def _reserve(flow: EvictionFlow, _seen: Inputs, _now: float, _times: Times) -> Step:
    return Step(flow, Action.RESERVE)


_LIVE_STATES: Final = {
    State.RESERVE: _reserve,
    State.VERIFY: _verify,
    State.EVICT: _evict,
    State.DRAIN: _drain,
    State.BIND: _bind,
}
