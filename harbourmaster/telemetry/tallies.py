"""Counts of the hot path: plain additions per review, turned into metric families when scraped.

A prometheus_client child costs a lock and a method chain for each of several metrics; here one
call keeps them all, and kupid's counter is worked out from the outcomes. Not for threads.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from prometheus_client.core import Metric

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
"""Seconds: fine around the goals of 3 and 15 ms, up to the longest time an API server waits."""
_OPERATION_BUCKETS: Final = (0, 1, 2, 3, 5, 8, 13, 21, 50, 100)


class Distribution:
    """A histogram of one label value: counts by upper bound, and the sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        """Values observed."""
        return sum(self.counts)

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative counts by upper bound, as the text format wants them."""
        found: list[tuple[str, float]] = []
        below = 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            below += count
            found.append(("+Inf" if bound == float("inf") else str(float(bound)), below))
        return found


class AdmissionTallies(Collector):
    """Durations by outcome, patch sizes, and what follows from them."""

    def __init__(self, outcomes: Iterable[str]) -> None:
        self.durations = {outcome: Distribution(_DURATION_BUCKETS) for outcome in outcomes}
        """By outcome; seconds from the request's headers to the answer."""
        self.operations = Distribution(_OPERATION_BUCKETS)
        self.matches: Counter[str] = Counter()
        """By policy."""
        self.audits: Counter[tuple[str, str]] = Counter()
        """By policy in Audit mode and result."""
        self.references: Callable[[], AbstractSet[str]] = self.matches.keys
        """The policies that exist; the others are forgotten when metrics are collected."""

    def collect(self) -> Iterable[Metric]:
        """The metric families with the current values."""
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
        for outcome, found in self.durations.items():
            durations.add_metric([outcome], found.buckets(), found.total)
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
        counts = {outcome: found.count for outcome, found in self.durations.items()}
        kupid.add_metric(["processed"], sum(counts.values()))
        for name, outcomes in _KUPID_TYPES.items():
            kupid.add_metric([name], sum(counts.get(outcome, 0) for outcome in outcomes))
        yield kupid
