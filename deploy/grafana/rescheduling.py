"""Room for critical add-ons."""

from __future__ import annotations

from typing import Final

from deploy.grafana.panel import (
    Panel,
    gauge,
    increased,
    latest,
    quantiles,
    rate,
    series,
    stat,
)

PANELS: Final = (
    stat(
        "Add-ons without a node",
        "Critical pods that wait.",
        "none",
        latest("rescheduler_unschedulable_critical_pods", how="max"),
        warn=1,
        bad=1,
    ),
    stat(
        "Stopped",
        "1 while nothing is begun, because plans failed or the cluster is unwell.",
        "none",
        latest("rescheduler_circuit_open", how="max"),
        warn=1,
        bad=1,
    ),
    stat(
        "Nodes reserved",
        "By our taint.",
        "none",
        latest("rescheduler_reservations", how="max"),
    ),
    stat(
        "Against a budget",
        "Pods deleted though their disruption budget forbade it; in a day.",
        "none",
        increased("rescheduler_pdb_violations_total", within="1d"),
        warn=1,
        bad=5,
    ),
    stat(
        "Leaders",
        "Processes that make room; one, or none where it is off.",
        "none",
        latest("rescheduler_is_leader"),
        warn=2,
        bad=2,
    ),
    stat(
        "Nodes looked at",
        "By the last plan.",
        "none",
        latest("rescheduler_nodes_evaluated", how="max"),
    ),
    Panel(
        "Add-ons that found no node",
        "By their label k8s-app; in an hour.",
        "none",
        (
            (
                increased("rescheduler_unschedulable_critical_pods_total", "k8s_app"),
                "{{k8s_app}}",
            ),
        ),
    ),
    Panel(
        "Plans",
        "By what became of them. See: harbourmaster reschedule plan.",
        "ops",
        series("rescheduler_plans_total", "tier, result"),
    ),
    Panel(
        "Evictions",
        "By their answer.",
        "ops",
        series("rescheduler_evictions_total", "tier, result"),
    ),
    Panel(
        "Pods that went",
        "For a critical one, however they did.",
        "ops",
        (
            (rate("rescheduler_deleted_pods_total"), "all"),
            (rate("rescheduler_grace_shortened_total"), "with less time to end"),
            (rate("rescheduler_pdb_violations_total"), "against a budget"),
        ),
    ),
    Panel(
        "Evictions left",
        "By the limit on them.",
        "none",
        gauge("rescheduler_budget_remaining", "kind", "min"),
    ),
    Panel(
        "Time until it had a node",
        "From the first sight of a critical pod without one.",
        "s",
        quantiles("rescheduler_time_to_bind_seconds"),
    ),
    Panel(
        "Time to plan",
        "Median and tail.",
        "s",
        quantiles("rescheduler_plan_duration_seconds"),
    ),
    Panel(
        "Reservations and what was left over",
        "Nodes reserved now, and taints of ours that belonged to no reservation.",
        "none",
        (
            (latest("rescheduler_reservations", how="max"), "reserved"),
            (rate("rescheduler_stale_taints_removed_total"), "stale taints a second"),
        ),
    ),
    Panel(
        "Did not fit after all",
        "Nodes on which a pod should have fitted and got no place.",
        "ops",
        ((rate("rescheduler_fit_mismatch_total"), "mismatches"),),
    ),
)
