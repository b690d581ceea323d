"""Pods that wait, and the phases of applications and workloads."""

from __future__ import annotations

from typing import Final

from deploy.grafana.panel import (
    Panel,
    gauge,
    increased,
    latest,
    quantile,
    quantiles,
    series,
    stat,
)

_APP: Final = "keptn_deployment_app_name"
_WORKLOAD: Final = "keptn_deployment_workload_name"

PANELS: Final = (
    stat(
        "Pods that wait",
        "At our gate, or in the second scheduler. See: harbourmaster gate list.",
        "none",
        latest("harbourmaster_gated_pods", how="max"),
    ),
    *(
        stat(f"{what} under way", "In any phase.", "none", latest(f"keptn_{kind}_active"))
        for kind, what in (
            ("app", "Applications"),
            ("deployment", "Workloads"),
            ("task", "Tasks"),
            ("evaluation", "Evaluations"),
        )
    ),
    stat(
        "Too late for the scheduler",
        "Workload versions whose checks took longer than their pods' scheduler waits; in a day.",
        "none",
        increased("harbourmaster_pre_check_deadlines_exceeded_total", within="1d"),
        warn=1,
        bad=10,
    ),
    Panel(
        "Pods that wait",
        "What rises and does not fall again is stuck.",
        "none",
        gauge("harbourmaster_gated_pods", "pod", "max"),
    ),
    *(
        Panel(
            f"{what} that ended",
            "By their state.",
            "none",
            (
                (
                    increased(f"keptn_{kind}_count_total", label),
                    f"{{{{{label}}}}}",
                ),
            ),
        )
        for kind, what, label in (
            ("app", "Applications", "keptn_deployment_app_status"),
            ("deployment", "Workloads", "keptn_deployment_workload_status"),
            ("task", "Tasks", "keptn_deployment_task_status"),
            ("promotion", "Promotions", "keptn_deployment_task_status"),
        )
    ),
    *(
        Panel(
            f"{what} took",
            "The slow half and the slowest twentieth of those that ended.",
            "s",
            tuple(
                (
                    quantile(share, f"keptn_{kind}_duration_seconds", label),
                    f"p{share * 100:g} {{{{{label}}}}}",
                )
                for share in (0.5, 0.95)
            ),
        )
        for kind, what, label in (
            ("app", "Applications", _APP),
            ("deployment", "Workloads", _WORKLOAD),
            ("task", "Tasks", "keptn_deployment_task_name"),
        )
    ),
    Panel(
        "Latest versions of applications",
        "How long they took from start to end.",
        "s",
        (
            (
                latest(
                    "keptn_app_deploymentduration", f"{_APP}, keptn_deployment_app_version", "max"
                ),
                f"{{{{{_APP}}}}} {{{{keptn_deployment_app_version}}}}",
            ),
        ),
        "table",
    ),
    Panel(
        "Time between versions of applications",
        "From the end of the version before to the start.",
        "s",
        (
            (
                latest(
                    "keptn_app_deploymentinterval", f"{_APP}, keptn_deployment_app_version", "max"
                ),
                f"{{{{{_APP}}}}} {{{{keptn_deployment_app_version}}}}",
            ),
        ),
        "table",
    ),
    Panel(
        "Latest versions of workloads",
        "How long they took from start to end.",
        "s",
        (
            (
                latest(
                    "keptn_deployment_deploymentduration",
                    f"{_APP}, {_WORKLOAD}, keptn_deployment_workload_version",
                    "max",
                ),
                f"{{{{{_WORKLOAD}}}}} {{{{keptn_deployment_workload_version}}}}",
            ),
        ),
        "table",
    ),
    Panel(
        "Time between versions of workloads",
        "From the end of the version before to the start.",
        "s",
        (
            (
                latest(
                    "keptn_deployment_deploymentinterval",
                    f"{_APP}, {_WORKLOAD}, keptn_deployment_workload_version",
                    "max",
                ),
                f"{{{{{_WORKLOAD}}}}} {{{{keptn_deployment_workload_version}}}}",
            ),
        ),
        "table",
    ),
    Panel(
        "Answers to the second scheduler",
        "By what it is told. See docs/reference/scheduler.md.",
        "reqps",
        series("harbourmaster_extender_answers_total", "verb, outcome"),
    ),
    Panel(
        "Time to answer the second scheduler",
        "Median and tail.",
        "s",
        quantiles("harbourmaster_extender_duration_seconds"),
    ),
    Panel(
        "CloudEvents",
        "By what became of them.",
        "none",
        series("harbourmaster_cloud_events_total", "outcome"),
    ),
)
