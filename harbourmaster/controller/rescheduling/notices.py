"""The reports of the rescheduler: events on pods and nodes, metrics, and the log.

See rescheduler-spec 7.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.registry import Collector

from harbourmaster.api.resources import NODES, PODS
from harbourmaster.kube.events import ObjectReference
from harbourmaster.rescheduling.limits import Recent
from harbourmaster.telemetry.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

    from harbourmaster.kube.event_series import EventType
    from harbourmaster.kube.events import EventRecorder
    from harbourmaster.rescheduling.answers import EvictionOutcome
    from harbourmaster.rescheduling.flow_model import EvictionFlow
    from harbourmaster.rescheduling.model import Node
    from harbourmaster.rescheduling.plans import Plan, Victim

PREFIX: Final = "rescheduler_"
DRY_RUN_LABEL: Final = "dry_run"
"""The last label of every metric; its values are ``true`` and ``false``."""

_PLAN_BUCKETS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0, 2.0, 5.0)
"""Seconds: from one node up to far more than 5,000."""
_BIND_BUCKETS: Final = (1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Seconds: up to where a pod is given up by default."""


class ReschedulingMetrics:
    """The metrics of the rescheduler; each has ``dry_run`` as its last label."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            created = Counter(f"{PREFIX}{name}", text, (*labels, DRY_RUN_LABEL), registry=registry)
            if not labels:
                # What is never seen to be 0 is not seen to rise either.
                created.labels("false")
            return created

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"{PREFIX}{name}", text, (*labels, DRY_RUN_LABEL), registry=registry)

        self.unschedulable_critical_pods = gauge(
            "unschedulable_critical_pods", "Critical pods that wait for a node."
        )
        self.unschedulable_critical_pods_total = Counter(
            f"{PREFIX}unschedulable_critical_pods_total",
            "Critical pods that were unschedulable, by their label k8s-app.",
            ("k8s_app", DRY_RUN_LABEL),
            registry=None,
        )
        registry.register(_Beside(self.unschedulable_critical_pods_total))
        self.plans_total = counter(
            "plans_total", "Plans for critical pods by result.", "tier", "result"
        )
        self.evictions_total = counter("evictions_total", "Evictions by answer.", "result", "tier")
        self.deleted_pods_total = counter(
            "deleted_pods_total", "Pods that were evicted or deleted for a critical pod."
        )
        self.pdb_violations_total = counter(
            "pdb_violations_total", "Pods deleted against their disruption budget."
        )
        self.grace_shortened_total = counter(
            "grace_shortened_total", "Pods whose grace period was shortened."
        )
        self.reservations = gauge("reservations", "Nodes reserved for critical pods.")
        self.stale_taints_removed_total = counter(
            "stale_taints_removed_total", "Removed taints without a reservation."
        )
        self.plan_duration_seconds = Histogram(
            f"{PREFIX}plan_duration_seconds",
            "Duration of a plan.",
            (DRY_RUN_LABEL,),
            buckets=_PLAN_BUCKETS,
            registry=registry,
        )
        self.time_to_bind_seconds = Histogram(
            f"{PREFIX}time_to_bind_seconds",
            "Time from the first observation of an unschedulable critical pod until it was bound.",
            (DRY_RUN_LABEL,),
            buckets=_BIND_BUCKETS,
            registry=registry,
        )
        self.nodes_evaluated = gauge("nodes_evaluated", "Nodes evaluated by the last plan.")
        self.budget_remaining = gauge("budget_remaining", "Remaining evictions by limit.", "kind")
        self.circuit_open = gauge("circuit_open", "1 while no plan is started because of failures.")
        self.is_leader = gauge("is_leader", "1 if this process is the active rescheduler.")
        self.fit_mismatch_total = counter(
            "fit_mismatch_total", "Nodes on which a pod should fit but was not placed."
        )


class _Beside(Collector):
    """A counter whose name, without the ending that counters have, is that of a gauge.

    A registry refuses it only where it is told the names beforehand; the text that Prometheus reads
    has the ending in all of them.
    """

    def __init__(self, counter: Counter) -> None:
        self._counter = counter

    def collect(self) -> Iterable[Metric]:
        """The counter's family."""
        return self._counter.collect()


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
REPEATED: Final = "RescheduleRepeated"
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
