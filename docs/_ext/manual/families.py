"""The metrics of both processes, each with one sample: names, types, labels and what they mean."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Histogram, disable_created_metrics

from harbourmaster.api.metadata import Metadata
from harbourmaster.controller.evaluation.collectors import (
    ANALYSIS,
    OBJECTIVE,
    AnalysisCollector,
    AnalysisResults,
    QueryMetrics,
    create_lateness,
)
from harbourmaster.controller.extender.extender import ExtenderMetrics
from harbourmaster.controller.lifecycle.metrics import (
    DEPLOYMENTS,
    FINISHED,
    KEYS,
    GaugeValues,
    LifecycleMetrics,
)
from harbourmaster.controller.placement.metrics import PlacementMetrics, PlacementStates
from harbourmaster.controller.rescheduling.notices import ReschedulingMetrics
from harbourmaster.placement.deployed import DeployedApplication, MemberCluster
from harbourmaster.policies.model import POLICY
from harbourmaster.telemetry.controller_metrics import create_controller_metrics
from harbourmaster.telemetry.metrics import create_metrics, set_certificate_expiry
from harbourmaster.webhook import verdict
from manual.markdown import code, definitions, plain

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


class Mirror:
    """A stand-in for the caches that the metrics of watches read."""

    name = "pods"
    absent = False
    last_contact = 0.0
    store: tuple[object, ...] = ()


def server_families() -> list[Metric]:
    """Return the metrics of ``server files`` and the webhook."""
    metrics = create_metrics("1", verdict.OUTCOMES)
    # Those with a label show nothing before its first value.
    metrics.admission_skipped.labels("deadline").inc()
    metrics.policies.labels(POLICY).set(1)
    metrics.admission.matches["ClusterPodSchedulingPolicy web"] += 1
    metrics.admission.audits["ClusterPodSchedulingPolicy web", "would_change"] += 1
    set_certificate_expiry(metrics, "leaf", datetime.now(UTC))
    return own_families(metrics.registry)


def cluster_families() -> list[Metric]:
    """Return the metrics of the controller; the webhook has those of no single controller."""
    metrics = create_controller_metrics("1", ["registration"])
    metrics.watches.follow([Mirror()], float)
    metrics.watches.count_list("pods", 1, 1.0)
    metrics.watches.count_events("pods", 1)
    metrics.watches.count_failure("pods", "GoneError")
    metrics.watches.count_undecodable("pods")
    metrics.api_calls.note("get", 200, 0.1)
    metrics.queues.set_depth("registration", 1)
    metrics.queues.count_retry("registration")
    metrics.queues.observe_wait("registration", 1.0)
    metrics.queues.observe_work("registration", 1.0)
    metrics.certificate_expiry.labels("leaf").set(1)
    metrics.reconcile_errors.labels("registration", "ConflictError").inc()
    metrics.events.labels("created").inc()
    metrics.registration.repairs.labels("kind", "field").inc()
    metrics.registration.fights.labels("kind", "field").inc()
    metrics.registration.break_glass.labels("kind").set(0)
    return own_families(metrics.registry)


class Lifecycle:
    """A stand-in for the caches that the metrics of the lifecycle read, with one of each kind."""

    def read_gauges(self) -> GaugeValues:
        """Return the values of all gauges."""
        deployments = {kind: {labels: 1.0} for kind, labels in DEPLOYMENTS.items()}
        active = {kind: {labels: 1} for kind, labels in KEYS.items()}
        held = ("prod", "shop-cart-1")
        return GaugeValues(active, deployments, deployments, 1, excess_pods={held: 1})

    def exists(self, _anchor: object) -> bool:
        """Return True: no object is deleted."""
        return True


def lifecycle_families() -> list[Metric]:
    """Return the metrics of phases, tasks and evaluations."""
    metrics = LifecycleMetrics(registry := CollectorRegistry())
    metrics.lead(Lifecycle())
    for kind, labels in FINISHED.items():
        metrics.count_finished(kind, labels, 1.0, (kind, "prod/one"))
    return own_families(registry)


def measuring_families() -> list[Metric]:
    """Return the metrics of KeptnMetrics and analyses."""
    # The constructors of the other metrics do the same.
    disable_created_metrics()  # type: ignore[no-untyped-call]
    registry = CollectorRegistry()
    QueryMetrics(registry).count_answer("prometheus", "Answered", 0.1)
    create_lateness(registry).observe(0.1)
    results = AnalysisResults({("a",) * len(ANALYSIS): 1.0}, {("a",) * len(OBJECTIVE): 1.0})
    AnalysisCollector(registry).set_source(lambda: results)
    return own_families(registry)


def extender_families() -> list[Metric]:
    """Return the metrics of a second scheduler's requests."""
    disable_created_metrics()  # type: ignore[no-untyped-call]
    ExtenderMetrics(registry := CollectorRegistry())
    return own_families(registry)


def placement_families() -> list[Metric]:
    """Return the metrics of placement."""
    disable_created_metrics()  # type: ignore[no-untyped-call]
    metrics = PlacementMetrics(registry := CollectorRegistry())
    metrics.count_answer("Application", "Placed", 0.001)
    metrics.count_move("BetterScore")
    application = DeployedApplication(metadata=Metadata(name="shop"))
    cluster = MemberCluster(metadata=Metadata(name="m1"))
    PlacementStates(registry, lambda: (application,), lambda: (cluster,))
    return own_families(registry)


def rescheduling_families() -> list[Metric]:
    """Return the metrics of rescheduling."""
    disable_created_metrics()  # type: ignore[no-untyped-call]
    metrics = ReschedulingMetrics(registry := CollectorRegistry())
    for metric in vars(metrics).values():
        child = metric.labels(*("a" for _ in metric._labelnames))
        child.observe(1) if isinstance(metric, Histogram) else child.inc()
    return own_families(registry)


def own_families(registry: CollectorRegistry) -> list[Metric]:
    """Return the families that are not Python's and the process's; each has a sample."""
    families = [
        family
        for family in registry.collect()
        if not family.name.startswith(("python_", "process_"))
    ]
    if silent := [family.name for family in families if not family.samples]:
        raise ValueError(f"labels unknown without a sample: {', '.join(silent)}")
    return families


def shown_name(family: Metric) -> str:
    """Return the name by which Prometheus stores a family."""
    return str(family.name) + ("_total" if family.type == "counter" else "")


def labels_of(family: Metric) -> set[str]:
    """Return the labels of all its samples, except the bounds of buckets."""
    return {label for sample in family.samples for label in sample.labels} - {"le"}


FAMILIES: Final = {
    "server files, webhook": server_families,
    "controller, webhook": cluster_families,
    "controller": lifecycle_families,
    "controller, metrics": measuring_families,
    "controller, scheduler": extender_families,
    "controller, placement": placement_families,
    "controller, rescheduling": rescheduling_families,
}
"""The functions that create families, by their process and the part of it."""


def metric_table() -> str:
    """Return the metrics by name, each once with all processes that have it."""
    owners: dict[str, list[str]] = {}
    families = {}
    for owner, collect in FAMILIES.items():
        for family in collect():
            families[shown_name(family)] = family
            owners.setdefault(shown_name(family), []).append(owner)
    return definitions(
        (
            code(name),
            [
                plain(family.documentation),
                f"A {family.type} of {'; '.join(owners[name])}"
                + (f", by {', '.join(map(code, labels))}" if labels else ""),
            ],
        )
        for name, family in sorted(families.items())
        for labels in [sorted(labels_of(family))]
    )
