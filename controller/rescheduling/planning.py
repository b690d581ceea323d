"""Plans for one pod after the other, and keeps the node that a plan chooses (6.4, 5.6)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from harbourmaster.api.resources import PODS
from harbourmaster.api.times import stamp
from harbourmaster.controller.rescheduling import notices as told
from harbourmaster.controller.rescheduling.board import UNTRUSTED
from harbourmaster.controller.rescheduling.caches import bare
from harbourmaster.controller.rescheduling.reservations import Written
from harbourmaster.kube.errors import ApiError, NotFoundError
from harbourmaster.rescheduling import planner
from harbourmaster.rescheduling.course import Sight, State, sight
from harbourmaster.rescheduling.fit import static_reasons
from harbourmaster.rescheduling.model import PendingPod
from harbourmaster.rescheduling.reservation import Doomed, Reservation, reserve
from harbourmaster.rescheduling.wire import decode_node, decode_pod

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from harbourmaster.controller.rescheduling.board import Board
    from harbourmaster.controller.rescheduling.context import Context
    from harbourmaster.controller.rescheduling.reservations import Reservations
    from harbourmaster.controller.rescheduling.verifying import Verifying
    from harbourmaster.rescheduling.course import Course
    from harbourmaster.rescheduling.plans import Candidate, Plan

OUTDATED: Final = 60.0
"""Seconds after which time alone may have changed a plan: pods went on leaving."""
_SHARE: Final = 0.05
"""The part of the ready nodes that may be kept at the same time."""
_UNSAFE: Final = frozenset((Written.REFUSED, Written.BUSY))


class Planning:
    """Chooses nodes. Only one plan is made at a time; ``wake`` has a pod looked at."""

    def __init__(
        self,
        context: Context,
        board: Board,
        reservations: Reservations,
        verifying: Verifying,
        wake: Callable[[str], None],
    ) -> None:
        self._context = context
        self._board = board
        self._reservations = reservations
        self._verifying = verifying
        self._wake = wake
        self._planned_at: dict[str, tuple[object, float]] = {}
        """The stamp of the cluster and the time of each pod's last plan, by uid."""
        self.nominated: Callable[[Course], str] = lambda _course: ""
        self.qualify: Callable[[Course, PendingPod], Awaitable[float | None]] = _at_once

    async def plan_all(self) -> None:
        """Plan for the pods that wait for it. Raises ApiError.

        Where no more nodes may be kept, a few may share one; the others wait for their turn.
        """
        left = self._context.settings.max_concurrent_reservations
        failed: Exception | None = None
        for course in self._board.planning():
            if left and self._board.is_current(course):
                try:
                    await self._plan(course)
                except ApiError:
                    raise
                except Exception as error:  # noqa: BLE001 - whatever it is, the others go on
                    failed = failed or error
                    continue
                left -= self._board.is_current(course)
        if failed is not None:
            raise failed

    async def _plan(self, course: Course) -> None:
        context = self._context
        pending = context.caches.pending(course.key)
        if pending is None or pending.pod.uid != course.uid:
            return
        known = (context.caches.stamp, context.clock())
        plan = await self._planned(course, pending)
        if not self._board.is_current(course):
            return
        self._planned_at[course.uid] = known
        now, candidate = context.clock(), plan.candidate
        if plan.unsupported:
            context.notices.planned(None, "unsupported")
            note = f"not judged, so nothing is done: {', '.join(plan.unsupported)}"
            context.notices.pod(course, told.UNSUPPORTED, note, "Warning", once=True)
            self._board.put(course.at(State.NOFIT, now))
        elif candidate is None:
            context.notices.planned(None, "no_fit")
            context.notices.no_node(course, plan)
            self._board.put(course.at(State.NOFIT, now))
        elif not candidate.victims:
            context.notices.planned(candidate.tier, "fits")
            self._wait_for_fit(course, plan, now)
        else:
            await self._begin(course, pending, candidate)
        if not self._board.is_current(course):
            self._wake(course.key)

    def is_old(self, course: Course) -> bool:
        """Whether a plan that led to nothing may come to something now."""
        known = self._planned_at.get(course.uid)
        if known is None:
            return True
        stamp_then, then = known
        now = self._context.clock()
        return stamp_then != self._context.caches.stamp or now - then >= OUTDATED

    def forget_but(self, uids: Collection[str]) -> None:
        """Forget what was planned for any other pod."""
        self._planned_at = {uid: at for uid, at in self._planned_at.items() if uid in uids}

    async def _planned(self, course: Course, pending: PendingPod) -> Plan:
        """The plan; others get their turn between its slices."""
        context = self._context
        begun = context.clock()
        slices = planner.plan_in_slices(
            context.caches.cluster,
            pending,
            context.planning,
            context.now(),
            **self._board.circumstances(
                course, begun, context.often_evicted(), self.nominated(course)
            ),
        )
        plan: Plan | None = None
        while plan is None:
            try:
                next(slices)
            except StopIteration as end:
                plan = end.value
            else:
                await asyncio.sleep(0)
        context.notices.planning(context.clock() - begun, plan.evaluated)
        return plan

    def _wait_for_fit(self, course: Course, plan: Plan, now: float) -> None:
        """Leave it to the scheduler; what fits at once is where it did before, if it still does."""
        fitting = [
            each.node for each in (plan.candidate, *plan.runners_up) if each and not each.victims
        ]
        node = course.node if course.node in fitting else fitting[0]
        begun = course.fits_from if course.node == node and course.fits_from is not None else now
        waiting = course.at(State.WAIT_FIT, now, node=node, fits_from=begun, tier=0, victims=())
        self._board.put(waiting)

    async def _begin(self, course: Course, pending: PendingPod, candidate: Candidate) -> None:
        """Keep the node, if all that the plan takes may be done. Raises ApiError."""
        context, board = self._context, self._board
        if not self._may_keep(candidate.node):
            context.notices.planned(candidate.tier, "limit")
            return
        if context.settings.dry_run:
            await self._tell_only(course, candidate)
            return
        is_closed = await self.qualify(course, pending) is not None
        now = context.clock()
        if not board.is_current(course):
            return
        if is_closed:
            # Much may have changed since it was asked, as for a pod that had no node for long.
            board.put(course.at(State.DETECTED, now))
            return
        count, violations = costs(candidate)
        wait = context.ledger.budgets.wait(count, violations, now)
        if wait is None or wait > 0:
            context.notices.planned(candidate.tier, "budget")
            note = f"{count} pods would have to go, and so many were evicted lately: later"
            context.notices.pod(course, told.DELAYED, note, "Warning", once=True)
            # What can never be afforded may cost less once the cluster has changed.
            state = State.NOFIT if wait is None else State.BACKOFF
            board.put(course.at(state, now, retry_at=now + (wait or 0.0)))
            return
        context.ledger.budgets.take(count, violations, now)
        context.ledger.breaker.begin(course.uid, now)
        board.released.pop((candidate.node, course.uid), None)
        board.put(
            course.at(
                State.RESERVE,
                now,
                node=candidate.node,
                tier=candidate.tier,
                victims=candidate.victims,
                attempt=context.ledger.attempts.begun(course.uid) + 1,
                deadline=now + context.settings.pod_scheduled_timeout_seconds,
                tokens=(count, violations),
                recorded_from=_text(context.now()),
                accepted=frozenset(),
                background=frozenset(),
                refused_from=None,
                replans=0,
                retry_at=0.0,
                busy=0,
            )
        )

    async def reserve(self, course: Course) -> str:
        """Keep the node that was planned for; returns why that can't be, and empty if it is so.

        Raises ApiError where nobody can know what is stored: the same is in order once more.
        """
        context = self._context
        written = await self._write(course)
        if not self._board.is_current(course):
            return ""
        if written not in {Written.DONE, Written.NOTHING}:
            if written in _UNSAFE:
                until = context.clock() + UNTRUSTED
                self._board.avoid(course.uid, course.node, until, written.value)
            context.notices.planned(course.tier, "lost")
            return str(written.value)
        context.notices.started(course)
        node = context.caches.cluster.node(course.node)
        if node is not None:
            note = f"kept for the critical pod {course.key}"
            context.notices.node(node.name, node.uid, told.RESERVED, note)
        self._board.put(course.at(State.VERIFY, context.clock()))
        return ""

    async def _write(self, course: Course) -> Written:
        """Write the reservation, if the API still has pod and node as they were planned with."""
        context = self._context
        namespace, _, name = course.key.partition("/")
        try:
            found = decode_pod(await context.client.get(PODS, name, namespace), context.criteria)
        except NotFoundError:
            return Written.DECLINED
        pending = found if isinstance(found, PendingPod) else None
        seen = sight(course.uid, bare(found), pending)
        is_stuck = seen is Sight.NOMINATED and bool(self.nominated(course))
        if pending is None or not (seen is Sight.WAITING or is_stuck):
            return Written.DECLINED
        key = context.settings.taint_key

        def accept(raw: bytes) -> bool:
            node = decode_node(raw)
            return not static_reasons(pending, node, taint_key=key)

        one = self.record(course)
        return await self._reservations.write(
            course.node, lambda held: reserve(held, one, key), accept=accept
        )

    def record(self, course: Course) -> Reservation:
        """What the node says of a course."""
        context = self._context
        left = (course.deadline or 0.0) - context.clock()
        now = context.now()
        return Reservation(
            pod=course.key,
            uid=course.uid,
            since=course.recorded_from or _text(now),
            deadline=_text(now + left),
            attempt=course.attempt,
            tier=course.tier,
            victims=tuple(Doomed(each.uid, each.namespace, each.name) for each in course.victims),
        )

    async def renew(self, course: Course) -> Written:
        """Write what has changed of a course's record. Raises ApiError."""
        key = self._context.settings.taint_key
        one = self.record(course)
        return await self._reservations.write(course.node, lambda held: reserve(held, one, key))

    async def _tell_only(self, course: Course, candidate: Candidate) -> None:
        """A dry run: the evictions are tried, and the plan is told when it is another one."""
        context, now = self._context, self._context.clock()
        against = await self._verifying.try_all(course, candidate.victims)
        if not self._board.is_current(course):
            return
        named = ", ".join(each.key for each in candidate.victims)
        note = f"would be helped on {candidate.node} (tier {candidate.tier}) by evicting {named}"
        if against:
            note = f"{note}; refused: {against}"
        if note != course.dry_note:
            context.notices.pod(course, told.DRY_RUN, note)
            context.notices.planned(candidate.tier, "dry_run")
        self._board.put(course.at(State.NOFIT, now, dry_note=note))

    def _may_keep(self, node: str) -> bool:
        kept = self._board.nodes()
        if node in kept:
            return True
        ready = sum(each.is_ready for each in self._context.caches.cluster.nodes())
        most = min(self._context.settings.max_concurrent_reservations, max(1, int(ready * _SHARE)))
        return len(kept) < most


async def _at_once(_course: Course, _pending: PendingPod) -> float | None:
    """As ``Qualifying.wait`` where nothing is in the way."""
    return None


def costs(candidate: Candidate) -> tuple[int, int]:
    """The evictions and the violations that a plan takes."""
    victims = candidate.victims
    return len(victims), sum(each.violates for each in victims)


def _text(seconds: float) -> str:
    return stamp(datetime.fromtimestamp(seconds, UTC))
