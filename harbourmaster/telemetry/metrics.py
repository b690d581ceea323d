"""All metrics in one place, in a registry of their own; what the hot path touches is pre-bound."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
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

from harbourmaster.telemetry.span_model import SPAN_OUTCOMES
from harbourmaster.telemetry.tallies import AdmissionTallies

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime


SHED_REASONS: Final = ("requests", "bytes", "lag")
EVICTION_REASONS: Final = ("connections", "bytes")
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
    connections_evicted: Mapping[str, Counter]
    """By reason."""
    spans: Counter
    """Label ``outcome``, see SPAN_OUTCOMES."""
    recorded: Mapping[str, Counter]
    """By outcome, see RECORD_OUTCOMES."""


def create_metrics(version: str, outcomes: Sequence[str] = ()) -> Metrics:
    """A new registry with all metrics, counters at 0; ``outcomes`` are those of reviews."""
    registry = create_registry(version)
    counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
    admission = AdmissionTallies(outcomes)
    registry.register(admission)
    shed = counter(
        "harbourmaster_requests_shed_total", "Requests refused because of overload.", ("reason",)
    )
    evicted = counter(
        "harbourmaster_connections_evicted_total",
        "Connections of the TLS port that were closed to make room for others.",
        ("reason",),
    )
    conversions = counter(
        "harbourmaster_conversions_total", "Conversion reviews by outcome.", ("outcome",)
    )
    for outcome in CONVERSION_OUTCOMES:
        conversions.labels(outcome)
    recorded = counter(
        "harbourmaster_recorded_reviews_total",
        "Reviews selected for recording by outcome.",
        ("outcome",),
    )
    return Metrics(
        registry=registry,
        admission=admission,
        admission_skipped=counter(
            "harbourmaster_admission_skipped_total",
            "Skipped parts of mutations by code.",
            ("reason",),
        ),
        policies=gauge(
            "harbourmaster_policies", "Loaded policies, including invalid ones.", ("kind",)
        ),
        bad_documents=gauge(
            "harbourmaster_bad_documents", "Invalid documents in the source files."
        ),
        policies_invalid=gauge(
            "harbourmaster_policies_invalid", "Policies that are skipped because they are invalid."
        ),
        certificate_expiry=certificate_expiry(registry),
        certificate_reload_errors=counter(
            "harbourmaster_certificate_reload_errors_total",
            "New certificates that could not be used.",
        ),
        event_loop_lag=event_loop_lag(registry),
        requests_shed={reason: shed.labels(reason) for reason in SHED_REASONS},
        conversions=conversions,
        connections=gauge("harbourmaster_connections", "Open connections of the TLS port."),
        connections_evicted={reason: evicted.labels(reason) for reason in EVICTION_REASONS},
        spans=span_counter(registry),
        recorded={outcome: recorded.labels(outcome) for outcome in RECORD_OUTCOMES},
    )


def create_registry(version: str) -> CollectorRegistry:
    """A registry with what every process tells of itself."""
    # No *_created series, which double the output.
    disable_created_metrics()  # type: ignore[no-untyped-call]
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    info = Gauge("harbourmaster_build_info", "Always 1.", ("version",), registry=registry)
    info.labels(version).set(1)
    return registry


def certificate_expiry(registry: CollectorRegistry) -> Gauge:
    """The gauge that both processes have; label ``role``."""
    text = "Time until the certificate expires, negative afterwards."
    return Gauge("harbourmaster_certificate_expiry_seconds", text, ("role",), registry=registry)


def event_loop_lag(registry: CollectorRegistry) -> Gauge:
    """The gauge that both processes have."""
    text = "Delay of the last heartbeat of the event loop."
    return Gauge("harbourmaster_event_loop_lag_seconds", text, registry=registry)


def span_counter(registry: CollectorRegistry) -> Counter:
    """The counter that both processes have, each outcome at 0."""
    text = "Spans by outcome."
    spans = Counter("harbourmaster_spans_total", text, ("outcome",), registry=registry)
    for outcome in SPAN_OUTCOMES:
        spans.labels(outcome)
    return spans


def set_certificate_expiry(metrics: Metrics, role: str, not_after: datetime) -> None:
    """Set the expiry of a ``role``, ``authority`` or ``leaf``; the gauge is computed when read."""
    end = not_after.timestamp()
    metrics.certificate_expiry.labels(role).set_function(lambda: end - time.time())
