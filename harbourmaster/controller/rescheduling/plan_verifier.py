"""Before anything is evicted: the node's pods as the API has them, and evictions tried (6.4)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from harbourmaster.api.resources import PODS
from harbourmaster.controller.rescheduling.caches import observation_of, pods_of, read_all
from harbourmaster.controller.rescheduling.flows import REFUSED, UNEVICTABLE
from harbourmaster.rescheduling import planner
from harbourmaster.rescheduling.answers import (
    EvictionOutcome,
    EvictionState,
    NextStep,
    follow_dry_run,
    pause,
    read,
)
from harbourmaster.rescheduling.decoding import decode_pod
from harbourmaster.rescheduling.flow_events import Checked, VerificationDelayed
from harbourmaster.rescheduling.flow_inputs import Observation
from harbourmaster.rescheduling.flow_states import Verifying
from harbourmaster.rescheduling.model import Pod
from harbourmaster.rescheduling.victims import VIOLATING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harbourmaster.controller.rescheduling.context import ReschedulingContext
    from harbourmaster.controller.rescheduling.eviction_client import EvictionClient
    from harbourmaster.controller.rescheduling.flows import Flows
    from harbourmaster.kube.reading import Metadata
    from harbourmaster.rescheduling.flow_states import EvictionFlow
    from harbourmaster.rescheduling.model import PendingPod
    from harbourmaster.rescheduling.plans import CandidateNode, Victim

BEHIND: Final = 1.0
"""Seconds for the watch to tell what the API knows."""
_ENDED: Final = frozenset((Observation.BOUND, Observation.GONE, Observation.EXCUSED))


class PlanFault(Struct, frozen=True):
    """The reason why a plan cannot be carried out."""

    why: str
    elsewhere: bool = True
    """Whether the fault is the node's, and not that of one pod on it."""


class PlanVerifier:
    """Verifies the plan of a flow before anything is evicted."""

    def __init__(
        self, context: ReschedulingContext, flows: Flows, evictions: EvictionClient
    ) -> None:
        self._context = context
        self._flows = flows
        self._evictions = evictions

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
            outcome = read(await self._evictions.evict(victim, dry_run=True), in_background=False)
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
        context, now = self._context, self._context.clock()
        reply = await self._evictions.evict(victim, dry_run=True)
        outcome = read(reply, in_background=victim.evicts_in_background)
        state = EvictionState(
            tier,
            may_violate=tier >= VIOLATING and context.settings.allow_pdb_violation,
            busy=flow.state_of(Verifying).busy,
        )
        text = reply.message if reply is not None else outcome.value
        why = f"an eviction would be refused: {victim.key}: {text}"
        match follow_dry_run(outcome, state):
            case NextStep.NEXT:
                return None
            case NextStep.RETRY | NextStep.VERIFY:
                asked = reply.retry_after if reply is not None else None
                wait = pause(outcome, state, asked, context.chance())
                if outcome is EvictionOutcome.BUSY:
                    context.history.busy.note("", now)
                return VerificationDelayed(now + wait, is_busy=True)
            case NextStep.WITHOUT_BUDGET:
                self._flows.refuse(victim, now + REFUSED)
            case NextStep.WITHOUT_POD:
                self._flows.spare(victim.uid, now + UNEVICTABLE)
            case _:
                return PlanFault(why)
        return PlanFault(why, elsewhere=False)


def costs(victims: Sequence[Victim]) -> tuple[int, int]:
    """Return the evictions and the violated budgets that these victims take."""
    return len(victims), sum(victim.violates for victim in victims)
