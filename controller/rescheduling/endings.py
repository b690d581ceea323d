"""How courses end, and what follows: the reservation goes, and it is told.

See rescheduler-spec 6.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from harbourmaster.controller.rescheduling import notices as told
from harbourmaster.controller.rescheduling.board import SHORTLY, UNTRUSTED
from harbourmaster.rescheduling.course import Action, State

if TYPE_CHECKING:
    from collections.abc import Callable

    from harbourmaster.controller.rescheduling.board import Board
    from harbourmaster.controller.rescheduling.context import Context
    from harbourmaster.rescheduling.course import Course, Next

FREE_PLANS: Final = 5
"""Plans in a row that ended before an eviction, after which a pod waits as after one in vain."""


class Endings:
    """Ends courses; ``wake`` has a node, a pod or the plans looked at."""

    def __init__(self, context: Context, board: Board, wake: Callable[..., None]) -> None:
        self._context = context
        self._board = board
        self._wake = wake
        self._free: dict[str, int] = {}

    def end(self, following: Next) -> float | None:
        """Do what ends, or changes, a course; returns None for a look at once."""
        course, why = following.course, following.why
        match following.action:
            case Action.DONE:
                self._done(course)
            case Action.CANCEL:
                self._cancel(course, why)
            case Action.MISMATCH:
                self._mismatch(course)
            case Action.REPLAN:
                self.replan(course, why)
            case Action.MOVE:
                self.move(course, why)
            case Action.FAIL:
                self._fail(course, why)
            case Action.LOST:
                self._avoid_long(course, why)
                self._give_up(course, why)
            case Action.TIMEOUT:
                note = "no place was found for the pod in time"
                self._context.notices.pod(course, told.TIMED_OUT, note, "Warning")
                self._give_up(course, "out of time")
            case _:
                raise ValueError(f"{following.action} ends nothing")
        return None

    def replan(self, course: Course, why: str, *, elsewhere: bool = True) -> None:
        """It can't be done so; another plan may do at once, if this happens not too often.

        Not ``elsewhere``, other pods of the same node may do.
        """
        now = self._context.clock()
        if course.accepted:
            self._note_vain(course)
        if elsewhere:
            self._board.avoid(course.uid, course.node, now + SHORTLY, why)
        free = self._free[course.uid] = self._free.get(course.uid, 0) + 1
        if free >= FREE_PLANS:
            self._free.pop(course.uid, None)
            self._pause(course, why)
            return
        self._release(course)
        self._board.put(_fresh(course, State.DETECTED, now), why)

    def move(self, course: Course, why: str) -> None:
        """The node can't be had for long; another one may do at once."""
        self._avoid_long(course, why)
        if course.accepted:
            self._note_vain(course)
        self._release(course)
        self._board.put(_fresh(course, State.DETECTED, self._context.clock()), why)

    def _done(self, course: Course) -> None:
        context = self._context
        if course.is_live:
            found = context.caches.pod(course.key)
            node = found.node if found is not None else ""
            context.notices.pod(course, told.SUCCEEDED, f"the pod has its place on {node}")
            context.notices.bound(context.clock() - course.seen)
            if course.accepted and node == course.node:
                context.ledger.breaker.succeed()
        self._drop(course, "done", "bound")
        context.ledger.attempts.forget(course.uid)

    def _cancel(self, course: Course, why: str) -> None:
        self._drop(course, "cancelled", why)
        found = self._context.caches.pod(course.key)
        if found is None or found.uid != course.uid:
            self._context.ledger.attempts.forget(course.uid)
        # It may be another pod of that name by now, or one that waits for something else.
        self._wake("pod", course.key)

    def _mismatch(self, course: Course) -> None:
        """Believe the scheduler: what fits here does not fit there."""
        self._tell_mismatch(course)
        self._avoid_long(course, "the scheduler does not use it")
        self._board.put(_fresh(course, State.PLAN, self._context.clock()))

    def _fail(self, course: Course, why: str) -> None:
        self._tell_mismatch(course)
        self._avoid_long(course, "the scheduler did not use the room")
        self._give_up(course, why)

    def _avoid_long(self, course: Course, why: str) -> None:
        until = self._context.clock() + UNTRUSTED
        self._board.avoid(course.uid, course.node, until, why)

    def _give_up(self, course: Course, why: str) -> None:
        if course.accepted:
            self._note_vain(course)
        self._pause(course, why)

    def _pause(self, course: Course, why: str) -> None:
        """Leave the pod alone for a while."""
        context, now = self._context, self._context.clock()
        self._release(course)
        pause = context.ledger.attempts.pause(course.uid, context.chance())
        self._board.put(replace(_fresh(course, State.BACKOFF, now), retry_at=now + pause), why)

    def _note_vain(self, course: Course) -> None:
        context, now = self._context, self._context.clock()
        context.ledger.attempts.note(course.uid, course.owner, now)
        if context.ledger.breaker.fail(now):
            note = "pods were evicted in vain several times in a row: nothing is begun for a while"
            context.notices.pod(course, told.CIRCUIT, note, "Warning")

    def _tell_mismatch(self, course: Course) -> None:
        note = f"the pod should fit on {course.node}, but the scheduler does not place it there"
        if self._context.notices.pod(course, told.MISMATCH, note, "Warning", once=True):
            self._context.notices.mismatched()

    def _drop(self, course: Course, how: str, why: str) -> None:
        if course.is_live:
            self._context.notices.ended(course, how, why)
        self._release(course)
        self._board.drop(course)
        self._board.forget(course.uid)
        self._free.pop(course.uid, None)

    def _release(self, course: Course) -> None:
        """Have the node given back, and what was counted beforehand counted no more.

        What becomes of the course is put, or dropped, right after this.
        """
        context = self._context
        context.ledger.breaker.drop(course.uid)
        if not course.is_live:
            return
        context.ledger.budgets.give_back(*course.tokens, context.clock())
        self._board.released[course.node, course.uid] = None
        self._wake("node", course.node)
        self._wake("plans")


def _fresh(course: Course, state: State, now: float) -> Course:
    """The same with nothing begun for it."""
    return replace(
        course,
        state=state,
        since=now,
        node="",
        tier=0,
        victims=(),
        accepted=frozenset(),
        background=frozenset(),
        retry_at=0.0,
        refused_from=None,
        busy=0,
        replans=0,
        tokens=(0, 0),
        fits_from=None,
    )
