"""The course of one critical pod, from the first sight to its place (rescheduler-spec 6.4): pure.

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
    """Where a pod is on its course; what is passed through within one look is no state."""

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


class Sight(Enum):
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


class Course(Struct, frozen=True, kw_only=True):
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

    def at(self, state: State, now: float, **changes: object) -> Course:
        """The same in another state."""
        return replace(self, state=state, since=now, **changes)


class Seen(Struct, frozen=True):
    """What is known at a moment. The victims are given by uid."""

    sight: Sight
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


class Next(Struct, frozen=True):
    """What follows: the course from here on, what to do, and when to look again at the latest."""

    course: Course
    action: Action = Action.WAIT
    wait: float | None = None
    why: str = ""


def sight(uid: str, pod: Pod | None, pending: PendingPod | None) -> Sight:
    """What is seen of the pod with this uid; a namesake is another."""
    found = pending.pod if pending is not None else pod
    if found is None or found.uid != uid or found.deletion is not None or found.is_finished:
        return Sight.GONE
    if found.node:
        return Sight.BOUND
    if pending is None or not found.is_critical or pending.is_gated:
        return Sight.EXCUSED
    if pending.nominated:
        return Sight.NOMINATED
    return Sight.WAITING if pending.is_unschedulable else Sight.QUIET


def preemption_is_stuck(
    ends: Iterable[float], seconds: float, now: float, *, overdue: float = STUCK_OVERDUE
) -> bool:
    """Whether the pods of which a preemption waits should all be gone for long (3.8, rule 3).

    ``ends`` are when the graces of those on the nominated node end, ``now`` is of the same clock;
    ``seconds`` says how long the node has been nominated.
    """
    found = list(ends)
    return seconds >= STUCK_SECONDS and bool(found) and all(now - end > overdue for end in found)


def advance(course: Course, seen: Seen, now: float, times: Times) -> Next:
    """What is to be done for the pod now."""
    ended = _ended(course, seen)
    if ended is not None:
        return ended
    if course.is_live:
        return _advance_live(course, seen, now, times)
    return _advance_waiting(course, seen, now, times)


def _ended(course: Course, seen: Seen) -> Next | None:
    if seen.sight is Sight.BOUND:
        return Next(course, Action.DONE)
    if not seen.is_on:
        return Next(course, Action.CANCEL, why="rescheduling is switched off")
    if seen.sight is Sight.GONE:
        return Next(course, Action.CANCEL, why="the pod is gone")
    if seen.sight is Sight.EXCUSED:
        return Next(course, Action.CANCEL, why="the pod is gated, or not critical any more")
    return None


def _advance_waiting(course: Course, seen: Seen, now: float, times: Times) -> Next:
    is_triggered = seen.sight is Sight.WAITING or (seen.sight is Sight.NOMINATED and seen.is_stuck)
    if not is_triggered:
        if seen.sight is Sight.QUIET and course.settled_from is None:
            return Next(course)
        # What the scheduler does now makes whatever was found out before it old.
        return Next(course.at(State.DETECTED, now, settled_from=None))
    if course.settled_from is None:
        course = replace(course, settled_from=now)
    left = (course.settled_from or 0.0) + times.settle - now
    if left > 0 and not seen.is_stuck:
        return Next(course, wait=left)
    if course.state is State.BACKOFF and now < course.retry_at:
        return Next(course, wait=course.retry_at - now)
    if course.state is State.NOFIT:
        return Next(course)
    if course.state is State.WAIT_FIT:
        left = (course.since if course.fits_from is None else course.fits_from) - now
        left += WAIT_FIT_SECONDS
        return Next(course, wait=left) if left > 0 else Next(course, Action.MISMATCH)
    if course.state is State.PLAN:
        return Next(course, Action.PLAN)
    return Next(course, Action.QUALIFY)


def _advance_live(course: Course, seen: Seen, now: float, times: Times) -> Next:
    if not seen.node_is_there:
        return Next(course, Action.REPLAN, why="the node is gone")
    if seen.sight is Sight.NOMINATED and not course.accepted and not seen.is_stuck:
        return Next(course, Action.CANCEL, why="the scheduler preempts for the pod")
    left = (course.deadline or now) - now
    if left <= 0:
        return Next(course, Action.TIMEOUT)
    found = _LIVE_STATES[course.state](course, seen, now, times)
    if found.action is Action.WAIT and (found.wait is None or found.wait > left):
        return replace(found, wait=left)
    return found


def _verify(course: Course, _seen: Seen, now: float, times: Times) -> Next:
    left = max(course.since + times.verify, course.retry_at) - now
    return Next(course, wait=left) if left > 0 else Next(course, Action.VERIFY)


def _evict(course: Course, seen: Seen, now: float, times: Times) -> Next:
    if seen.sight is Sight.NOMINATED:
        # The scheduler helps itself by now; what goes already is all that goes.
        return _drain(course.at(State.DRAIN, now), seen, now, times)
    if not seen.node_is_open:
        return Next(course, Action.REPLAN, why="the node takes the pod no more")
    left = course.retry_at - now
    return Next(course, wait=left) if left > 0 else Next(course, Action.EVICT)


def _drain(course: Course, seen: Seen, now: float, times: Times) -> Next:
    here = (seen.staying | seen.leaving) & course.accepted
    if not here:
        return _bind(course.at(State.BIND, now), seen, now, times)
    limit = _gone_limit(course, here, times)
    left = course.since + limit - now
    if left > 0:
        return Next(course, wait=left)
    return Next(course, Action.MOVE, why="pods did not go in time")


def _gone_limit(course: Course, here: frozenset[str], times: Times) -> float:
    if here & course.background:
        return BACKGROUND_SECONDS
    if not times.adds_grace:
        return times.gone
    graces = [each.new_grace for each in course.victims if each.uid in here]
    return times.gone + max(graces, default=0)


def _bind(course: Course, seen: Seen, now: float, times: Times) -> Next:
    waited = now - course.since
    if seen.has_room is False and waited >= LOST_SECONDS:
        if course.replans < MAX_REPLANS:
            again = course.at(State.VERIFY, now, replans=course.replans + 1, retry_at=0.0)
            return _verify(again, seen, now, times)
        return Next(course, Action.LOST, why="the room was taken by others")
    if waited >= times.bind:
        return Next(course, Action.FAIL, why="the scheduler does not use the room")
    wait = times.bind - waited
    if seen.has_room is False:
        wait = min(wait, LOST_SECONDS - waited)
    return Next(course, wait=wait)


def _reserve(course: Course, _seen: Seen, _now: float, _times: Times) -> Next:
    return Next(course, Action.RESERVE)


_LIVE_STATES: Final = {
    State.RESERVE: _reserve,
    State.VERIFY: _verify,
    State.EVICT: _evict,
    State.DRAIN: _drain,
    State.BIND: _bind,
}
