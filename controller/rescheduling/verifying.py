"""Before anything is evicted: the node's pods as the API has them, and evictions tried (6.4)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from harbourmaster.api.resources import PODS
from harbourmaster.controller.rescheduling.board import REFUSED, UNEVICTABLE
from harbourmaster.controller.rescheduling.caches import UNFINISHED, bare
from harbourmaster.kube.errors import NotFoundError
from harbourmaster.kube.reading import readable
from harbourmaster.rescheduling import planner
from harbourmaster.rescheduling.answers import Outcome, Stand, Way, follow_dry_run, pause, read
from harbourmaster.rescheduling.course import Course, Sight, State, sight
from harbourmaster.rescheduling.model import PendingPod, Pod
from harbourmaster.rescheduling.plans import Candidate
from harbourmaster.rescheduling.victims import VIOLATING
from harbourmaster.rescheduling.wire import decode_pod

if TYPE_CHECKING:
    from harbourmaster.controller.rescheduling.board import Board
    from harbourmaster.controller.rescheduling.context import Context
    from harbourmaster.controller.rescheduling.evictions import Evictions
    from harbourmaster.kube.reading import Metadata
    from harbourmaster.rescheduling.answers import Reply
    from harbourmaster.rescheduling.plans import Victim

BEHIND: Final = 1.0
"""Seconds for the watch to tell what the API knows."""
_ENDED: Final = frozenset((Sight.BOUND, Sight.GONE, Sight.EXCUSED))


class Checked(Struct, frozen=True):
    """What came of a look: the course from here on, or why the node can't be had."""

    course: Course
    candidate: Candidate | None = None
    fault: str = ""
    elsewhere: bool = True
    """Whether the fault is the node's, and not that of one pod on it."""


class Verifying:
    """Looks again at one node."""

    def __init__(self, context: Context, board: Board, evictions: Evictions) -> None:
        self._context = context
        self._board = board
        self._evictions = evictions

    async def check(self, course: Course, pending: PendingPod) -> Checked:
        """Plan once more with the pods that the API has on the node, and try the evictions.

        Raises ApiError where the API server gives no answer.
        """
        context = self._context
        unread: list[str] = []
        pods = await self.pods_on(course.node, unread)
        if unread:
            # What they take there is not known.
            return Checked(course, fault=f"pods on the node cannot be read: {', '.join(unread)}")
        node = context.caches.cluster.node(course.node)
        if node is None:
            return Checked(course, fault="the node is gone")
        plan = planner.plan_on(
            context.caches.cluster,
            node,
            pods,
            pending,
            context.planning,
            context.now(),
            **self._board.circumstances(course, context.clock(), context.often_evicted()),
        )
        candidate = plan.candidate
        if candidate is None:
            reasons = ", ".join(plan.reasons) or ", ".join(plan.unsupported)
            return Checked(course, fault=f"the pod does not fit there any more: {reasons}")
        if candidate.tier > course.tier:
            fault = f"making room on the node would take tier {candidate.tier} by now"
            return Checked(course, fault=fault)
        fresh = [each for each in candidate.victims if each.uid not in course.accepted]
        known = [each for each in course.victims if each.uid in course.accepted]
        most = context.settings.max_victims_per_pod
        if fresh and len(known) + len(fresh) > most:
            return Checked(course, fault=f"more than {most} pods would have to move")
        # Where nobody went yet, less harm than planned binds, too.
        tier = candidate.tier if fresh and not known else course.tier
        checked = replace(course, tier=tier, victims=(*known, *fresh))
        for victim in fresh:
            if victim.is_leaving:
                continue
            found = await self._try(checked, victim)
            if found is not None:
                return found
        if await self._is_behind(course, pending):
            return Checked(replace(course, retry_at=context.clock() + BEHIND))
        return Checked(checked, candidate)

    async def try_all(self, course: Course, victims: tuple[Victim, ...]) -> str:
        """Try evictions for a dry run; returns what speaks against them."""
        found = [await self._evictions.evict(each, dry_run=True) for each in victims]
        outcomes = [read(each, in_background=False) for each in found]
        for outcome in outcomes:
            self._context.notices.answered(outcome, course.tier)
        return ", ".join(
            f"{victim.key}: {outcome.value}"
            for victim, outcome in zip(victims, outcomes, strict=True)
            if outcome is not Outcome.EVICTED
        )

    async def _is_behind(self, course: Course, pending: PendingPod) -> bool:
        """Whether the API knows of an end of the course that the watch has not told yet."""
        context, pod = self._context, pending.pod
        try:
            raw = await context.client.get(PODS, pod.name, pod.namespace)
        except NotFoundError:
            return True
        found = decode_pod(raw, context.criteria)
        waiting = found if isinstance(found, PendingPod) else None
        seen = sight(course.uid, bare(found), waiting)
        return seen in _ENDED or (seen is Sight.NOMINATED and not pending.nominated)

    async def pods_on(self, node: str, unread: list[str]) -> list[Pod]:
        """The pods on a node as the API has them now; ``unread`` gets what cannot be read."""
        context = self._context
        decode = partial(decode_pod, criteria=context.criteria)

        def skip(metadata: Metadata, error: Exception) -> None:
            unread.append(f"{metadata.key}: {error}")

        found: list[Pod] = []
        token = ""
        while True:
            page = await context.client.list(
                PODS,
                field_selector=f"spec.nodeName={node},{UNFINISHED}",
                continue_token=token,
            )
            read_now = readable(page.items, decode, skip)
            found += [each for each in read_now if isinstance(each, Pod)]
            token = page.continue_token
            if not token:
                return found

    async def _try(self, course: Course, victim: Victim) -> Checked | None:
        """Why the course can't go on with this victim, or when it can; None if it can now."""
        context, now = self._context, self._context.clock()
        reply: Reply | None = await self._evictions.evict(victim, dry_run=True)
        outcome = read(reply, in_background=victim.evicts_in_background)
        stand = Stand(
            course.tier,
            may_violate=course.tier >= VIOLATING and context.settings.allow_pdb_violation,
            busy=course.busy,
        )
        why = f"{victim.key}: {reply.message if reply is not None else outcome.value}"
        match follow_dry_run(outcome, stand):
            case Way.NEXT:
                return None
            case Way.RETRY | Way.VERIFY:
                asked = reply.retry_after if reply is not None else None
                wait = pause(outcome, stand, asked, context.chance())
                if outcome is Outcome.BUSY:
                    context.ledger.busy.note("", now)
                later = replace(course, retry_at=now + wait, busy=course.busy + 1)
                return Checked(later.at(State.VERIFY, course.since))
            case Way.WITHOUT_BUDGET:
                self._board.refuse(victim, now + REFUSED)
            case Way.WITHOUT_POD:
                self._board.spare(victim.uid, now + UNEVICTABLE)
            case _:
                return Checked(course, fault=f"an eviction would be refused: {why}")
        return Checked(course, fault=f"an eviction would be refused: {why}", elsewhere=False)
