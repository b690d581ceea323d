"""Evicts the victims of one course, one after the other, as far as the answers let it (6.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from harbourmaster.api.resources import PODS
from harbourmaster.controller.rescheduling.board import REFUSED, UNEVICTABLE
from harbourmaster.controller.rescheduling.caches import bare
from harbourmaster.kube.errors import NotFoundError
from harbourmaster.rescheduling.answers import Outcome, Stand, Way, follow, in_order, pause, read
from harbourmaster.rescheduling.classes import is_required
from harbourmaster.rescheduling.course import Action, Course, State
from harbourmaster.rescheduling.victims import VIOLATING
from harbourmaster.rescheduling.wire import decode_pod

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from harbourmaster.controller.rescheduling.board import Board
    from harbourmaster.controller.rescheduling.context import Context
    from harbourmaster.controller.rescheduling.evictions import Evictions
    from harbourmaster.rescheduling.answers import Reply
    from harbourmaster.rescheduling.plans import Victim

_DELETED: Final = frozenset((Outcome.EVICTED, Outcome.BACKGROUND))


class Evicted(Struct, frozen=True):
    """How far it came: the course from here on; or why the node, or the pod, can't be had."""

    course: Course
    action: Action = Action.WAIT
    why: str = ""


class Evicting:
    """Carries out the evictions of courses."""

    def __init__(self, context: Context, board: Board, evictions: Evictions) -> None:
        self._context = context
        self._board = board
        self._evictions = evictions
        self._told: set[str] = set()
        """Victims that were told already; an eviction may take several tries."""

    def forget_but(self, uids: Collection[str]) -> None:
        """Forget what was told of any other pod."""
        self._told.intersection_update(uids)

    async def evict(self, course: Course, may_go_on: Callable[[Course], bool]) -> Evicted:
        """Evict until a wait is due, or until all is done.

        ``may_go_on`` is asked before each call, for much may happen while another one is awaited.
        """
        victims = {each.uid: each for each in course.victims}
        budgeted = {each.uid for each in course.victims if each.budget or each.violates}
        for uid in in_order(budgeted, list(victims)):
            if uid in course.accepted:
                continue
            if not may_go_on(course):
                return Evicted(course)
            ended = await self._one(course, victims[uid])
            course = self._board.put(ended.course)
            if ended.action is not Action.WAIT or course.retry_at > self._context.clock():
                return ended
            if course.state is not State.EVICT:
                return ended
        return Evicted(course.at(State.DRAIN, self._context.clock()))

    async def _one(self, course: Course, victim: Victim) -> Evicted:
        found = self._context.caches.pod(victim.key)
        if found is None or found.uid != victim.uid or found.is_finished:
            if await self._is_over(victim):
                return Evicted(_accepted(course, victim))
        elif found.deletion is not None:
            left = found.deletion - self._context.now()
            if not victim.is_leaving or left <= victim.new_grace:
                return Evicted(_accepted(course, victim))
            return await self._shorten(course, victim)
        elif is_required(found, self._context.planning):
            return Evicted(self._verified_again(course), why=f"{victim.key} is to stay by now")
        if victim.uid not in self._told:
            # The object may vanish with its eviction, and an event about it must not be late.
            self._told.add(victim.uid)
            self._context.notices.victim(course, victim)
        reply = await self._evictions.evict(victim)
        outcome = read(reply, in_background=victim.evicts_in_background)
        return await self._after(course, victim, outcome, reply)

    async def _is_over(self, victim: Victim) -> bool:
        """Whether a pod that the watch does not show is gone, or has nothing of its node any more.

        Where the watch is only behind it is neither. Raises ApiError.
        """
        try:
            raw = await self._context.client.get(PODS, victim.name, victim.namespace)
        except NotFoundError:
            return True
        found = bare(decode_pod(raw, self._context.criteria))
        return found.uid != victim.uid or found.is_finished

    async def _shorten(self, course: Course, victim: Victim) -> Evicted:
        """Have a pod that goes already go sooner, never by an eviction (0, finding 3)."""
        reply = await self._evictions.delete(victim)
        outcome = read(reply)
        way = follow(outcome, self._stand(course, victim))
        if way in {Way.NEXT, Way.VERIFY}:
            if outcome is Outcome.EVICTED:
                self._context.notices.went(victim, violating=False)
            return Evicted(_accepted(course, victim))
        return self._later_or_without(course, victim, way, outcome, reply)

    async def _after(
        self, course: Course, victim: Victim, outcome: Outcome, reply: Reply | None
    ) -> Evicted:
        self._context.notices.answered(outcome, course.tier)
        way = follow(outcome, self._stand(course, victim))
        match way:
            case Way.NEXT | Way.BACKGROUND:
                return Evicted(self._gone(course, victim, outcome))
            case Way.VERIFY:
                return Evicted(_accepted(course, victim).at(State.VERIFY, self._context.clock()))
            case Way.DELETE:
                return await self._violate(course, victim)
        return self._later_or_without(course, victim, way, outcome, reply)

    async def _violate(self, course: Course, victim: Victim) -> Evicted:
        """Delete a pod past its disruption budget, saying so on it before."""
        note = f"deleted to make room for the critical pod {course.key}"
        reply = await self._evictions.mark(victim, note)
        if reply is None:
            reply = await self._evictions.delete(victim)
        outcome = read(reply)
        way = follow(outcome, Stand(course.tier, busy=course.busy))
        if way in {Way.NEXT, Way.VERIFY}:
            if outcome is Outcome.EVICTED:
                self._context.ledger.budgets.take(0, 0 if victim.violates else 1, self._now())
                self._context.notices.went(victim, violating=True)
                self._note_owner(victim)
            return Evicted(_accepted(course, victim))
        return self._later_or_without(course, victim, way, outcome, reply)

    def _later_or_without(
        self, course: Course, victim: Victim, way: Way, outcome: Outcome, reply: Reply | None
    ) -> Evicted:
        """Try again later, or give up this node, this pod or this budget."""
        now = self._now()
        text = reply.message if reply is not None else outcome.value
        why = f"the eviction of {victim.key} is refused: {text}"
        if way is Way.RETRY:
            is_busy = outcome is Outcome.BUSY
            if is_busy:
                self._context.ledger.busy.note("", now)
            asked = reply.retry_after if reply is not None else None
            wait = pause(outcome, self._stand(course, victim), asked, self._context.chance())
            refused_from = course.refused_from if is_busy else (course.refused_from or now)
            return Evicted(
                replace(
                    course,
                    retry_at=now + wait,
                    refused_from=refused_from,
                    busy=course.busy + 1 if is_busy else course.busy,
                )
            )
        if way is Way.WITHOUT_BUDGET:
            self._board.refuse(victim, now + REFUSED)
        if way is Way.WITHOUT_POD:
            self._board.spare(victim.uid, now + UNEVICTABLE)
        if course.accepted and way is not Way.WITHOUT_NODE:
            # Others of this node may do instead, and those that went are not gone in vain.
            return Evicted(self._verified_again(course), why=why)
        action = Action.MOVE if way is Way.WITHOUT_NODE else Action.REPLAN
        return Evicted(course, action, why)

    def _verified_again(self, course: Course) -> Course:
        return course.at(State.VERIFY, self._now(), refused_from=None, busy=0, retry_at=0.0)

    def _gone(self, course: Course, victim: Victim, outcome: Outcome) -> Course:
        if outcome in _DELETED:
            self._context.notices.went(victim, violating=False)
            self._note_owner(victim)
        found = _accepted(course, victim)
        if outcome is Outcome.BACKGROUND:
            return replace(found, background=found.background | {victim.uid})
        return found

    def _note_owner(self, victim: Victim) -> None:
        if victim.owner:
            self._context.ledger.of_owners.note(victim.owner, self._now())

    def _stand(self, course: Course, victim: Victim) -> Stand:
        now = self._now()
        context = self._context
        # What was not planned to violate its budget must be affordable, too.
        is_affordable = victim.violates or context.ledger.budgets.wait(0, 1, now) == 0
        is_last_resort = course.tier >= VIOLATING and context.settings.allow_pdb_violation
        return Stand(
            course.tier,
            may_violate=is_last_resort and is_affordable,
            refused=0.0 if course.refused_from is None else now - course.refused_from,
            busy=course.busy,
            timeout=context.settings.evict_timeout_seconds,
        )

    def _now(self) -> float:
        return self._context.clock()


def _accepted(course: Course, victim: Victim) -> Course:
    """The same with one victim less to evict."""
    evictions, violations = course.tokens
    return replace(
        course,
        tokens=(max(evictions - 1, 0), max(violations - victim.violates, 0)),
        accepted=course.accepted | {victim.uid},
        refused_from=None,
        busy=0,
        retry_at=0.0,
    )
