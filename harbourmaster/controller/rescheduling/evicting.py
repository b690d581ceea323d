"""Evicts the victims of one flow, one after the other, as far as the answers let it (6.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from harbourmaster.controller.rescheduling.caches import bare
from harbourmaster.controller.rescheduling.flows import REFUSED, UNEVICTABLE
from harbourmaster.kube.errors import ApiError
from harbourmaster.rescheduling.answers import (
    EvictionOutcome,
    EvictionState,
    NextStep,
    follow,
    in_order,
    pause,
    read,
)
from harbourmaster.rescheduling.classes import is_required
from harbourmaster.rescheduling.flow import Action, EvictionFlow, FlowState
from harbourmaster.rescheduling.victims import VIOLATING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from harbourmaster.controller.rescheduling.context import ReschedulingContext
    from harbourmaster.controller.rescheduling.evictions import Evictions
    from harbourmaster.controller.rescheduling.flows import Flows
    from harbourmaster.rescheduling.answers import Reply
    from harbourmaster.rescheduling.plans import Victim

_DELETED: Final = frozenset((EvictionOutcome.EVICTED, EvictionOutcome.BACKGROUND))


class EvictionResult(Struct, frozen=True):
    """The flow after evictions, and what to do next if they did not succeed, and why."""

    flow: EvictionFlow
    action: Action = Action.WAIT
    why: str = ""


class Evicting:
    """Carries out the evictions of flows."""

    def __init__(self, context: ReschedulingContext, flows: Flows, evictions: Evictions) -> None:
        self._context = context
        self._flows = flows
        self._evictions = evictions
        self._reported: set[str] = set()
        """Victims with an event already; an eviction may take several tries."""

    def forget_but(self, uids: Collection[str]) -> None:
        """Forget the events of any other pod."""
        self._reported.intersection_update(uids)

    async def evict(
        self, flow: EvictionFlow, may_go_on: Callable[[EvictionFlow], bool]
    ) -> EvictionResult:
        """Evict until a wait is due, or until all is done.

        ``may_go_on`` is asked before each call, for much may happen while another one is awaited.
        """
        victims = {victim.uid: victim for victim in flow.victims}
        budgeted = {each.uid for each in flow.victims if each.budget or each.violates}
        for uid in in_order(budgeted, list(victims)):
            if uid in flow.accepted:
                continue
            if not may_go_on(flow):
                return EvictionResult(flow)
            ended = await self._one(flow, victims[uid])
            flow = self._flows.put(ended.flow)
            if ended.action is not Action.WAIT or flow.retry_at > self._context.clock():
                return ended
            if flow.state is not FlowState.EVICT:
                return ended
        return EvictionResult(flow.at(FlowState.DRAIN, self._context.clock()))

    async def _one(self, flow: EvictionFlow, victim: Victim) -> EvictionResult:
        found = self._context.caches.pod(victim.key)
        if found is None or found.uid != victim.uid or found.is_finished:
            if await self._is_over(victim):
                return EvictionResult(_accepted(flow, victim))
        elif found.deletion is not None:
            left = found.deletion - self._context.now()
            if not victim.is_leaving or left <= victim.new_grace:
                return EvictionResult(_accepted(flow, victim))
            return await self._shorten(flow, victim)
        elif is_required(found, self._context.planning):
            return EvictionResult(
                self._verified_again(flow), why=f"{victim.key} must no longer be evicted"
            )
        if victim.uid not in self._reported:
            # The object may vanish with its eviction, and an event about it must not be late.
            self._reported.add(victim.uid)
            self._context.notices.victim(flow, victim)
        reply = await self._evictions.evict(victim)
        outcome = read(reply, in_background=victim.evicts_in_background)
        return await self._after(flow, victim, outcome, reply)

    async def _is_over(self, victim: Victim) -> bool:
        """Whether a pod that the watch does not show is gone, or has nothing of its node any more.

        Where the watch is only behind it is neither. Raises ApiError.
        """
        pod = await self._context.read_pod(victim.namespace, victim.name)
        return pod is None or bare(pod).uid != victim.uid or bare(pod).is_finished

    async def _shorten(self, flow: EvictionFlow, victim: Victim) -> EvictionResult:
        """Have a pod that already terminates go sooner, never by an eviction (0, finding 3)."""
        reply = await self._evictions.delete(victim)
        outcome = read(reply)
        step = follow(outcome, self._state_of(flow, victim))
        if step in {NextStep.NEXT, NextStep.VERIFY}:
            if outcome is EvictionOutcome.EVICTED:
                self._context.notices.went(victim, violating=False)
            return EvictionResult(_accepted(flow, victim))
        return self._later_or_without(flow, victim, step, outcome, reply)

    async def _after(
        self, flow: EvictionFlow, victim: Victim, outcome: EvictionOutcome, reply: Reply | None
    ) -> EvictionResult:
        self._context.notices.answered(outcome, flow.tier)
        step = follow(outcome, self._state_of(flow, victim))
        match step:
            case NextStep.NEXT | NextStep.BACKGROUND:
                return EvictionResult(self._gone(flow, victim, outcome))
            case NextStep.VERIFY:
                return EvictionResult(
                    _accepted(flow, victim).at(FlowState.VERIFY, self._context.clock())
                )
            case NextStep.DELETE:
                return await self._violate(flow, victim)
        return self._later_or_without(flow, victim, step, outcome, reply)

    async def _violate(self, flow: EvictionFlow, victim: Victim) -> EvictionResult:
        """Delete a pod past its disruption budget, saying so on it before."""
        note = f"deleted to make room for the critical pod {flow.key}"
        if not victim.violates:
            budgets = self._context.history.budgets
            budgets.take(0, 1, self._now())
            try:
                await self._context.save_budgets()
            except ApiError:
                # It is tried again, and taken again.
                budgets.give_back(0, 1, self._now())
                raise
        reply = await self._evictions.mark(victim, note)
        if reply is None:
            reply = await self._evictions.delete(victim)
        outcome = read(reply)
        step = follow(outcome, EvictionState(flow.tier, busy=flow.busy))
        if step in {NextStep.NEXT, NextStep.VERIFY}:
            if outcome is EvictionOutcome.EVICTED:
                self._context.notices.went(victim, violating=True)
                self._note_owner(victim)
            return EvictionResult(_accepted(flow, victim))
        self._context.history.budgets.give_back(0, 0 if victim.violates else 1, self._now())
        return self._later_or_without(flow, victim, step, outcome, reply)

    def _later_or_without(
        self,
        flow: EvictionFlow,
        victim: Victim,
        step: NextStep,
        outcome: EvictionOutcome,
        reply: Reply | None,
    ) -> EvictionResult:
        """Try again later, or give up this node, this pod or this budget."""
        now = self._now()
        text = reply.message if reply is not None else outcome.value
        why = f"the eviction of {victim.key} is refused: {text}"
        if step is NextStep.RETRY:
            is_busy = outcome is EvictionOutcome.BUSY
            if is_busy:
                self._context.history.busy.note("", now)
            asked = reply.retry_after if reply is not None else None
            wait = pause(outcome, self._state_of(flow, victim), asked, self._context.chance())
            refused_from = flow.refused_from if is_busy else (flow.refused_from or now)
            return EvictionResult(
                replace(
                    flow,
                    retry_at=now + wait,
                    refused_from=refused_from,
                    busy=flow.busy + 1 if is_busy else flow.busy,
                )
            )
        if step is NextStep.WITHOUT_BUDGET:
            self._flows.refuse(victim, now + REFUSED)
        if step is NextStep.WITHOUT_POD:
            self._flows.spare(victim.uid, now + UNEVICTABLE)
        if flow.accepted and step is not NextStep.WITHOUT_NODE:
            # Others of this node may do instead, so that the evictions so far are of use.
            return EvictionResult(self._verified_again(flow), why=why)
        action = Action.MOVE if step is NextStep.WITHOUT_NODE else Action.REPLAN
        return EvictionResult(flow, action, why)

    def _verified_again(self, flow: EvictionFlow) -> EvictionFlow:
        return flow.at(FlowState.VERIFY, self._now(), refused_from=None, busy=0, retry_at=0.0)

    def _gone(self, flow: EvictionFlow, victim: Victim, outcome: EvictionOutcome) -> EvictionFlow:
        if outcome in _DELETED:
            self._context.notices.went(victim, violating=False)
            self._note_owner(victim)
        found = _accepted(flow, victim)
        if outcome is EvictionOutcome.BACKGROUND:
            return replace(found, background=found.background | {victim.uid})
        return found

    def _note_owner(self, victim: Victim) -> None:
        if victim.owner:
            self._context.history.of_owners.note(victim.owner, self._now())

    def _state_of(self, flow: EvictionFlow, victim: Victim) -> EvictionState:
        now = self._now()
        context = self._context
        # What was not planned to violate its budget must be affordable, too.
        is_affordable = victim.violates or context.history.budgets.wait(0, 1, now) == 0
        is_last_resort = flow.tier >= VIOLATING and context.settings.allow_pdb_violation
        return EvictionState(
            flow.tier,
            may_violate=is_last_resort and is_affordable,
            refused=0.0 if flow.refused_from is None else now - flow.refused_from,
            busy=flow.busy,
            timeout=context.settings.evict_timeout_seconds,
        )

    def _now(self) -> float:
        return self._context.clock()


def _accepted(flow: EvictionFlow, victim: Victim) -> EvictionFlow:
    """The same with one victim less to evict."""
    evictions, violations = flow.tokens
    return replace(
        flow,
        tokens=(max(evictions - 1, 0), max(violations - victim.violates, 0)),
        accepted=flow.accepted | {victim.uid},
        refused_from=None,
        busy=0,
        retry_at=0.0,
    )
