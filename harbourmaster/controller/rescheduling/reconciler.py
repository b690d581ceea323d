"""One term of leading: takes each critical pod along its flow, by events and timers (6.4)."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from harbourmaster.controller.rescheduling.adoption import ReservationAdopter
from harbourmaster.controller.rescheduling.endings import FlowEndings
from harbourmaster.controller.rescheduling.eviction_client import (
    EvictionClient,
    PreemptionShortener,
)
from harbourmaster.controller.rescheduling.flow_planner import FlowPlanner
from harbourmaster.controller.rescheduling.flows import FlowObserver, Flows
from harbourmaster.controller.rescheduling.node_writer import NodeWriter
from harbourmaster.controller.rescheduling.plan_execution import PlanExecutor, PlanFault
from harbourmaster.controller.rescheduling.qualification import Qualification
from harbourmaster.rescheduling.flow import Action, advance
from harbourmaster.rescheduling.flow_model import (
    ClusterChanged,
    EvictionFlow,
    NoFit,
    Observation,
    Qualified,
    VerificationDelayed,
    Verified,
    WaitingForFit,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from harbourmaster.controller.rescheduling.context import ReschedulingContext
    from harbourmaster.kube.workqueue import WorkQueue
    from harbourmaster.rescheduling.flow import FlowStep
    from harbourmaster.rescheduling.model import PendingPod

POD: Final = "pod"
NODE: Final = "node"
SWITCH: Final = "switch"
PLANS: Final = "plans"
HOUSEKEEPING: Final = "housekeeping"
CLOSING: Final = 2.0
"""Seconds for giving back, at the end, what no pod was evicted for."""
REPORT_SECONDS: Final = 1.0
"""Seconds between two counts of all flows, of which there may be one for each node."""
_STEPS: Final = 32
"""Steps of one pod before another one has its turn."""


def key_of(kind: str, name: str = "") -> str:
    """A key of the queue."""
    return f"{kind} {name}"


class ReschedulingReconciler:
    """The reconciler. What it needs of earlier terms is stored on the nodes."""

    def __init__(
        self, context: ReschedulingContext, queue: WorkQueue, is_stopping: Callable[[], bool]
    ) -> None:
        self._context = context
        self._is_stopping = is_stopping
        self._queue = queue
        self._flows = Flows(context.caches, context.notices)
        self._observer = FlowObserver(context, self._flows)
        evictions = EvictionClient(context.client)
        reservations = NodeWriter(context.client, context.sleep)
        self._executor = PlanExecutor(context, self._flows, evictions)
        self._shortener = PreemptionShortener(context, evictions)
        self._knows_budgets = False
        self._qualification = Qualification(context, context.clock())
        self._planner = FlowPlanner(
            context,
            self._flows,
            reservations,
            self._executor,
            self._observer,
            self._qualification,
            self._wake_pod,
        )
        self._adopter = ReservationAdopter(context, self._flows, self._planner, reservations)
        self._endings = FlowEndings(context, self._flows, self._wake)
        self._reported_at = -REPORT_SECONDS
        self._counted: set[str] = set()
        """The uids of the pods that were counted as unschedulable."""

    def map_changes(self, keys: Iterable[str] | None) -> Iterator[str]:
        """Yield the keys to reconcile; for None all, the nodes of an earlier leader first."""
        if keys is None:
            yield from self._everything()
            return
        victims = self._flows.of_victims()
        kept = self._flows.nodes()
        for key in keys:
            kind, _, name = key.partition(" ")
            if kind == POD:
                yield from self._due_of_pod(name, victims.get(name, ()), kept)
            elif kind == NODE:
                yield from self._due_of_node(name, kept)
            else:
                yield from self._everything()

    async def reconcile(self, key: str) -> float | None:
        """Take a pod, or a node, as far as it can go now."""
        kind, _, name = key.partition(" ")
        if kind == POD:
            if not self._knows_budgets:
                await self._context.load_budgets()
                self._knows_budgets = True
            return await self._pod(name)
        if kind == NODE:
            for flow in await self._adopter.settle(name):
                self._wake_pod(flow.key)
        elif kind == PLANS:
            await self._planner.plan_all()
        elif kind == HOUSEKEEPING:
            return self._housekeep()
        return None

    async def close(self) -> None:
        """Release the nodes for which nothing was evicted, if the process ends.

        The next leader adopts the others. If only the term ends, it owns all of them already.
        """
        if not self._is_stopping():
            return
        for flow in list(self._flows.live()):
            if not flow.accepted_uids:
                self._flows.drop(flow)
                self._flows.released[flow.node, flow.uid] = None
        with contextlib.suppress(Exception):
            async with asyncio.timeout(CLOSING):
                for name in {node for (node, _), gone in self._flows.released.items() if not gone}:
                    await self._adopter.settle(name)

    def _everything(self) -> Iterator[str]:
        for node in list(self._adopter.find_marked()):
            self._adopter.adopt(node)
            yield key_of(NODE, node.name)
        for pending in list(self._context.caches.cluster.pending.values()):
            if pending.pod.is_critical:
                yield key_of(POD, pending.pod.key)
        for key in list(self._flows.by_key):
            yield key_of(POD, key)
        yield key_of(HOUSEKEEPING)

    def _due_of_pod(self, name: str, waiting: Iterable[str], kept: set[str]) -> Iterator[str]:
        for key in waiting:
            yield key_of(POD, key)
        if name in self._flows.by_key:
            yield key_of(POD, name)
            return
        pending = self._context.caches.pending(name)
        if pending is not None:
            if pending.pod.is_critical:
                yield key_of(POD, name)
            return
        pod = self._context.caches.pod(name)
        if pod is not None and pod.node in kept:
            for flow in self._flows.on(pod.node):
                yield key_of(POD, flow.key)
        if pod is not None and pod.deletion is not None:
            for key in self._observer.nominated_to(pod.node):
                yield key_of(POD, key)

    def _due_of_node(self, name: str, kept: set[str]) -> Iterator[str]:
        node = self._context.caches.cluster.node(name)
        if name in kept:
            for flow in self._flows.on(name):
                yield key_of(POD, flow.key)
        is_released = any(node == name for node, _ in self._flows.released)
        if name in kept or is_released or (node is not None and self._adopter.has_ours(node)):
            yield key_of(NODE, name)

    async def _pod(self, key: str) -> float | None:
        try:
            for _ in range(_STEPS):
                flow = self._flow(key)
                if flow is None:
                    return None
                following = advance(
                    flow,
                    self._observer.look(flow),
                    self._context.clock(),
                    self._context.settings.times,
                )
                self._flows.put(following.flow)
                if following.action is Action.WAIT:
                    await self._shorten(following.flow)
                    return following.requeue_after
                requeue_after = await self._act(following)
                if requeue_after is not None:
                    return requeue_after
        finally:
            if self._context.clock() - self._reported_at >= REPORT_SECONDS:
                self._report_totals()
        return 0.0

    def _flow(self, key: str) -> EvictionFlow | None:
        """The flow of the pod of that name; a new one where it is unschedulable and critical."""
        pending = self._context.caches.pending(key)
        flow = self._flows.by_key.get(key)
        if flow is not None:
            return flow
        if pending is None or not self._observer.is_wanted(pending):
            return None
        now, pod = self._context.clock(), pending.pod
        if pod.uid not in self._counted:
            self._counted.add(pod.uid)
            self._context.notices.count_unschedulable(pending.k8s_app)
        begun = EvictionFlow(uid=pod.uid, key=key, owner=pod.owner, first_seen=now)
        return self._flows.put(begun)

    async def _act(self, following: FlowStep) -> float | None:
        """Do what is due; returns seconds to wait, or None for the next step at once."""
        flow, now = following.flow, self._context.clock()
        pending = self._context.caches.pending(flow.key)
        match following.action:
            case Action.QUALIFY if pending is not None:
                requeue_after = await self._qualification.wait(flow, pending)
                if requeue_after is None and self._flows.is_current(flow):
                    self._flows.apply(flow, Qualified(), now)
                return requeue_after
            case Action.PLAN:
                self._queue.add(key_of(PLANS))
                return self._context.settings.housekeeping_interval_seconds
            case Action.RESERVE:
                why = await self._planner.reserve(flow)
                if why:
                    self._endings.replan(flow, why)
            case Action.VERIFY if pending is not None:
                await self._verify(flow, pending)
            case Action.EVICT:
                await self._evict(flow)
            case Action.QUALIFY | Action.VERIFY:
                return self._context.settings.housekeeping_interval_seconds
            case _:
                return self._endings.end(following)
        return None

    async def _shorten(self, flow: EvictionFlow) -> None:
        """Help the scheduler's preemption on, where it is at work and that is wanted."""
        pending = self._context.caches.pending(flow.key)
        is_its = self._observer.of(flow) is Observation.NOMINATED and not flow.is_live
        if self._context.settings.shorten_preemption and is_its and pending is not None:
            await self._shortener.shorten(pending)

    async def _verify(self, flow: EvictionFlow, pending: PendingPod) -> None:
        context, budgets = self._context, self._context.history.budgets
        result = await self._executor.verify(flow, pending)
        now = context.clock()
        if not self._flows.is_current(flow):
            return
        if isinstance(result, PlanFault):
            self._endings.replan(flow, result.why, elsewhere=result.elsewhere)
            return
        if isinstance(result, VerificationDelayed):
            self._flows.apply(flow, result, now)
            return
        budgets.give_back(*flow.plan.tokens, now)
        wait = budgets.wait(*result.tokens, now)
        if wait is None or wait > 0:
            budgets.take(*flow.plan.tokens, now)
            self._endings.replan(
                flow, "more pods would have to be evicted than the limits allow now"
            )
            return
        budgets.take(*result.tokens, now)
        checked = self._flows.apply(flow, result, now)
        # Who follows us must know of all of it before they go.
        if {victim.uid for victim in checked.victims} != {victim.uid for victim in flow.victims}:
            await self._planner.renew(checked)
        if any(result.tokens):
            await context.save_budgets()
        if self._flows.is_current(checked):
            self._flows.apply(checked, Verified(), context.clock())

    async def _evict(self, flow: EvictionFlow) -> None:
        def may_go_on(at: EvictionFlow) -> bool:
            seen = self._observer.look(at)
            following = advance(at, seen, self._context.clock(), self._context.settings.times)
            return following.action is Action.EVICT

        refusal = await self._executor.evict(flow, may_go_on)
        if refusal is None:
            return
        if refusal.is_of_node:
            self._endings.move(refusal.flow, refusal.why)
        else:
            self._endings.replan(refusal.flow, refusal.why, elsewhere=False)

    def _housekeep(self) -> float:
        """The safety net: what an event was missed for, and what only time brings."""
        context, flows = self._context, self._flows
        now = context.clock()
        flows.sweep(now)
        for flow in list(flows.by_key.values()):
            if isinstance(flow.state, NoFit | WaitingForFit) and self._planner.is_old(flow):
                flows.apply(flow, ClusterChanged(), now)
        self._planner.forget_but({flow.uid for flow in flows.by_key.values()})
        self._executor.forget_but({victim.uid for flow in flows.live() for victim in flow.victims})
        self._shortener.sweep()
        waiting = context.caches.cluster.pending.keys()
        self._counted &= waiting
        context.history.attempts.forget_but(waiting)
        for key in self._everything():
            if key != key_of(HOUSEKEEPING):
                self._queue.add(key)
        self._report_totals()
        return context.settings.housekeeping_interval_seconds

    def _report_totals(self) -> None:
        context, now = self._context, self._context.clock()
        self._reported_at = now
        waiting = sum(
            self._observer.of(flow) in {Observation.WAITING, Observation.NOMINATED}
            for flow in self._flows.by_key.values()
        )
        is_open = context.history.breaker.is_open(now) or bool(self._qualification.why_open)
        context.notices.set_totals(
            waiting,
            len(self._flows.nodes()),
            context.history.budgets.tokens_left(now),
            is_open=is_open,
        )

    def _wake(self, kind: str, name: str = "") -> None:
        self._queue.add(key_of(kind, name))

    def _wake_pod(self, key: str) -> None:
        self._queue.add(key_of(POD, key))
