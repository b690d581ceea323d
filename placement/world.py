"""What one pass sees: objects and one reading of each metric, never changed (krake-spec 7.4)."""

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
    from harbourmaster.placement.model import (
        Object,
    )

    Held = TypeVar("Held", Cluster, Cloud)

Place: TypeAlias = tuple[str, str]
"""Namespace and name; what is global has an empty namespace."""
FaultReason = Literal[
    "UnknownMetric", "UnknownMetricsProvider", "UnreachableMetricsProvider", "InvalidMetric"
]


class Fault(Struct, frozen=True, gc=False):
    """Why a metric has no value."""

    reason: FaultReason
    message: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}"


Reading: TypeAlias = float | Fault


class World(Struct, frozen=True):
    """Objects by where they are, and the newest raw values of metrics."""

    applications: Mapping[Place, Application] = {}
    clusters: Mapping[str, Mapping[str, Cluster]] = {}
    """By namespace and name, in the order of names."""
    clouds: Mapping[str, Mapping[str, Cloud]] = {}
    """Likewise; the global ones have no namespace."""
    projects: Mapping[Place, Project] = {}
    magnum_clusters: Mapping[Place, MagnumCluster] = {}
    metrics: Mapping[Place, Metric] = {}
    providers: Mapping[Place, MetricsProvider] = {}
    readings: Mapping[Place, Reading] = {}


def world_of(objects: Iterable[Object], readings: Mapping[Place, Reading]) -> World:
    """The world of these objects; of two with one name the last one counts."""
    applications, clusters, clouds, projects = {}, {}, {}, {}
    magnum_clusters, metrics, providers = {}, {}, {}
    for each in objects:
        place = place_of(each.metadata)
        match each:
            case Application():
                applications[place] = each
            case Cluster():
                clusters[place] = each
            case Cloud():
                clouds[place] = each
            case Project():
                projects[place] = each
            case MagnumCluster():
                magnum_clusters[place] = each
            case Metric():
                metrics[place] = each
            case MetricsProvider():
                providers[place] = each
    return World(
        applications=applications,
        clusters=_by_namespace(clusters),
        clouds=_by_namespace(clouds),
        projects=dict(sorted(projects.items(), key=_place)),
        magnum_clusters=magnum_clusters,
        metrics=metrics,
        providers=providers,
        readings=readings,
    )


def place_of(metadata: Metadata) -> Place:
    """Where an object is."""
    return metadata.namespace, metadata.name


def _by_namespace(found: Mapping[Place, Held]) -> Mapping[str, Mapping[str, Held]]:
    grouped: dict[str, dict[str, Held]] = {}
    for (namespace, name), each in sorted(found.items(), key=_place):
        grouped.setdefault(namespace, {})[name] = each
    return grouped


def _place(item: tuple[Place, object]) -> Place:
    return item[0]
