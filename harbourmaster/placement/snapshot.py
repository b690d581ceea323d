"""The input of one pass: objects and a reading of each metric, never changed (krake-spec 7.4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

from msgspec import Struct

from harbourmaster.placement.model import (
    Application,
    Cloud,
    Cluster,
    MagnumCluster,
    Metric,
    MetricsProvider,
    Project,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harbourmaster.api.metadata import Metadata
    from harbourmaster.placement.model import Object

    Held = TypeVar("Held", Cluster, Cloud)

ObjectKey: TypeAlias = tuple[str, str]
"""Namespace and name; the namespace of global objects is empty."""
MetricFaultReason = Literal[
    "UnknownMetric", "UnknownMetricsProvider", "UnreachableMetricsProvider", "InvalidMetric"
]


class MetricFault(Struct, frozen=True, gc=False):
    """Why a metric has no value."""

    reason: MetricFaultReason
    message: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}"


Reading: TypeAlias = float | MetricFault
ReadingKey: TypeAlias = tuple[str, ...]
"""The key of a metric; for the value of one cluster followed by the key of the cluster."""


class Snapshot(Struct, frozen=True):
    """Objects by namespace and name, and the newest raw values of metrics."""

    applications: Mapping[ObjectKey, Application] = {}
    clusters: Mapping[str, Mapping[str, Cluster]] = {}
    """The clusters by namespace and name, in the order of names."""
    clouds: Mapping[str, Mapping[str, Cloud]] = {}
    """The clouds by namespace and name; global clouds have an empty namespace."""
    projects: Mapping[ObjectKey, Project] = {}
    magnum_clusters: Mapping[ObjectKey, MagnumCluster] = {}
    metrics: Mapping[ObjectKey, Metric] = {}
    providers: Mapping[ObjectKey, MetricsProvider] = {}
    readings: Mapping[ReadingKey, Reading] = {}


def snapshot_of(objects: Iterable[Object], readings: Mapping[ReadingKey, Reading]) -> Snapshot:
    """The snapshot of these objects; of two with the same name the last one counts."""
    applications, clusters, clouds, projects = {}, {}, {}, {}
    magnum_clusters, metrics, providers = {}, {}, {}
    for obj in objects:
        key = key_of(obj.metadata)
        match obj:
            case Application():
                applications[key] = obj
            case Cluster():
                clusters[key] = obj
            case Cloud():
                clouds[key] = obj
            case Project():
                projects[key] = obj
            case MagnumCluster():
                magnum_clusters[key] = obj
            case Metric():
                metrics[key] = obj
            case MetricsProvider():
                providers[key] = obj
    return Snapshot(
        applications=applications,
        clusters=_by_namespace(clusters),
        clouds=_by_namespace(clouds),
        projects=dict(sorted(projects.items(), key=_key)),
        magnum_clusters=magnum_clusters,
        metrics=metrics,
        providers=providers,
        readings=readings,
    )


def key_of(metadata: Metadata) -> ObjectKey:
    """The key of an object."""
    return metadata.namespace, metadata.name


def _by_namespace(objects: Mapping[ObjectKey, Held]) -> Mapping[str, Mapping[str, Held]]:
    grouped: dict[str, dict[str, Held]] = {}
    for (namespace, name), obj in sorted(objects.items(), key=_key):
        grouped.setdefault(namespace, {})[name] = obj
    return grouped


def _key(item: tuple[ObjectKey, object]) -> ObjectKey:
    return item[0]
