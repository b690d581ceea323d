"""Before anything is evicted: the node's pods as the API has them, and evictions tried (6.4)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

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
from harbourmaster.rescheduling.flow import EvictionFlow, FlowState, Observation
from harbourmaster.rescheduling.model import Pod
from harbourmaster.rescheduling.plans import CandidateNode
from harbourmaster.rescheduling.victims import VIOLATING
from harbourmaster.rescheduling.wire import decode_pod

if TYPE_CHECKING:
    from harbourmaster.controller.rescheduling.context import ReschedulingContext
    from harbourmaster.controller.rescheduling.evictions import Evictions
    from harbourmaster.controller.rescheduling.flows import Flows
    from harbourmaster.kube.reading import Metadata
    from harbourmaster.rescheduling.answers import Reply
    from harbourmaster.rescheduling.model import PendingPod
    from harbourmaster.rescheduling.plans import Victim

BEHIND: Final = 1.0
"""Seconds for the watch to tell what the API knows."""
_ENDED: Final = frozenset((Observation.BOUND, Observation.GONE, Observation.EXCUSED))


class CheckResult(Struct, frozen=True):
    """The result of a check: the flow after it, or why the node cannot be used."""

    flow: EvictionFlow
    candidate: CandidateNode | None = None
    fault: str = ""
    elsewhere: bool = True
    """Whether the fault is the node's, and not that of one pod on it."""


class Verifying:
    """Checks one node again."""

    def __init__(self, context: ReschedulingContext, flows: Flows, evictions: Evictions) -> None:
        self._context = context
        self._flows = flows
        self._evictions = evictions

    async def check(self, flow: EvictionFlow, pending: PendingPod) -> CheckResult:
        """Plan once more with the pods that the API has on the node, and try the evictions.

        Raises ApiError where the API server gives no answer.
        """
        context = self._context
        unread: list[str] = []
        pods = await self.pods_on(flow.node, unread)
        if unread:
            # What they take there is not known.
            return CheckResult(flow, fault=f"pods on the node cannot be read: {', '.join(unread)}")
        node = context.caches.cluster.node(flow.node)
        if node is None:
            return CheckResult(flow, fault="the node is gone")
        plan = planner.plan_on(
            context.caches.cluster,
            node,
            pods,
            await context.with_volumes(pending),
            context.planning,
            context.now(),
            self._flows.circumstances(flow, context.clock(), context.often_evicted()),
        )
        candidate = plan.candidate
        if candidate is None:
            reasons = ", ".join(plan.reasons) or ", ".join(plan.unsupported)
            return CheckResult(flow, fault=f"the pod no longer fits there: {reasons}")
        if candidate.tier > flow.tier:
            fault = f"making room on the node now takes tier {candidate.tier}"
            return CheckResult(flow, fault=fault)
        fresh = [each for each in candidate.victims if each.uid not in flow.accepted]
        known = [each for each in flow.victims if each.uid in flow.accepted]
        most = context.settings.max_victims_per_pod
        if fresh and len(known) + len(fresh) > most:
            return CheckResult(flow, fault=f"more than {most} pods would have to move")
        # Where nobody went yet, less harm than planned binds, too.
        tier = candidate.tier if fresh and not known else flow.tier
        checked = replace(flow, tier=tier, victims=(*known, *fresh))
        for victim in fresh:
            if victim.is_leaving:
                continue
            found = await self._try(checked, victim)
            if found is not None:
                return found
        if await self._is_behind(flow, pending):
            return CheckResult(replace(flow, retry_at=context.clock() + BEHIND))
        return CheckResult(checked, candidate)

    async def try_all(self, flow: EvictionFlow, victims: tuple[Victim, ...]) -> str:
        """Try evictions for a dry run; returns what speaks against them."""
        found = [await self._evictions.evict(each, dry_run=True) for each in victims]
        outcomes = [read(each, in_background=False) for each in found]
        for outcome in outcomes:
            self._context.notices.answered(outcome, flow.tier)
        return ", ".join(
            f"{victim.key}: {outcome.value}"
            for victim, outcome in zip(victims, outcomes, strict=True)
            if outcome is not EvictionOutcome.EVICTED
        )

    async def _is_behind(self, flow: EvictionFlow, pending: PendingPod) -> bool:
        """Whether the API shows an end of the flow that the watch does not show yet."""
        pod = await self._context.read_pod(pending.pod.namespace, pending.pod.name)
        seen = observation_of(flow.uid, pod)
        return seen in _ENDED or (seen is Observation.NOMINATED and not pending.nominated)

    async def pods_on(self, node: str, unread: list[str]) -> list[Pod]:
        """The pods on a node as the API has them now; ``unread`` gets what cannot be read."""
        context = self._context
        decode = partial(decode_pod, criteria=context.criteria)

        def skip(metadata: Metadata, error: Exception) -> None:
            unread.append(f"{metadata.key}: {error}")

        found = await read_all(context.client, PODS, decode, skip, field_selector=pods_of(node))
        return [each for each in found if isinstance(each, Pod)]

    async def _try(self, flow: EvictionFlow, victim: Victim) -> CheckResult | None:
        """Why the flow can't go on with this victim, or when it can; None if it can now."""
        context, now = self._context, self._context.clock()
        reply: Reply | None = await self._evictions.evict(victim, dry_run=True)
        outcome = read(reply, in_background=victim.evicts_in_background)
        state = EvictionState(
            flow.tier,
            may_violate=flow.tier >= VIOLATING and context.settings.allow_pdb_violation,
            busy=flow.busy,
        )
        why = f"{victim.key}: {reply.message if reply is not None else outcome.value}"
        match follow_dry_run(outcome, state):
            case NextStep.NEXT:
                return None
            case NextStep.RETRY | NextStep.VERIFY:
                asked = reply.retry_after if reply is not None else None
                wait = pause(outcome, state, asked, context.chance())
                if outcome is EvictionOutcome.BUSY:
                    context.history.busy.note("", now)
                later = replace(flow, retry_at=now + wait, busy=flow.busy + 1)
                return CheckResult(later.at(FlowState.VERIFY, flow.since))
            case NextStep.WITHOUT_BUDGET:
                self._flows.refuse(victim, now + REFUSED)
            case NextStep.WITHOUT_POD:
                self._flows.spare(victim.uid, now + UNEVICTABLE)
            case _:
                return CheckResult(flow, fault=f"an eviction would be refused: {why}")
        return CheckResult(flow, fault=f"an eviction would be refused: {why}", elsewhere=False)
