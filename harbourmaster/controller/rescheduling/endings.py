"""Ends flows: releases the reservation and reports the end (rescheduler-spec 6.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harbourmaster.controller.rescheduling import notices as reasons
from harbourmaster.controller.rescheduling.flows import SHORTLY, UNTRUSTED
from harbourmaster.rescheduling.flow import Action
from harbourmaster.rescheduling.flow_model import Abandoned, Mismatched
from harbourmaster.rescheduling.limits import FAILURES, MINUTE, PAUSE

if TYPE_CHECKING:
    from collections.abc import Callable

    from harbourmaster.controller.rescheduling.context import ReschedulingContext
    from harbourmaster.controller.rescheduling.flows import Flows
    from harbourmaster.rescheduling.flow import FlowStep
    from harbourmaster.rescheduling.flow_model import EvictionFlow

FREE_PLANS: Final = 5
"""Plans in a row without an eviction, after which a pod waits as after a failed attempt."""


class FlowEndings:
    """Ends flows; ``wake`` queues a node, a pod or the plans."""

    def __init__(
        self, context: ReschedulingContext, flows: Flows, wake: Callable[..., None]
    ) -> None:
        self._context = context
        self._flows = flows
        self._wake = wake
        self._free: dict[str, int] = {}

    def end(self, following: FlowStep) -> float | None:
        """End or reset a flow; returns None to look at it at once."""
        flow, why = following.flow, following.why
        match following.action:
            case Action.DONE:
                self._finish(flow)
            case Action.CANCEL:
                self._cancel(flow, why)
            case Action.MISMATCH:
                self._mismatch(flow)
            case Action.REPLAN:
                self.replan(flow, why)
            case Action.MOVE:
                self.move(flow, why)
            case Action.FAIL:
                self._fail(flow, why)
            case Action.LOST:
                self._avoid_long(flow, why)
                self._give_up(flow, why)
            case Action.TIMEOUT:
                note = "the pod was not scheduled in time"
                self._context.notices.report_on_pod(flow, reasons.TIMED_OUT, note, "Warning")
                self._give_up(flow, "out of time")
            case _:
                raise ValueError(f"not an action that ends an attempt: {following.action}")
        return None

    def replan(self, flow: EvictionFlow, why: str, *, elsewhere: bool = True) -> None:
        """Plan again at once, or after a pause if that happened too often.

        Without ``elsewhere``, the same node may be used again.
        """
        now = self._context.clock()
        if flow.accepted_uids:
            self._record_failure(flow)
        if elsewhere:
            self._flows.avoid(flow.uid, flow.node, now + SHORTLY, why)
        free = self._free[flow.uid] = self._free.get(flow.uid, 0) + 1
        if free >= FREE_PLANS:
            self._free.pop(flow.uid, None)
            self._pause(flow, why)
            return
        self._release(flow)
        self._flows.apply(flow, Abandoned(), now, why)

    def move(self, flow: EvictionFlow, why: str) -> None:
        """Avoid the node for long and plan for another one at once."""
        self._avoid_long(flow, why)
        if flow.accepted_uids:
            self._record_failure(flow)
        self._release(flow)
        self._flows.apply(flow, Abandoned(), self._context.clock(), why)

    def _finish(self, flow: EvictionFlow) -> None:
        context = self._context
        if flow.is_live:
            pod = context.caches.pod(flow.key)
            node = pod.node if pod is not None else ""
            context.notices.report_on_pod(
                flow, reasons.SUCCEEDED, f"the pod was scheduled on {node}"
            )
            context.notices.observe_binding(context.clock() - flow.first_seen)
            if flow.accepted_uids and node == flow.node:
                context.history.breaker.succeed()
                context.history.attempts.note_success(flow.uid, flow.owner, context.clock())
        self._drop(flow, "done", "bound")
        context.history.attempts.forget(flow.uid)

    def _cancel(self, flow: EvictionFlow, why: str) -> None:
        self._drop(flow, "cancelled", why)
        pod = self._context.caches.pod(flow.key)
        if pod is None or pod.uid != flow.uid:
            self._context.history.attempts.forget(flow.uid)
        # By now it may be another pod of that name, or one that waits for something else.
        self._wake("pod", flow.key)

    def _mismatch(self, flow: EvictionFlow) -> None:
        """Trust the scheduler, which does not place a pod that fits by our rules."""
        self._report_mismatch(flow)
        self._avoid_long(flow, "the scheduler does not place the pod there")
        self._flows.apply(flow, Mismatched(), self._context.clock())

    def _fail(self, flow: EvictionFlow, why: str) -> None:
        self._report_mismatch(flow)
        self._avoid_long(flow, "the scheduler did not place the pod there")
        self._give_up(flow, why)

    def _avoid_long(self, flow: EvictionFlow, why: str) -> None:
        until = self._context.clock() + UNTRUSTED
        self._flows.avoid(flow.uid, flow.node, until, why)

    def _give_up(self, flow: EvictionFlow, why: str) -> None:
        if flow.accepted_uids:
            self._record_failure(flow)
        self._pause(flow, why)

    def _pause(self, flow: EvictionFlow, why: str) -> None:
        """Leave the pod alone for a while."""
        context, now = self._context, self._context.clock()
        self._release(flow)
        pause = context.history.attempts.pause(flow.uid, context.chance())
        self._flows.apply(flow, Abandoned(now + pause), now, why)

    def _record_failure(self, flow: EvictionFlow) -> None:
        context, now = self._context, self._context.clock()
        context.history.attempts.note_failure(flow.uid)
        if context.history.breaker.fail(now):
            minutes = int(PAUSE // MINUTE)
            note = (
                f"eviction did not make room {FAILURES} times in a row; backing off for {minutes}m"
            )
            context.notices.report_on_pod(flow, reasons.CIRCUIT, note, "Warning")

    def _report_mismatch(self, flow: EvictionFlow) -> None:
        note = f"the pod should fit on {flow.node}, but the scheduler does not place it there"
        if self._context.notices.report_on_pod(flow, reasons.MISMATCH, note, "Warning", once=True):
            self._context.notices.count_mismatch()

    def _drop(self, flow: EvictionFlow, how: str, why: str) -> None:
        if flow.is_live:
            self._context.notices.report_end(flow, how, why)
        self._release(flow)
        self._flows.drop(flow)
        self._flows.forget(flow.uid)
        self._free.pop(flow.uid, None)

    def _release(self, flow: EvictionFlow) -> None:
        """Release the node, count the attempt, and return what it did not use of the limits.

        The caller puts or drops the flow right after this.
        """
        context = self._context
        context.history.breaker.drop(flow.uid)
        if not flow.is_live:
            return
        context.history.budgets.give_back(*flow.plan.tokens, context.clock())
        if flow.accepted_uids:
            context.history.attempts.note_attempt(flow.owner, context.clock())
        self._flows.released[flow.node, flow.uid] = None
        self._wake("node", flow.node)
        self._wake("plans")
