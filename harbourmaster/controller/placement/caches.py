"""The caches of the scheduler: one for each kind of the management cluster, with indexes.

The deployer has caches of its own for the kinds that both read: it needs other fields.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from harbourmaster.api.resources import (
    APPLICATIONS,
    CLOUDS,
    CLUSTERS,
    GLOBAL_CLOUDS,
    GLOBAL_METRICS,
    GLOBAL_PROVIDERS,
    MAGNUM_CLUSTERS,
    PLACEMENT_METRICS,
    PLACEMENT_PROVIDERS,
    PROJECTS,
)
from harbourmaster.kube.caches import Caches, decoder
from harbourmaster.placement.model import (
    Application,
    Cloud,
    MagnumCluster,
    Metric,
    Project,
    ReportedCluster,
)
from harbourmaster.placement.provider_validation import SubmittedProvider

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from harbourmaster.kube.client import Client
    from harbourmaster.kube.faults import WatchMetrics
    from harbourmaster.placement.model import Cluster, MetricReference
    from harbourmaster.placement.snapshot import ObjectKey

    Target: TypeAlias = Cluster | Cloud | Project

BY_NAMESPACE: Final = "namespace"
"""The index of applications and clusters by namespace."""
BY_METRIC: Final = "metric"
"""The index of targets by the keys of the metrics that they name."""


class PlacementCaches(Caches):
    """The caches. ``subscribe`` before they run."""

    def __init__(self, client: Client, metrics: WatchMetrics | None = None) -> None:
        super().__init__(client, metrics)
        metered = {BY_METRIC: metrics_of}
        self.applications = self.cache(
            APPLICATIONS,
            decoder(Application),
            {BY_NAMESPACE: _namespace},
            name="applications to place",
        )
        self.clusters = self.cache(
            CLUSTERS,
            decoder(ReportedCluster),
            {BY_NAMESPACE: _namespace, BY_METRIC: metrics_of},
            name="clusters to choose",
        )
        self.magnum_clusters = self.cache(MAGNUM_CLUSTERS, decoder(MagnumCluster))
        self.clouds = self.cache(CLOUDS, decoder(Cloud), metered)
        self.global_clouds = self.cache(GLOBAL_CLOUDS, decoder(Cloud), metered)
        self.projects = self.cache(PROJECTS, decoder(Project), metered)
        self.metrics = self.cache(PLACEMENT_METRICS, decoder(Metric))
        self.global_metrics = self.cache(GLOBAL_METRICS, decoder(Metric))
        self.providers = self.cache(PLACEMENT_PROVIDERS, decoder(SubmittedProvider))
        self.global_providers = self.cache(GLOBAL_PROVIDERS, decoder(SubmittedProvider))

    def provider(self, place: ObjectKey) -> SubmittedProvider | None:
        """A MetricsProvider; a GlobalMetricsProvider for a place without a namespace."""
        namespace, name = place
        if namespace:
            return self.providers.store.get(f"{namespace}/{name}")
        return self.global_providers.store.get(name)

    def cloud(self, place: ObjectKey) -> Cloud | None:
        """A Cloud; a GlobalCloud for a place without a namespace."""
        own, shared = self.clouds.store, self.global_clouds.store
        return own.get("/".join(place)) if place[0] else shared.get(place[1])

    def users(self, place: tuple[str, ...]) -> Iterator[Target]:
        """The targets that name a metric."""
        yield from self.clusters.store.by_index(BY_METRIC, place)
        yield from self.clouds.store.by_index(BY_METRIC, place)
        yield from self.global_clouds.store.by_index(BY_METRIC, place)
        yield from self.projects.store.by_index(BY_METRIC, place)


def metrics_of(target: Target) -> Iterator[ObjectKey]:
    """Yield the keys of the metrics that a target names."""
    return places(target.metadata.namespace, target.spec.metrics or ())


def places(namespace: str, references: Iterable[MetricReference]) -> Iterator[ObjectKey]:
    """Yield the keys of the metrics that an object of this namespace refers to."""
    for reference in references:
        yield namespace if reference.scope == "Namespaced" else "", reference.name


def _namespace(obj: Application | Cluster) -> list[str]:
    return [obj.metadata.namespace]
