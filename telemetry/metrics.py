"""All metrics in one place, in a registry of their own; what the hot path touches is pre-bound."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)

from harbourmaster.telemetry.tallies import AdmissionTallies
from harbourmaster.telemetry.tracing import SPAN_OUTCOMES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

ADMISSION_SKIPPED: Final = "harbourmaster_admission_skipped_total"
POLICIES: Final = "harbourmaster_policies"
POLICIES_INVALID: Final = "harbourmaster_policies_invalid"
BAD_DOCUMENTS: Final = "harbourmaster_bad_documents"
CERTIFICATE_EXPIRY: Final = "harbourmaster_certificate_expiry_seconds"
CERTIFICATE_RELOAD_ERRORS: Final = "harbourmaster_certificate_reload_errors_total"
EVENT_LOOP_LAG: Final = "harbourmaster_event_loop_lag_seconds"
REQUESTS_SHED: Final = "harbourmaster_requests_shed_total"
CONVERSIONS: Final = "harbourmaster_conversions_total"
CONNECTIONS: Final = "harbourmaster_connections"
BUILD_INFO: Final = "harbourmaster_build_info"
SPANS: Final = "harbourmaster_spans_total"
RECORDED_REVIEWS: Final = "harbourmaster_recorded_reviews_total"

OUTCOMES: Final = (
    "mutated",
    "gated",
    "unchanged",
    "unmatched",
    "skipped",
    "denied",
    "valid",
    "invalid",
    "malformed",
)
SHED_REASONS: Final = ("requests", "bytes", "lag")
CONVERSION_OUTCOMES: Final = ("converted", "failed")
CERTIFICATE_ROLES: Final = ("authority", "leaf")
WRITTEN: Final = "written"
NOT_KEPT: Final = "not_kept"
TOO_LARGE: Final = "too_large"
QUEUE_FULL: Final = "queue_full"
UNFAITHFUL: Final = "unfaithful"
FAILED: Final = "failed"
RECORD_OUTCOMES: Final = (WRITTEN, NOT_KEPT, TOO_LARGE, QUEUE_FULL, UNFAITHFUL, FAILED)
"""Outcomes of recording a review."""


class Metrics(Struct, frozen=True):
    """The metrics of one process; mappings have one child for each value of the label."""

    registry: CollectorRegistry
    admission: AdmissionTallies
    admission_skipped: Counter
    """Label ``reason``."""
    policies: Gauge
    """Label ``kind``."""
    policies_invalid: Gauge
    bad_documents: Gauge
    certificate_expiry: Gauge
    """Label ``role``; set by ``set_certificate_expiry``."""
    certificate_reload_errors: Counter
    event_loop_lag: Gauge
    requests_shed: Mapping[str, Counter]
    """By reason."""
    conversions: Counter
    """Label ``outcome``."""
    connections: Gauge
    spans: Counter
    """Label ``outcome``, see SPAN_OUTCOMES."""
    recorded: Mapping[str, Counter]
    """By outcome, see RECORD_OUTCOMES."""


def create_metrics(version: str, outcomes: Sequence[str] = OUTCOMES) -> Metrics:
    """A new registry with all metrics, counters at 0."""
    # No *_created series, which double the output.
    disable_created_metrics()  # type: ignore[no-untyped-call]
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    Gauge(BUILD_INFO, "Always 1.", ("version",), registry=registry).labels(version).set(1)
    admission = AdmissionTallies(outcomes)
    registry.register(admission)
    shed = Counter(
        REQUESTS_SHED, "Requests refused because of overload.", ("reason",), registry=registry
    )
    conversions = Counter(
        CONVERSIONS, "Conversion reviews by outcome.", ("outcome",), registry=registry
    )
    for outcome in CONVERSION_OUTCOMES:
        conversions.labels(outcome)
    recorded = Counter(
        RECORDED_REVIEWS,
        "Reviews selected for recording by outcome.",
        ("outcome",),
        registry=registry,
    )
    return Metrics(
        registry=registry,
        admission=admission,
        admission_skipped=Counter(
            ADMISSION_SKIPPED,
            "Skipped parts of mutations by code.",
            ("reason",),
            registry=registry,
        ),
        policies=Gauge(
            POLICIES, "Loaded policies, including invalid ones.", ("kind",), registry=registry
        ),
        bad_documents=Gauge(
            BAD_DOCUMENTS, "Invalid documents in the source files.", registry=registry
        ),
        policies_invalid=Gauge(
            POLICIES_INVALID,
            "Policies that are skipped because they are invalid.",
            registry=registry,
        ),
        certificate_expiry=Gauge(
            CERTIFICATE_EXPIRY,
            "Time until the certificate expires, negative afterwards.",
            ("role",),
            registry=registry,
        ),
        certificate_reload_errors=Counter(
            CERTIFICATE_RELOAD_ERRORS,
            "New certificates that could not be used.",
            registry=registry,
        ),
        event_loop_lag=event_loop_lag(registry),
        requests_shed={reason: shed.labels(reason) for reason in SHED_REASONS},
        conversions=conversions,
        connections=Gauge(CONNECTIONS, "Open connections of the TLS port.", registry=registry),
        spans=span_counter(registry),
        recorded={outcome: recorded.labels(outcome) for outcome in RECORD_OUTCOMES},
    )


def event_loop_lag(registry: CollectorRegistry) -> Gauge:
    """The gauge that both processes have."""
    return Gauge(
        EVENT_LOOP_LAG, "Delay of the last heartbeat of the event loop.", registry=registry
    )


def span_counter(registry: CollectorRegistry) -> Counter:
    """The counter that both processes have, each outcome at 0."""
    spans = Counter(SPANS, "Spans by outcome.", ("outcome",), registry=registry)
    for outcome in SPAN_OUTCOMES:
        spans.labels(outcome)
    return spans


def set_certificate_expiry(metrics: Metrics, role: str, not_after: datetime) -> None:
    """Set the expiry of a ``role``, ``authority`` or ``leaf``; the gauge is computed when read."""
    end = not_after.timestamp()
    metrics.certificate_expiry.labels(role).set_function(lambda: end - time.time())
