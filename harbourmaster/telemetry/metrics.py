"""The metrics of the webhook process, in a registry of their own.

Children that each review touches are bound in advance. ``AdmissionCollector`` counts reviews by
plain additions, because children of prometheus_client cost a lock and several calls each. It is
not for threads.
"""

from __future__ import annotations

import collections
import time
from bisect import bisect_left
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
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from harbourmaster.telemetry.span_model import SPAN_OUTCOMES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from collections.abc import Set as AbstractSet
    from datetime import datetime

    from prometheus_client.core import Metric

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
_KUPID_TYPES: Final = {
    "allowed": ("mutated", "gated", "unmatched", "valid"),
    "denied": ("invalid", "denied"),
    "mutated": ("mutated", "gated"),
    "error": ("skipped", "malformed"),
}
"""Outcomes that count as each type; ``processed`` counts all."""

_DURATION_BUCKETS: Final = (
    *(0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.015, 0.025),
    *(0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
"""Seconds: fine around the goals of 3 and 15 ms, up to the longest time-out of an API server."""
_OPERATION_BUCKETS: Final = (0, 1, 2, 3, 5, 8, 13, 21, 50, 100)


class Metrics(Struct, frozen=True):
    """The metrics of one process; mappings have one child for each value of the label."""

    registry: CollectorRegistry
    admission: AdmissionCollector
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
    """Counters by reason."""
    conversions: Counter
    """Label ``outcome``."""
    connections: Gauge
    connections_evicted: Mapping[str, Counter]
    """Counters by reason."""
    spans: Counter
    """Label ``outcome``, see SPAN_OUTCOMES."""
    recorded: Mapping[str, Counter]
    """Counters by outcome, see RECORD_OUTCOMES."""


def create_metrics(version: str, outcomes: Sequence[str] = ()) -> Metrics:
    """Create a registry with all metrics, counters at 0; ``outcomes`` are those of reviews."""
    registry = create_registry(version)
    counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
    admission = AdmissionCollector(outcomes)
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
    """Create a registry with the metrics of every process."""
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
    """Create the gauge of expiry times, which both processes have; label ``role``."""
    text = "Time until the certificate expires, negative afterwards."
    return Gauge("harbourmaster_certificate_expiry_seconds", text, ("role",), registry=registry)


def event_loop_lag(registry: CollectorRegistry) -> Gauge:
    """Create the gauge of the lag of the event loop, which both processes have."""
    text = "Delay of the last heartbeat of the event loop."
    return Gauge("harbourmaster_event_loop_lag_seconds", text, registry=registry)


def span_counter(registry: CollectorRegistry) -> Counter:
    """Create the counter of spans, which both processes have, each outcome at 0."""
    text = "Spans by outcome."
    spans = Counter("harbourmaster_spans_total", text, ("outcome",), registry=registry)
    for outcome in SPAN_OUTCOMES:
        spans.labels(outcome)
    return spans


def set_certificate_expiry(metrics: Metrics, role: str, not_after: datetime) -> None:
    """Set the expiry of a ``role``, ``authority`` or ``leaf``; the gauge is computed when read."""
    end = not_after.timestamp()
    metrics.certificate_expiry.labels(role).set_function(lambda: end - time.time())


class Distribution:
    """A histogram of one label value: counts by upper bound, and the sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count a value that occurred so many times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    @property
    def count(self) -> int:
        """Number of observed values."""
        return sum(self.counts)

    def buckets(self) -> list[tuple[str, float]]:
        """Return cumulative counts by upper bound, as the text format requires."""
        buckets: list[tuple[str, float]] = []
        below = 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            below += count
            buckets.append(("+Inf" if bound == float("inf") else str(float(bound)), below))
        return buckets


class AdmissionCollector(Collector):
    """Collects durations by outcome, sizes of patches, and kupid's counter."""

    def __init__(self, outcomes: Iterable[str]) -> None:
        self.durations = {outcome: Distribution(_DURATION_BUCKETS) for outcome in outcomes}
        """Distributions by outcome, in seconds from the request's headers to the answer."""
        self.operations = Distribution(_OPERATION_BUCKETS)
        self.matches: collections.Counter[str] = collections.Counter()
        """Number of matches by policy."""
        self.audits: collections.Counter[tuple[str, str]] = collections.Counter()
        """Number of audits by policy and result."""
        self.references: Callable[[], AbstractSet[str]] = self.matches.keys
        """Returns the policies that exist; others are removed when metrics are collected."""

    def collect(self) -> Iterable[Metric]:
        """Yield the metric families with the current values."""
        known = self.references()
        for gone in self.matches.keys() - known:
            del self.matches[gone]
        for counted in [audit for audit in self.audits if audit[0] not in known]:
            del self.audits[counted]
        durations = HistogramMetricFamily(
            "harbourmaster_admission_duration_seconds",
            "Time to answer one admission review.",
            labels=["outcome"],
        )
        for outcome, distribution in self.durations.items():
            durations.add_metric([outcome], distribution.buckets(), distribution.total)
        yield durations
        yield HistogramMetricFamily(
            "harbourmaster_admission_patch_operations",
            "JSON Patch operations of an answer.",
            buckets=self.operations.buckets(),
            sum_value=self.operations.total,
        )
        matches = CounterMetricFamily(
            "harbourmaster_policy_matches_total",
            "Reviews that a policy selected.",
            labels=["policy"],
        )
        for reference, count in self.matches.items():
            matches.add_metric([reference], count)
        yield matches
        audits = CounterMetricFamily(
            "harbourmaster_policy_audits_total",
            "Evaluations of policies in Audit mode, which change nothing.",
            labels=["policy", "result"],
        )
        for labels, count in self.audits.items():
            audits.add_metric(labels, count)
        yield audits
        # kupid's own counter, for its dashboards (kupid-spec 6.9).
        kupid = CounterMetricFamily(
            "kupid_aggr_requests_total", "Requests as kupid counts them.", labels=["type"]
        )
        counts = {outcome: distribution.count for outcome, distribution in self.durations.items()}
        kupid.add_metric(["processed"], sum(counts.values()))
        for name, outcomes in _KUPID_TYPES.items():
            kupid.add_metric([name], sum(counts.get(outcome, 0) for outcome in outcomes))
        yield kupid
