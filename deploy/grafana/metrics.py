"""What is measured for KeptnMetrics, and what evaluations and analyses make of it."""

from __future__ import annotations

from typing import Final

from deploy.grafana.panel import (
    Panel,
    increased,
    latest,
    quantile,
    quantiles,
    rate,
    series,
    stat,
)

_EVALUATIONS: Final = "keptn_evaluation"

PANELS: Final = (
    stat(
        "Queries a second",
        "To all providers.",
        "reqps",
        rate("harbourmaster_provider_queries_total"),
    ),
    stat(
        "Without an answer",
        "Share of the queries; from a half on somebody is told.",
        "percentunit",
        rate("harbourmaster_provider_queries_total", where='outcome!="Answered"')
        + " / "
        + rate("harbourmaster_provider_queries_total"),
        warn=0.1,
        bad=0.5,
    ),
    stat(
        "Values too late",
        "Share stored more than two seconds after they were due.",
        "percentunit",
        "1 - "
        + rate("harbourmaster_metric_lateness_seconds_bucket", where='le="2.0"')
        + " / "
        + rate("harbourmaster_metric_lateness_seconds_count"),
        warn=0.01,
        bad=0.05,
    ),
    stat(
        "Evaluations under way",
        "In any phase.",
        "none",
        latest(f"{_EVALUATIONS}_active"),
    ),
    Panel(
        "Queries by outcome",
        "Answered, or why there is no answer.",
        "reqps",
        series("harbourmaster_provider_queries_total", "provider, outcome"),
    ),
    Panel(
        "Time to an answer",
        "Of providers, p95, the wait for a turn included.",
        "s",
        (
            (
                quantile(0.95, "harbourmaster_provider_query_duration_seconds", "provider"),
                "{{provider}}",
            ),
        ),
    ),
    Panel(
        "Values late by",
        "From the time at which a metric was due until its value was stored.",
        "s",
        quantiles("harbourmaster_metric_lateness_seconds"),
    ),
    Panel(
        "Evaluations that ended",
        "By their state.",
        "none",
        (
            (
                increased(f"{_EVALUATIONS}_count_total", "keptn_deployment_evaluation_status"),
                "{{keptn_deployment_evaluation_status}}",
            ),
        ),
    ),
    Panel(
        "Evaluations took",
        "p95 of those that ended.",
        "s",
        (
            (
                quantile(
                    0.95,
                    f"{_EVALUATIONS}_duration_seconds",
                    "keptn_deployment_evaluation_name",
                ),
                "{{keptn_deployment_evaluation_name}}",
            ),
        ),
    ),
    Panel(
        "Analyses",
        "Score in percent of the highest.",
        "percent",
        (("max by (name) (keptn_analysis_result)", "{{name}}"),),
        "table",
    ),
    Panel(
        "Objectives of analyses",
        "What was measured.",
        "none",
        (
            (
                "max by (analysis_name, name) (keptn_objective_result)",
                "{{analysis_name}} {{name}}",
            ),
        ),
        "table",
    ),
)
