"""The reports of the rescheduler: events on pods and nodes, metrics, and the log.

See rescheduler-spec 7.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harbourmaster.api.resources import NODES, PODS
from harbourmaster.kube.events import ObjectReference
from harbourmaster.rescheduling.limits import Recent
from harbourmaster.telemetry.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from harbourmaster.controller.rescheduling.metrics import ReschedulingMetrics
    from harbourmaster.kube.event_series import EventType
    from harbourmaster.kube.events import EventRecorder
    from harbourmaster.rescheduling.answers import EvictionOutcome
    from harbourmaster.rescheduling.flow_states import EvictionFlow
    from harbourmaster.rescheduling.model import Node
    from harbourmaster.rescheduling.plans import Plan, Victim

STARTED: Final = "RescheduleStarted"
SUCCEEDED: Final = "RescheduleSucceeded"
NO_NODE: Final = "DoesNotFitAnyNode"
MISSING_TOLERATION: Final = "MissingToleration"
UNSUPPORTED: Final = "UnsupportedConstraint"
MISMATCH: Final = "FitMismatch"
TIMED_OUT: Final = "RescheduleTimeout"
DRY_RUN: Final = "RescheduleDryRun"
DELAYED: Final = "RescheduleDelayed"
CIRCUIT: Final = "RescheduleCircuitOpen"
EVICTED: Final = "EvictedByRescheduler"
RESERVED: Final = "ReservedForCriticalAddon"
RELEASED: Final = "ReservationReleased"
STALE: Final = "StaleReservationRemoved"
AGAIN: Final = 600.0
"""Seconds after which an event that still applies is repeated."""
_ACTION: Final = "Reschedule"
_SHOWN: Final = 8
"""Reasons in an event, the most frequent ones."""


class Notices:
    """Reports all that happens; nothing here waits or fails."""

    def __init__(
        self,
        events: EventRecorder,
        metrics: ReschedulingMetrics,
        clock: Callable[[], float],
        *,
        dry_run: bool,
    ) -> None:
        self._events = events
        self._metrics = metrics
        self._clock = clock
        self._dry = "true" if dry_run else "false"
        self._reported = Recent(AGAIN)
        self._log = get_logger("rescheduling")

    def log_state(self, flow: EvictionFlow, why: str = "") -> None:
        """A pod is in another state than before."""
        self._log.info(
            "state",
            pod=flow.key,
            uid=flow.uid,
            state=flow.state.name,
            node=flow.node,
            tier=flow.plan.tier if flow.is_live else 0,
            attempt=flow.attempt,
            victims=[victim.key for victim in flow.victims],
            **({"why": why} if why else {}),
        )

    def report_end(self, flow: EvictionFlow, how: str, why: str) -> None:
        """Nothing more is done for a pod, for now."""
        self._log.info(how, pod=flow.key, uid=flow.uid, node=flow.node, why=why)

    def count_unschedulable(self, k8s_app: str) -> None:
        """A critical pod is unschedulable."""
        self._metrics.unschedulable_critical_pods_total.labels(
            k8s_app or "unknown", self._dry
        ).inc()

    def report_on_pod(
        self,
        flow: EvictionFlow,
        reason: str,
        note: str,
        kind: EventType = "Normal",
        *,
        once: bool = False,
    ) -> bool:
        """Tell something of a critical pod; with ``once`` not again for ten minutes."""
        if once and self._is_old(f"{flow.uid} {reason}"):
            return False
        self._events.emit(_pod(flow.key, flow.uid), kind, reason, note, _ACTION)
        return True

    def report_on_node(self, name: str, uid: str, reason: str, note: str) -> None:
        """Tell something of a node."""
        regarding = ObjectReference(NODES.api_version, NODES.kind, name, uid=uid)
        self._events.emit(regarding, "Normal", reason, note, _ACTION)

    def report_start(self, flow: EvictionFlow) -> None:
        """A node is kept for a pod."""
        named = ", ".join(victim.key for victim in flow.victims)
        note = f"making room on {flow.node} (tier {flow.plan.tier}) by evicting {named}"
        self.report_on_pod(flow, STARTED, note)
        self.count_plan(flow.plan.tier, "reserved")

    def report_no_node(self, flow: EvictionFlow, plan: Plan) -> None:
        """A pod fits nowhere, whichever pods are evicted."""
        ranked = sorted(plan.reasons.items(), key=lambda item: (-item[1], item[0]))
        counted = [f"{reason} ({count})" for reason, count in ranked[:_SHOWN]]
        counted += ["…"] if len(ranked) > _SHOWN else []
        why = "; ".join(counted) or "there are no nodes"
        note = f"no node has room for the pod, whichever pods are evicted: {why}"
        self.report_on_pod(flow, NO_NODE, note, "Warning", once=True)

    def report_victim(self, flow: EvictionFlow, victim: Victim) -> None:
        """A pod is about to be evicted."""
        old, new = victim.grace, victim.new_grace
        grace = f"{old} s" if old == new else f"{new} s instead of {old} s"
        note = (
            f"evicted to make room on {victim.node} for the critical pod {flow.key} "
            f"(tier {flow.plan.tier}), with a grace of {grace}"
        )
        self._events.emit(
            _pod(victim.key, victim.uid),
            "Normal",
            EVICTED,
            note,
            _ACTION,
            related=_pod(flow.key, flow.uid),
        )

    def count_plan(self, tier: int | None, result: str) -> None:
        """A plan was made, and came to this."""
        self._metrics.plans_total.labels("" if tier is None else str(tier), result, self._dry).inc()

    def observe_planning(self, seconds: float, nodes: int) -> None:
        """A plan took so long, and looked at so many nodes."""
        self._metrics.plan_duration_seconds.labels(self._dry).observe(seconds)
        self._metrics.nodes_evaluated.labels(self._dry).set(nodes)

    def count_answer(self, outcome: EvictionOutcome, tier: int) -> None:
        """An eviction was answered."""
        self._metrics.evictions_total.labels(outcome.value, str(tier), self._dry).inc()

    def count_departure(self, victim: Victim, *, violating: bool) -> None:
        """A pod is on its step."""
        self._metrics.deleted_pods_total.labels(self._dry).inc()
        if violating:
            self._metrics.pdb_violations_total.labels(self._dry).inc()
        if victim.new_grace < victim.grace:
            self._metrics.grace_shortened_total.labels(self._dry).inc()

    def count_shortened(self) -> None:
        """A pod that the scheduler took goes sooner."""
        self._metrics.grace_shortened_total.labels(self._dry).inc()

    def observe_binding(self, seconds: float) -> None:
        """Observe the seconds for which a critical pod had no node."""
        self._metrics.time_to_bind_seconds.labels(self._dry).observe(seconds)

    def count_mismatch(self) -> None:
        """The scheduler sees what we don't."""
        self._metrics.fit_mismatch_total.labels(self._dry).inc()

    def report_removal(self, node: Node, *, stale: bool) -> None:
        """Something of ours went from a node."""
        if stale:
            self._metrics.stale_taints_removed_total.labels(self._dry).inc()
            note = "removed a reservation that no rescheduler uses"
        else:
            note = "the node is no longer reserved for critical pods"
        self.report_on_node(node.name, node.uid, STALE if stale else RELEASED, note)

    def set_totals(
        self, waiting: int, nodes: int, budgets: Mapping[str, int], *, is_open: bool
    ) -> None:
        """Set the gauges: waiting pods, reserved nodes, remaining budgets, the circuit breaker."""
        metrics = self._metrics
        metrics.unschedulable_critical_pods.labels(self._dry).set(waiting)
        metrics.reservations.labels(self._dry).set(nodes)
        metrics.circuit_open.labels(self._dry).set(is_open)
        for kind, left in budgets.items():
            metrics.budget_remaining.labels(kind, self._dry).set(left)

    def set_leading(self, *, leading: bool) -> None:
        """Whether this process does the work."""
        self._metrics.is_leader.labels(self._dry).set(leading)

    def _is_old(self, what: str) -> bool:
        now = self._clock()
        if self._reported.count(what, now):
            return True
        self._reported.note(what, now)
        return False


def _pod(key: str, uid: str) -> ObjectReference:
    namespace, _, name = key.partition("/")
    return ObjectReference(PODS.api_version, PODS.kind, name, namespace, uid)
