"""Plans for one pod after the other, and keeps the node that a plan chooses (6.4, 5.6)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from harbourmaster.api.times import format_rfc3339
from harbourmaster.controller.rescheduling import notices as reasons
from harbourmaster.controller.rescheduling.caches import observation_of
from harbourmaster.controller.rescheduling.flows import UNTRUSTED
from harbourmaster.controller.rescheduling.node_writer import WriteResult
from harbourmaster.controller.rescheduling.plan_execution import costs
from harbourmaster.kube.errors import ApiError
from harbourmaster.rescheduling import planner
from harbourmaster.rescheduling.decoding import decode_node
from harbourmaster.rescheduling.fit import static_reasons
from harbourmaster.rescheduling.flow_model import (
    ActivePlan,
    Disqualified,
    Fits,
    NotPlanned,
    Observation,
    Planned,
    Reserved,
    Unaffordable,
)
from harbourmaster.rescheduling.model import PendingPod
from harbourmaster.rescheduling.reservation import RecordedVictim, Reservation, reserve

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from harbourmaster.controller.rescheduling.context import ReschedulingContext
    from harbourmaster.controller.rescheduling.flows import FlowObserver, Flows
    from harbourmaster.controller.rescheduling.node_writer import NodeWriter
    from harbourmaster.controller.rescheduling.plan_execution import PlanExecutor
    from harbourmaster.controller.rescheduling.qualification import Qualification
    from harbourmaster.rescheduling.flow_model import EvictionFlow
    from harbourmaster.rescheduling.plans import CandidateNode, Plan

OUTDATED: Final = 60.0
"""Seconds after which time alone may have changed a plan: pods went on leaving."""
_SHARE: Final = 0.05
"""The part of the ready nodes that may be kept at the same time."""
_UNSAFE: Final = frozenset((WriteResult.REFUSED, WriteResult.BUSY))


class FlowPlanner:
    """Chooses nodes, one plan at a time; ``wake`` queues a pod."""

    def __init__(  # noqa: PLR0913, PLR0917 - the parts of a term that it works with
        self,
        context: ReschedulingContext,
        flows: Flows,
        node_writer: NodeWriter,
        executor: PlanExecutor,
        observer: FlowObserver,
        qualification: Qualification,
        wake: Callable[[str], None],
    ) -> None:
        self._context = context
        self._flows = flows
        self._node_writer = node_writer
        self._executor = executor
        self._observer = observer
        self._qualification = qualification
        self._wake = wake
        self._planned_at: dict[str, tuple[object, float]] = {}
        """The stamp of the cluster and the time of each pod's last plan, by uid."""

    async def plan_all(self) -> None:
        """Plan for the pods that wait for it. Raises ApiError.

        Where no more nodes may be kept, a few may share one; the others wait for their turn.
        """
        left = self._context.settings.max_concurrent_reservations
        failed: Exception | None = None
        for flow in self._flows.planning():
            if left and self._flows.is_current(flow):
                try:
                    await self._plan(flow)
                except ApiError:
                    raise
                except Exception as error:  # noqa: BLE001 - whatever it is, the others go on
                    failed = failed or error
                    continue
                left -= self._flows.is_current(flow)
        if failed is not None:
            raise failed

    async def _plan(self, flow: EvictionFlow) -> None:
        context = self._context
        pending = context.caches.pending(flow.key)
        if pending is None or pending.pod.uid != flow.uid:
            return
        known = (context.caches.stamp, context.clock())
        plan = await self._make_plan(flow, pending)
        if not self._flows.is_current(flow):
            return
        self._planned_at[flow.uid] = known
        now, candidate = context.clock(), plan.candidate
        if plan.unsupported:
            context.notices.count_plan(None, "unsupported")
            note = f"unsupported constraints, so no plan is made: {', '.join(plan.unsupported)}"
            context.notices.report_on_pod(flow, reasons.UNSUPPORTED, note, "Warning", once=True)
            self._flows.apply(flow, NotPlanned(), now)
        elif candidate is None:
            context.notices.count_plan(None, "no_fit")
            context.notices.report_no_node(flow, plan)
            self._flows.apply(flow, NotPlanned(), now)
        elif not candidate.victims:
            context.notices.count_plan(candidate.tier, "fits")
            runners_up = [fit.node for fit in plan.runners_up if not fit.victims]
            self._flows.apply(flow, Fits((candidate.node, *runners_up)), now)
        else:
            await self._begin(flow, pending, candidate)
        if not self._flows.is_current(flow):
            self._wake(flow.key)

    def is_old(self, flow: EvictionFlow) -> bool:
        """Whether a plan that led to nothing may come to something now."""
        known = self._planned_at.get(flow.uid)
        if known is None:
            return True
        stamp_then, then = known
        now = self._context.clock()
        return stamp_then != self._context.caches.stamp or now - then >= OUTDATED

    def forget_but(self, uids: Collection[str]) -> None:
        """Forget what was planned for any other pod."""
        self._planned_at = {uid: at for uid, at in self._planned_at.items() if uid in uids}

    async def _make_plan(self, flow: EvictionFlow, pending: PendingPod) -> Plan:
        """The plan; others get their turn between its slices."""
        context = self._context
        pending = await context.with_volumes(pending)
        begun = context.clock()
        slices = planner.plan_in_slices(
            context.caches.cluster,
            pending,
            context.planning,
            context.now(),
            self._flows.circumstances(
                flow, begun, context.often_evicted(), self._observer.stuck_on(flow)
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
        context.notices.observe_planning(context.clock() - begun, plan.evaluated)
        return plan

    async def _begin(
        self, flow: EvictionFlow, pending: PendingPod, candidate: CandidateNode
    ) -> None:
        """Keep the node, if all that the plan takes may be done. Raises ApiError."""
        context, flows = self._context, self._flows
        if not self._may_keep(candidate.node):
            context.notices.count_plan(candidate.tier, "limit")
            return
        if context.settings.dry_run:
            await self._report_dry_run(flow, candidate)
            return
        is_closed = await self._qualification.wait(flow, pending) is not None
        now = context.clock()
        if not flows.is_current(flow):
            return
        if is_closed:
            # Much may have changed since it was asked, as for a pod that had no node for long.
            flows.apply(flow, Disqualified(), now)
            return
        count, violations = costs(candidate.victims)
        wait = context.history.budgets.wait(count, violations, now)
        if wait is None or wait > 0:
            context.notices.count_plan(candidate.tier, "budget")
            note = f"{count} pods would have to be evicted, more than the eviction limits allow now"
            context.notices.report_on_pod(flow, reasons.DELAYED, note, "Warning", once=True)
            # What can never be afforded may cost less once the cluster has changed.
            flows.apply(flow, NotPlanned() if wait is None else Unaffordable(now + wait), now)
            return
        context.history.budgets.take(count, violations, now)
        context.history.breaker.begin(flow.uid, now)
        flows.released.pop((candidate.node, flow.uid), None)
        plan = ActivePlan(
            node=candidate.node,
            tier=candidate.tier,
            victims=candidate.victims,
            deadline=now + context.settings.pod_scheduled_timeout_seconds,
            tokens=(count, violations),
            recorded_since=_text(context.now()),
        )
        flows.apply(flow, Planned(plan, context.history.attempts.count_of(flow.uid) + 1), now)

    async def reserve(self, flow: EvictionFlow) -> str:
        """Reserve the planned node; return why that is impossible, or an empty text.

        Raises ApiError if it is unknown what is stored: then the call may be repeated.
        """
        context = self._context
        written = await self._write(flow)
        if not self._flows.is_current(flow):
            return ""
        if written not in {WriteResult.DONE, WriteResult.NOTHING}:
            if written in _UNSAFE:
                until = context.clock() + UNTRUSTED
                self._flows.avoid(flow.uid, flow.node, until, written.value)
            context.notices.count_plan(flow.plan.tier, "lost")
            return str(written.value)
        context.notices.report_start(flow)
        node = context.caches.cluster.node(flow.node)
        if node is not None:
            note = f"reserved for the critical pod {flow.key}"
            context.notices.report_on_node(node.name, node.uid, reasons.RESERVED, note)
        self._flows.apply(flow, Reserved(), context.clock())
        return ""

    async def _write(self, flow: EvictionFlow) -> WriteResult:
        """Write the reservation, if the API still has pod and node as they were planned with."""
        context = self._context
        namespace, _, name = flow.key.partition("/")
        pod = await context.read_pod(namespace, name)
        seen = observation_of(flow.uid, pod)
        is_stuck = seen is Observation.NOMINATED and bool(self._observer.stuck_on(flow))
        if not isinstance(pod, PendingPod) or not (seen is Observation.WAITING or is_stuck):
            return WriteResult.DECLINED
        key = context.settings.taint_key

        def accept(raw: bytes) -> bool:
            node = decode_node(raw)
            return not static_reasons(pod, node, taint_key=key)

        reservation = self.record(flow)
        return await self._node_writer.write(
            flow.node, lambda held: reserve(held, reservation, key), accept=accept
        )

    def record(self, flow: EvictionFlow) -> Reservation:
        """Return the reservation that the annotation of the node records for a flow."""
        context = self._context
        plan, now = flow.plan, context.now()
        return Reservation(
            pod=flow.key,
            uid=flow.uid,
            since=plan.recorded_since or _text(now),
            deadline=_text(now + plan.deadline - context.clock()),
            attempt=flow.attempt,
            tier=plan.tier,
            victims=tuple(
                RecordedVictim(victim.uid, victim.namespace, victim.name) for victim in plan.victims
            ),
        )

    async def renew(self, flow: EvictionFlow) -> WriteResult:
        """Write what has changed of a flow's record. Raises ApiError."""
        key = self._context.settings.taint_key
        reservation = self.record(flow)
        return await self._node_writer.write(
            flow.node, lambda held: reserve(held, reservation, key)
        )

    async def _report_dry_run(self, flow: EvictionFlow, candidate: CandidateNode) -> None:
        """A dry run: the evictions are tried, and a plan that differs from the last is reported."""
        context, now = self._context, self._context.clock()
        against = await self._executor.try_all(candidate)
        if not self._flows.is_current(flow):
            return
        named = ", ".join(victim.key for victim in candidate.victims)
        note = f"would make room on {candidate.node} (tier {candidate.tier}) by evicting {named}"
        if against:
            note = f"{note}; refused: {against}"
        if note != flow.dry_note:
            context.notices.report_on_pod(flow, reasons.DRY_RUN, note)
            context.notices.count_plan(candidate.tier, "dry_run")
        self._flows.apply(flow, NotPlanned(note), now)

    def _may_keep(self, node: str) -> bool:
        kept = self._flows.nodes()
        if node in kept:
            return True
        ready = sum(node.is_ready for node in self._context.caches.cluster.nodes())
        most = min(self._context.settings.max_concurrent_reservations, max(1, int(ready * _SHARE)))
        return len(kept) < most


def _text(seconds: float) -> str:
    return format_rfc3339(datetime.fromtimestamp(seconds, UTC))
