"""The metrics of a target in one pass (krake-spec 3.5, 3.9).

All or nothing: a target with one metric without a value is not measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from harbourmaster.api.metadata import Metadata
from harbourmaster.placement.cluster_queries import cluster_query
from harbourmaster.placement.model import Term
from harbourmaster.placement.snapshot import MetricFault, key_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from harbourmaster.placement.model import MetricReference, MetricSpec
    from harbourmaster.placement.snapshot import ObjectKey, Reading, Snapshot

STATIC = "static"
_NO_CLUSTER = Metadata()


class Measurement(Struct, frozen=True, gc=False):
    """The terms of a score, or its faults; neither for a target without metrics.

    ``weighted`` is the sum of the terms, ``weight`` that of their weights. For each name,
    ``by_name`` prefers an own term to an inherited one, then the last.
    """

    terms: tuple[Term, ...] = ()
    faults: tuple[tuple[str, MetricFault], ...] = ()
    fault: str = ""
    """All faults in a line."""
    by_name: Mapping[str, Term] = {}
    weighted: float = 0.0
    weight: float = 0.0


class Measuring:
    """Measures targets; each metric is read and normalised once."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._known: dict[ObjectKey, tuple[float, float] | MetricFault] = {}
        metrics = snapshot.metrics.items()
        self._per_cluster = {key for key, metric in metrics if metric.spec.provider.is_per_cluster}

    def measure(
        self,
        namespace: str,
        own: Iterable[MetricReference],
        inherited: Iterable[MetricReference] = (),
        cluster: Metadata = _NO_CLUSTER,
    ) -> Measurement:
        """Measure a target; for a metric that is own and inherited, the own weight counts.

        ``cluster`` has the labels of a cluster, and no name for other targets.
        """
        owned = tuple(own)
        names = {(reference.scope, reference.name) for reference in owned}
        terms, faults = [], []
        for reference, is_inherited in (
            *((reference, False) for reference in owned),
            *(
                (reference, True)
                for reference in inherited
                if (reference.scope, reference.name) not in names
            ),
        ):
            normalised = self._normalise(namespace, reference, cluster)
            if isinstance(normalised, MetricFault):
                faults.append((reference.name, normalised))
                continue
            terms.append(
                Term(
                    metric=reference.name,
                    scope=reference.scope,
                    weight=reference.weight,
                    value=normalised[0],
                    normalised=normalised[1],
                    inherited=is_inherited,
                )
            )
        if faults:
            return _fail(faults)
        return _weigh(tuple(terms))

    def _normalise(
        self, namespace: str, wanted: MetricReference, cluster: Metadata
    ) -> tuple[float, float] | MetricFault:
        """The raw and the normalised value of a metric."""
        if wanted.scope == "Namespaced" and not namespace:
            text = f"'{wanted.name}' has a namespace, but a global object needs global metrics"
            return MetricFault("InvalidMetric", text)
        key = (namespace if wanted.scope == "Namespaced" else "", wanted.name)
        normalised = None if key in self._per_cluster else self._known.get(key)
        if normalised is None:
            normalised = self._known[key] = self._read(key, cluster)
        return normalised

    def _read(self, key: ObjectKey, cluster: Metadata) -> tuple[float, float] | MetricFault:
        metric = self._snapshot.metrics.get(key)
        if metric is None:
            kind = "Metric" if key[0] else "GlobalMetric"
            is_scoped = not key[0] and (cluster.namespace, key[1]) in self._snapshot.metrics
            to_do = ", but a Metric: set scope: Namespaced" if is_scoped else ""
            return MetricFault("UnknownMetric", f"there is no {kind} '{key[1]}'{to_do}")
        source, readings = metric.spec.provider, self._snapshot.readings
        reading, query = readings.get(key), source.metric
        if key in self._per_cluster:
            provider = self._snapshot.providers.get((key[0], source.name))
            own = cluster_query(key[1], source, provider, cluster)
            if isinstance(own, MetricFault):
                return own
            reading, query = readings.get((*key, *key_of(cluster)), reading), own
        if reading is None:
            reading = self._static_value(key, source.name, query)
        if isinstance(reading, MetricFault):
            return reading
        normalised = normalise(metric.spec, reading, key[1])
        return normalised if isinstance(normalised, MetricFault) else (reading, normalised)

    def _static_value(self, key: ObjectKey, name: str, query: str) -> Reading:
        """The value where it was not fetched yet: only static ones are known."""
        provider = self._snapshot.providers.get((key[0], name))
        if provider is None:
            kind = "MetricsProvider" if key[0] else "GlobalMetricsProvider"
            text = f"there is no {kind} '{name}', which has '{key[1]}'"
            return MetricFault("UnknownMetricsProvider", text)
        if provider.spec.type != STATIC or provider.spec.static is None:
            text = f"there is no value of '{key[1]}' yet"
            return MetricFault("UnreachableMetricsProvider", text)
        value = provider.spec.static.metrics.get(query)
        if value is None:
            return MetricFault("InvalidMetric", f"'{name}' has no value '{query}'")
        return value


def normalise(spec: MetricSpec, value: float, name: str) -> float | MetricFault:
    """The value normalised to its bounds, from 0 to 1."""
    low, high = spec.min, spec.max
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        return _invalid(f"the bounds of '{name}' are {low:g} to {high:g}: max must be above min")
    if not math.isfinite(value):
        return _invalid(f"the value of '{name}' is {value:g}, which is not a number")
    if not low <= value <= high:
        text = f"the value {value:g} of '{name}' is not within {low:g} to {high:g}"
        return _invalid(f"{text}: correct min, max or the query of the metric")
    if spec.allowed_values and value not in spec.allowed_values:
        return _invalid(f"the value {value:g} of '{name}' is not one of the allowed values")
    if math.isinf(high - low):
        return (value / 2 - low / 2) / (high / 2 - low / 2)
    return (value - low) / (high - low)


def _weigh(terms: tuple[Term, ...]) -> Measurement:
    if not terms:
        return Measurement()
    # Sums that don't depend on the order of the metrics.
    try:
        weighted = math.fsum(term.normalised * term.weight for term in terms)
        weight = math.fsum(term.weight for term in terms)
    except (OverflowError, ValueError):
        weight = weighted = math.inf
    if not (math.isfinite(weighted) and math.isfinite(weight)) or weight == 0:
        names = ", ".join(term.metric for term in terms)
        fault = _invalid(f"the weights of {names} add up to {weight:g}: one must be above 0")
        return _fail([(term.metric, fault) for term in terms])
    by_name: dict[str, Term] = {}
    # The own ones come last.
    for term in sorted(terms, key=lambda term: not term.inherited):
        by_name[term.metric] = term
    return Measurement(terms, by_name=by_name, weighted=weighted, weight=weight)


def _fail(faults: Sequence[tuple[str, MetricFault]]) -> Measurement:
    told = "; ".join(dict.fromkeys(str(fault) for _, fault in faults))
    return Measurement(faults=tuple(faults), fault=told)


def _invalid(text: str) -> MetricFault:
    return MetricFault("InvalidMetric", text)
