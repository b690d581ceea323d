"""Verifies a plan against the API (6.4), and then evicts its victims one after the other (6.5)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

from harbourmaster.api.resources import PODS
from harbourmaster.controller.rescheduling.caches import bare, observation_of, pods_of
from harbourmaster.controller.rescheduling.flows import REFUSED, UNEVICTABLE
from harbourmaster.kube.errors import ApiError
from harbourmaster.kube.reading import read_all
from harbourmaster.rescheduling import planner
from harbourmaster.rescheduling.answers import (
    EvictionOutcome,
    EvictionState,
    NextStep,
    choose_dry_run_step,
    choose_step,
    in_order,
    pause,
    read_answer,
)
from harbourmaster.rescheduling.decoding import decode_pod
from harbourmaster.rescheduling.flow_model import (
    AllEvicted,
    Checked,
    Evicted,
    Evicting,
    EvictionDelayed,
    EvictionFlow,
    Observation,
    VerificationDelayed,
    Verifying,
    VictimSpared,
)
from harbourmaster.rescheduling.model import Pod
from harbourmaster.rescheduling.victims import VIOLATING, is_required

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from harbourmaster.controller.rescheduling.context import ReschedulingContext
    from harbourmaster.controller.rescheduling.eviction_client import EvictionClient
    from harbourmaster.controller.rescheduling.flows import Flows
    from harbourmaster.kube.reading import Metadata
    from harbourmaster.rescheduling.answers import Reply
    from harbourmaster.rescheduling.model import PendingPod
    from harbourmaster.rescheduling.plans import CandidateNode, Victim

BEHIND: Final = 1.0
"""Seconds for the watch to tell what the API knows."""
_ACCEPTED: Final = frozenset((NextStep.NEXT, NextStep.VERIFY))
_DELETED: Final = frozenset((EvictionOutcome.EVICTED, EvictionOutcome.BACKGROUND))
_ENDED: Final = frozenset((Observation.BOUND, Observation.GONE, Observation.EXCUSED))


class PlanFault(Struct, frozen=True):
    """The reason why a plan cannot be carried out."""

    why: str
    elsewhere: bool = True
    """Whether the fault is the node's, and not that of one pod on it."""


class PlanRefusal(Struct, frozen=True):
    """An answer that ends the plan: the node is of no use, or a pod must stay."""

    flow: EvictionFlow
    why: str
    is_of_node: bool


_Result: TypeAlias = Evicted | EvictionDelayed | VictimSpared | PlanRefusal


class PlanExecutor:
    """Verifies the plans of flows before anything is evicted, and carries out their evictions."""

    def __init__(
        self, context: ReschedulingContext, flows: Flows, evictions: EvictionClient
    ) -> None:
        self._context = context
        self._flows = flows
        self._evictions = evictions
        self._reported: set[str] = set()
        """Victims with an event already; an eviction may take several tries."""

    async def verify(
        self, flow: EvictionFlow, pending: PendingPod
    ) -> Checked | VerificationDelayed | PlanFault:
        """Plan again with the pods that the API has on the node, and try the evictions.

        Raises ApiError if the API server does not answer.
        """
        context, plan = self._context, flow.plan
        unread: list[str] = []
        pods = await self._read_pods(plan.node, unread)
        if unread:
            # What they take there is not known.
            return PlanFault(f"pods on the node cannot be read: {', '.join(unread)}")
        node = context.caches.cluster.node(plan.node)
        if node is None:
            return PlanFault("the node is gone")
        new_plan = planner.plan_on(
            context.caches.cluster,
            node,
            pods,
            await context.with_volumes(pending),
            context.planning,
            context.now(),
            self._flows.circumstances(flow, context.clock(), context.often_evicted()),
        )
        candidate = new_plan.candidate
        if candidate is None:
            reasons = ", ".join(new_plan.reasons) or ", ".join(new_plan.unsupported)
            return PlanFault(f"the pod no longer fits there: {reasons}")
        if candidate.tier > plan.tier:
            return PlanFault(f"making room on the node now takes tier {candidate.tier}")
        fresh = [victim for victim in candidate.victims if victim.uid not in plan.accepted]
        accepted = [victim for victim in plan.victims if victim.uid in plan.accepted]
        most = context.settings.max_victims_per_pod
        if fresh and len(accepted) + len(fresh) > most:
            return PlanFault(f"more than {most} pods would have to move")
        # Before the first eviction, a lower tier than planned applies.
        tier = candidate.tier if fresh and not accepted else plan.tier
        for victim in fresh:
            obstacle = None if victim.is_leaving else await self._try(flow, tier, victim)
            if obstacle is not None:
                return obstacle
        if await self._is_behind(flow, pending):
            return VerificationDelayed(context.clock() + BEHIND)
        return Checked(tier, (*accepted, *fresh), costs(fresh))

    async def try_all(self, candidate: CandidateNode) -> str:
        """Try the evictions of a dry run; return the answers against them, empty for none."""
        refusals = []
        for victim in candidate.victims:
            outcome = read_answer(
                await self._evictions.evict(victim, dry_run=True), in_background=False
            )
            self._context.notices.count_answer(outcome, candidate.tier)
            if outcome is not EvictionOutcome.EVICTED:
                refusals.append(f"{victim.key}: {outcome.value}")
        return ", ".join(refusals)

    async def _is_behind(self, flow: EvictionFlow, pending: PendingPod) -> bool:
        """Whether the API shows an end of the flow that the watch does not show yet."""
        pod = await self._context.read_pod(pending.pod.namespace, pending.pod.name)
        seen = observation_of(flow.uid, pod)
        return seen in _ENDED or (seen is Observation.NOMINATED and not pending.nominated)

    async def _read_pods(self, node: str, unread: list[str]) -> list[Pod]:
        """Return the pods on a node as the API has them; ``unread`` gets those not readable."""
        context = self._context
        decode = partial(decode_pod, criteria=context.criteria)

        def skip(metadata: Metadata, error: Exception) -> None:
            unread.append(f"{metadata.key}: {error}")

        pods = await read_all(context.client, PODS, decode, skip, field_selector=pods_of(node))
        return [pod for pod in pods if isinstance(pod, Pod)]

    async def _try(
        self, flow: EvictionFlow, tier: int, victim: Victim
    ) -> VerificationDelayed | PlanFault | None:
        """Try one eviction; None if it can succeed."""
        reply = await self._evictions.evict(victim, dry_run=True)
        outcome = read_answer(reply, in_background=victim.evicts_in_background)
        state = EvictionState(
            tier,
            may_violate=tier >= VIOLATING and self._context.settings.allow_pdb_violation,
            busy=flow.state_of(Verifying).busy,
        )
        text = reply.message if reply is not None else outcome.value
        why = f"an eviction would be refused: {victim.key}: {text}"
        match choose_dry_run_step(outcome, state):
            case NextStep.NEXT:
                return None
            case NextStep.RETRY | NextStep.VERIFY:
                return VerificationDelayed(self._retry_at(outcome, state, reply), is_busy=True)
            case step:
                return PlanFault(why, elsewhere=not self._leave_alone(victim, step))

    def _retry_at(
        self, outcome: EvictionOutcome, state: EvictionState, reply: Reply | None
    ) -> float:
        """Return when to try again, and note an overloaded API server."""
        now = self._now()
        if outcome is EvictionOutcome.BUSY:
            self._context.history.busy.note("", now)
        asked = reply.retry_after if reply is not None else None
        return now + pause(outcome, state, asked, self._context.chance())

    def _leave_alone(self, victim: Victim, step: NextStep) -> bool:
        """Ask nothing of the pod or of its budget for a while; return whether it is one of them."""
        if step is NextStep.WITHOUT_BUDGET:
            self._flows.refuse(victim, self._now() + REFUSED)
        if step is NextStep.WITHOUT_POD:
            self._flows.spare(victim.uid, self._now() + UNEVICTABLE)
        return step in {NextStep.WITHOUT_BUDGET, NextStep.WITHOUT_POD}

    def forget_but(self, uids: Collection[str]) -> None:
        """Forget the events of all pods except these."""
        self._reported.intersection_update(uids)

    async def evict(
        self, flow: EvictionFlow, may_go_on: Callable[[EvictionFlow], bool]
    ) -> PlanRefusal | None:
        """Evict until a wait is due, or until all victims are accepted.

        ``may_go_on`` is asked before each call, for much may happen while another one is awaited.
        Returns why the plan must be given up, or None. Raises ApiError.
        """
        victims = {victim.uid: victim for victim in flow.victims}
        budgeted = {victim.uid for victim in flow.victims if victim.budget or victim.violates}
        for uid in in_order(budgeted, list(victims)):
            if uid in flow.accepted_uids:
                continue
            if not may_go_on(flow):
                return None
            result = await self._evict_victim(flow, victims[uid])
            if isinstance(result, PlanRefusal):
                return result
            why = result.why if isinstance(result, VictimSpared) else ""
            flow = self._flows.apply(flow, result, self._now(), why)
            if not isinstance(flow.state, Evicting) or flow.state.retry_at > self._now():
                return None
        self._flows.apply(flow, AllEvicted(), self._now())
        return None

    async def _evict_victim(self, flow: EvictionFlow, victim: Victim) -> _Result:
        pod = self._context.caches.pod(victim.key)
        if pod is None or pod.uid != victim.uid or pod.is_finished:
            if await self._is_over(victim):
                return Evicted(victim)
        elif pod.deletion is not None:
            left = pod.deletion - self._context.now()
            if not victim.is_leaving or left <= victim.new_grace:
                return Evicted(victim)
            return await self._shorten(flow, victim)
        elif is_required(pod, self._context.planning, self._context.now()):
            return VictimSpared(f"{victim.key} must no longer be evicted")
        if victim.uid not in self._reported:
            # The object may vanish with its eviction, and an event about it must not be late.
            self._reported.add(victim.uid)
            self._context.notices.report_victim(flow, victim)
        reply = await self._evictions.evict(victim)
        outcome = read_answer(reply, in_background=victim.evicts_in_background)
        self._context.notices.count_answer(outcome, flow.plan.tier)
        step = choose_step(outcome, self._eviction_state(flow, victim))
        if step is NextStep.DELETE:
            return await self._violate(flow, victim)
        if step not in _ACCEPTED and step is not NextStep.BACKGROUND:
            return self._refuse(flow, victim, step, outcome, reply)
        if outcome in _DELETED:
            self._report_departure(victim, violating=False)
        return Evicted(
            victim,
            in_background=outcome is EvictionOutcome.BACKGROUND,
            is_replaced=step is NextStep.VERIFY,
        )

    async def _is_over(self, victim: Victim) -> bool:
        """Whether a pod that the watch does not show is gone, or has nothing of its node any more.

        Where the watch is only behind it is neither. Raises ApiError.
        """
        pod = await self._context.read_pod(victim.namespace, victim.name)
        return pod is None or bare(pod).uid != victim.uid or bare(pod).is_finished

    async def _shorten(self, flow: EvictionFlow, victim: Victim) -> _Result:
        """Have a terminating pod go sooner, never by an eviction (0, finding 3)."""
        reply = await self._evictions.delete(victim)
        outcome = read_answer(reply)
        step = choose_step(outcome, self._eviction_state(flow, victim))
        if step not in _ACCEPTED:
            return self._refuse(flow, victim, step, outcome, reply)
        if outcome is EvictionOutcome.EVICTED:
            self._context.notices.count_departure(victim, violating=False)
        return Evicted(victim)

    async def _violate(self, flow: EvictionFlow, victim: Victim) -> _Result:
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
        outcome = read_answer(reply)
        busy = flow.state_of(Evicting).busy
        step = choose_step(outcome, EvictionState(flow.plan.tier, busy=busy))
        if step in _ACCEPTED:
            if outcome is EvictionOutcome.EVICTED:
                self._report_departure(victim, violating=True)
            return Evicted(victim)
        self._context.history.budgets.give_back(0, 0 if victim.violates else 1, self._now())
        return self._refuse(flow, victim, step, outcome, reply)

    def _refuse(
        self,
        flow: EvictionFlow,
        victim: Victim,
        step: NextStep,
        outcome: EvictionOutcome,
        reply: Reply | None,
    ) -> EvictionDelayed | VictimSpared | PlanRefusal:
        """Try again later, or give up this node, this pod or this budget."""
        if step is NextStep.RETRY:
            until = self._retry_at(outcome, self._eviction_state(flow, victim), reply)
            return EvictionDelayed(until, is_busy=outcome is EvictionOutcome.BUSY)
        self._leave_alone(victim, step)
        text = reply.message if reply is not None else outcome.value
        why = f"the eviction of {victim.key} is refused: {text}"
        if flow.accepted_uids and step is not NextStep.WITHOUT_NODE:
            # Others of this node may do instead, so that the evictions so far are of use.
            return VictimSpared(why)
        return PlanRefusal(flow, why, is_of_node=step is NextStep.WITHOUT_NODE)

    def _report_departure(self, victim: Victim, *, violating: bool) -> None:
        self._context.notices.count_departure(victim, violating=violating)
        if victim.owner:
            self._context.history.of_owners.note(victim.owner, self._now())

    def _eviction_state(self, flow: EvictionFlow, victim: Victim) -> EvictionState:
        context, now, state = self._context, self._now(), flow.state_of(Evicting)
        # What was not planned to violate its budget must be affordable, too.
        is_affordable = victim.violates or context.history.budgets.wait(0, 1, now) == 0
        is_last_resort = flow.plan.tier >= VIOLATING and context.settings.allow_pdb_violation
        return EvictionState(
            flow.plan.tier,
            may_violate=is_last_resort and is_affordable,
            refused=0.0 if state.refused_since is None else now - state.refused_since,
            busy=state.busy,
            timeout=context.settings.evict_timeout_seconds,
        )

    def _now(self) -> float:
        return self._context.clock()


def costs(victims: Sequence[Victim]) -> tuple[int, int]:
    """Return the evictions and the violated budgets that these victims take."""
    return len(victims), sum(victim.violates for victim in victims)
