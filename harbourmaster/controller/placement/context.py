"""The caches, settings and member clusters that the deploying reconcilers share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from harbourmaster.api.resources import APPLICATIONS, CLUSTERS
from harbourmaster.kube.caches import Caches, decoder
from harbourmaster.placement.deployed import DeployedApplication, MemberCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from harbourmaster.controller.placement.members import Members
    from harbourmaster.controller.placement.settings import MemberSettings
    from harbourmaster.kube.client import Client
    from harbourmaster.kube.events import EventRecorder
    from harbourmaster.kube.faults import WatchMetrics

BY_UID: Final = "uid"
"""The index of applications by UID."""
BY_CLUSTER: Final = "cluster"
"""The index of applications by the keys of the clusters that have, or get, their objects."""


class DeploymentCaches(Caches):
    """The caches of the reconcilers that deploy. ``subscribe`` before they run."""

    def __init__(self, client: Client, metrics: WatchMetrics | None = None) -> None:
        super().__init__(client, metrics)
        self.applications = self.cache(
            APPLICATIONS,
            decoder(DeployedApplication),
            {BY_UID: lambda application: [application.metadata.uid], BY_CLUSTER: clusters_of},
        )
        self.clusters = self.cache(CLUSTERS, decoder(MemberCluster))


@dataclass(frozen=True, kw_only=True, eq=False)
class DeploymentContext:
    """The dependencies of the deploying reconcilers; ``now`` returns the time in UTC."""

    client: Client
    caches: DeploymentCaches
    settings: MemberSettings
    members: Members
    events: EventRecorder
    now: Callable[[], datetime]
    since: Callable[[], str] = str
    """Returns the RFC 3339 time since which placement is on; empty if that does not matter."""


def clusters_of(application: DeployedApplication) -> Iterator[str]:
    """The keys of all clusters that an application has to do with."""
    status = application.status
    names = {reference.name for reference in (status.scheduled_to, status.running_on) if reference}
    names |= {objects.cluster for objects in (*status.inventory, *status.pending_cleanup)}
    for name in names:
        yield f"{application.metadata.namespace}/{name}"
