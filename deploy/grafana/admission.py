"""The webhook: what it answers, how fast, and how much of a month's allowance that takes."""

from __future__ import annotations

from typing import Final

from deploy.grafana.panel import (
    Panel,
    gauge,
    latest,
    quantile,
    quantiles,
    rate,
    selected,
    series,
    stat,
)

OBJECTIVE: Final = 0.0005
"""Of all reviews, those that may be late."""
_DURATION: Final = "harbourmaster_admission_duration_seconds"
_MISSED: Final = "harbourmaster:admission_missed:ratio_rate"

PANELS: Final = (
    stat("Reviews a second", "All replicas.", "reqps", rate(f"{_DURATION}_count")),
    stat(
        "Slowest in a hundred",
        "Time to answer, p99. The objective is 500 ms.",
        "s",
        quantile(0.99, _DURATION),
        warn=0.1,
        bad=0.5,
    ),
    stat(
        "Budget burns",
        "How many times as fast as a month allows, over the last hour; 14.4 calls somebody.",
        "x",
        f"max({_MISSED}1h) / {OBJECTIVE}",
        warn=1,
        bad=14.4,
    ),
    stat(
        "Invalid policies",
        "Left out; the others work.",
        "none",
        latest("harbourmaster_policies_invalid", how="max"),
        warn=1,
        bad=10,
    ),
    stat(
        "Certificate ends in",
        "The webhook's own; it is renewed after two thirds of its life.",
        "s",
        latest("harbourmaster_certificate_expiry_seconds", how="min", where='role="leaf"'),
        warn=2 * 86400,
        bad=36 * 3600,
    ),
    stat(
        "Replicas",
        "Webhook processes that are scraped.",
        "none",
        f"count({selected('harbourmaster_policies_invalid')})",
        warn=2,
        bad=1,
    ),
    Panel(
        "Reviews by outcome",
        "What became of them.",
        "reqps",
        series(f"{_DURATION}_count", "outcome"),
    ),
    Panel("Time to answer", "Median and tail, all outcomes.", "s", quantiles(_DURATION)),
    Panel(
        "Budget by window",
        "Above 1 the month's allowance does not last.",
        "x",
        tuple(
            (f"max({_MISSED}{window}) / {OBJECTIVE}", window) for window in ("5m", "1h", "6h", "3d")
        ),
    ),
    Panel(
        "Refused for overload",
        "Requests that were turned away, by what was too much.",
        "reqps",
        series("harbourmaster_requests_shed_total", "reason"),
    ),
    Panel(
        "Policies that select most",
        "Reviews a second that a policy selects; the ten that select most.",
        "reqps",
        (
            (
                f"topk(10, {rate('harbourmaster_policy_matches_total', 'policy')})",
                "{{policy}}",
            ),
        ),
    ),
    Panel(
        "Left out, or done at a price",
        "Notes given to users, by their code.",
        "reqps",
        series("harbourmaster_admission_skipped_total", "reason"),
    ),
    Panel(
        "Operations in a patch",
        "How much is changed in one object.",
        "none",
        quantiles("harbourmaster_admission_patch_operations"),
    ),
    Panel(
        "Policies known",
        "By kind, invalid ones included; each replica should know as many.",
        "none",
        gauge("harbourmaster_policies", "kind", "max"),
    ),
    Panel(
        "Event loop late by",
        "A process whose loop is late lets every review wait; over 250 ms it refuses some.",
        "s",
        gauge("harbourmaster_event_loop_lag_seconds", "pod", "max"),
    ),
    Panel(
        "Connections",
        "Of the TLS port; an API server keeps its own for long.",
        "none",
        gauge("harbourmaster_connections", "pod"),
    ),
    Panel(
        "Conversions",
        "Of Keptn's kinds between versions.",
        "reqps",
        series("harbourmaster_conversions_total", "outcome"),
    ),
    Panel(
        "Reviews recorded",
        "With --record: written for replay, or left out.",
        "reqps",
        series("harbourmaster_recorded_reviews_total", "outcome"),
    ),
    Panel(
        "Requests as kupid counts them",
        "For dashboards that came from there.",
        "reqps",
        series("kupid_aggr_requests_total", "type"),
    ),
)
