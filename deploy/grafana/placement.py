"""Which cluster applications go to."""

from __future__ import annotations

from typing import Final

from deploy.grafana.panel import Panel, gauge, latest, quantile, quantiles, rate, series, stat

PANELS: Final = (
    stat(
        "Decisions a second",
        "About where an application or cluster goes.",
        "ops",
        rate("harbourmaster_placement_decisions_total"),
    ),
    stat(
        "Queries without a value",
        "Of metrics that placement ranks by: what has none counts for nothing.",
        "none",
        latest("harbourmaster_placement_metrics_without_value", how="max"),
        warn=1,
        bad=10,
    ),
    stat(
        "Slowest in a hundred",
        "Time to decide, p99. It should stay below half a second.",
        "s",
        quantile(0.99, "harbourmaster_placement_decision_duration_seconds"),
        warn=0.1,
        bad=0.512,
    ),
    Panel(
        "Decisions by outcome",
        "See: harbourmaster placement why.",
        "ops",
        series("harbourmaster_placement_decisions_total", "kind, outcome"),
    ),
    Panel(
        "Time to decide",
        "Median and tail.",
        "s",
        quantiles("harbourmaster_placement_decision_duration_seconds"),
    ),
    Panel(
        "Queries without a value",
        "Where it stays up, a provider or a metric is wrong.",
        "none",
        gauge("harbourmaster_placement_metrics_without_value", "pod", "max"),
    ),
)
