"""How both processes are: leadership, queues, watches, requests, certificates."""

from __future__ import annotations

from typing import Final

from deploy.grafana.panel import (
    Panel,
    gauge,
    increased,
    latest,
    ours,
    quantile,
    rate,
    selected,
    series,
    stat,
)

PANELS: Final = (
    stat(
        "Leaders",
        "One controller leads; without one nothing is written.",
        "none",
        latest("harbourmaster_leader"),
        warn=1,
        bad=0.5,
    ),
    stat(
        "Break-glass",
        "1 while webhooks fail open because somebody said so.",
        "none",
        latest("harbourmaster_break_glass", how="max"),
        warn=1,
        bad=1,
    ),
    stat(
        "Oldest sign of life",
        "Of all watches; above five minutes what is known is stale.",
        "s",
        latest("harbourmaster_cache_age_seconds", how="max"),
        warn=60,
        bad=300,
    ),
    stat(
        "Keys that wait",
        "In all work queues.",
        "none",
        latest("harbourmaster_workqueue_depth"),
        warn=100,
        bad=1000,
    ),
    stat(
        "Restarts of controllers",
        "After a crash; in a day.",
        "none",
        increased("harbourmaster_controller_restarts_total", within="1d"),
        warn=1,
        bad=5,
    ),
    stat(
        "Authority ends in",
        "That of the certificates.",
        "s",
        latest("harbourmaster_certificate_expiry_seconds", how="min", where='role="authority"'),
        warn=60 * 86400,
        bad=30 * 86400,
    ),
    Panel(
        "Looks that failed",
        "By controller and class of the error.",
        "ops",
        series("harbourmaster_reconcile_errors_total", "controller, error"),
    ),
    Panel(
        "Work queues",
        "Keys that wait.",
        "none",
        gauge("harbourmaster_workqueue_depth", "queue"),
    ),
    Panel(
        "Tried again",
        "Keys that failed.",
        "ops",
        series("harbourmaster_workqueue_retries_total", "queue"),
    ),
    Panel(
        "Keys waited",
        "p95 by queue.",
        "s",
        ((quantile(0.95, "harbourmaster_workqueue_wait_seconds", "queue"), "{{queue}}"),),
    ),
    Panel(
        "Keys were worked on",
        "p95 by queue.",
        "s",
        ((quantile(0.95, "harbourmaster_workqueue_work_seconds", "queue"), "{{queue}}"),),
    ),
    Panel(
        "Restarts",
        "Controllers that were started again after a crash.",
        "ops",
        series("harbourmaster_controller_restarts_total", "controller"),
    ),
    Panel(
        "Requests to the API server",
        "By verb and status; none is no answer.",
        "reqps",
        series("harbourmaster_api_requests_total", "verb, code"),
    ),
    Panel(
        "Time to an answer of the API server",
        "p95 by verb.",
        "s",
        ((quantile(0.95, "harbourmaster_api_request_duration_seconds", "verb"), "{{verb}}"),),
    ),
    Panel(
        "Objects mirrored",
        "By resource.",
        "none",
        gauge("harbourmaster_cached_objects", "resource", "max"),
    ),
    Panel(
        "Watches heard last",
        "Time since the last sign of life.",
        "s",
        gauge("harbourmaster_cache_age_seconds", "resource", "max"),
    ),
    Panel(
        "Watch events",
        "Bookmarks included.",
        "ops",
        series("harbourmaster_watch_events_total", "resource"),
    ),
    Panel(
        "Watches that failed, and whole lists",
        "A list is taken whole after each gap.",
        "ops",
        (
            (
                rate("harbourmaster_watch_failures_total", "resource, error"),
                "{{resource}} {{error}}",
            ),
            (rate("harbourmaster_watch_lists_total", "resource"), "{{resource}} listed"),
            (
                rate("harbourmaster_undecodable_objects_total", "resource"),
                "{{resource}} unreadable",
            ),
        ),
    ),
    Panel(
        "Kinds that are missing",
        "1 where the API server does not know one.",
        "none",
        gauge("harbourmaster_resource_absent", "resource", "max"),
    ),
    Panel(
        "Events on objects",
        "By what became of them.",
        "ops",
        series("harbourmaster_events_total", "outcome"),
    ),
    Panel(
        "Registration repaired",
        "Fields of our webhook configurations that others changed, and those that they fight for.",
        "ops",
        (
            (rate("harbourmaster_registration_repairs_total", "kind, field"), "{{kind}} {{field}}"),
            (rate("harbourmaster_field_fights_total", "kind, field"), "fight: {{kind}} {{field}}"),
        ),
    ),
    Panel(
        "Certificates",
        "Time until they end, and new ones that could not be used.",
        "s",
        (
            *gauge("harbourmaster_certificate_expiry_seconds", "role", "min"),
            (rate("harbourmaster_certificate_reload_errors_total"), "not loaded"),
        ),
    ),
    Panel(
        "Memory",
        "Of each process.",
        "bytes",
        (
            (
                ours(selected("process_resident_memory_bytes")),
                "{{pod}} {{job}}",
            ),
        ),
    ),
    Panel(
        "CPU",
        "Cores of each process.",
        "none",
        (
            (
                ours(f"rate({selected('process_cpu_seconds_total')}[$__rate_interval])"),
                "{{pod}} {{job}}",
            ),
        ),
    ),
    Panel(
        "Spans",
        "Of traces, by what became of them.",
        "ops",
        series("harbourmaster_spans_total", "outcome"),
    ),
    Panel(
        "Versions",
        "Processes of each.",
        "none",
        ((f"count by (version) ({selected('harbourmaster_build_info')})", "{{version}}"),),
        "table",
    ),
)
