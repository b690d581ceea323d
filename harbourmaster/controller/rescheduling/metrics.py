"""Metrics of the rescheduler, by the names that its specification gives (rescheduler-spec 7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

PREFIX: Final = "rescheduler_"
DRY_RUN: Final = "dry_run"
"""The last label of every metric; its values are ``true`` and ``false``."""

_PLAN_BUCKETS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0, 2.0, 5.0)
"""Seconds: from one node up to far more than 5,000."""
_BIND_BUCKETS: Final = (1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Seconds: up to where a pod is given up by default."""


class ReschedulingMetrics:
    """The metrics of the rescheduler; each has ``dry_run`` as its last label."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            created = Counter(f"{PREFIX}{name}", text, (*labels, DRY_RUN), registry=registry)
            if not labels:
                # What is never seen to be 0 is not seen to rise either.
                created.labels("false")
            return created

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"{PREFIX}{name}", text, (*labels, DRY_RUN), registry=registry)

        self.unschedulable_critical_pods = gauge(
            "unschedulable_critical_pods", "Critical pods that wait for a node."
        )
        self.unschedulable_critical_pods_total = Counter(
            f"{PREFIX}unschedulable_critical_pods_total",
            "Critical pods that were unschedulable, by their label k8s-app.",
            ("k8s_app", DRY_RUN),
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
            (DRY_RUN,),
            buckets=_PLAN_BUCKETS,
            registry=registry,
        )
        self.time_to_bind_seconds = Histogram(
            f"{PREFIX}time_to_bind_seconds",
            "Time from the first observation of an unschedulable critical pod until it was bound.",
            (DRY_RUN,),
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
