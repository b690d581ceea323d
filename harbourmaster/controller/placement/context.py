"""The caches, settings, member clusters and memory that the deploying reconcilers share."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from harbourmaster.api.resources import APPLICATIONS, CLUSTERS
from harbourmaster.controller.placement.gated_pods import find_gate
from harbourmaster.kube.caches import Caches, decoder
from harbourmaster.kube.errors import ForbiddenError
from harbourmaster.placement.data_holders import is_stateful_custom
from harbourmaster.placement.deployed import Copies, DeployedApplication, MemberCluster
from harbourmaster.placement.gated_pods import pod_selector
from harbourmaster.placement.live_fields import observe
from harbourmaster.placement.readiness import FINISHED, reason_of_all, summary
from harbourmaster.registration.repair_limiter import RepairLimiter

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from datetime import datetime

    from harbourmaster.controller.placement.members import Members
    from harbourmaster.controller.placement.sending import Applied
    from harbourmaster.controller.placement.session import Session
    from harbourmaster.controller.placement.settings import MemberSettings
    from harbourmaster.kube.client import Client
    from harbourmaster.kube.events import EventRecorder
    from harbourmaster.kube.faults import WatchMetrics
    from harbourmaster.placement.deployed import DeployedSpec
    from harbourmaster.placement.inventory import Inventory, Key, Observation
    from harbourmaster.placement.manifests import Prepared
    from harbourmaster.placement.readiness import Readiness


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
    stateless_kinds: tuple[str, ...] = ()
    """Custom resources that hold no data, beside the known ones."""


def clusters_of(application: DeployedApplication) -> Iterator[str]:
    """The keys of all clusters that an application has to do with."""
    status = application.status
    names = {reference.name for reference in (status.scheduled_to, status.running_on) if reference}
    names |= {objects.cluster for objects in (*status.inventory, *status.pending_cleanup)}
    for name in names:
        yield f"{application.metadata.namespace}/{name}"


RESYNC: Final = 600.0
"""Seconds after which everything is applied again, as a safety net."""
GATE_SECONDS: Final = 30.0
"""Seconds after which pods at a gate are looked at again: nothing else tells that they left it."""
SHORTEST: Final = 0.1
"""Seconds until a pass that time alone asks for."""


class AppliedManifests:
    """The objects of one application on one cluster, as they were applied at the time ``at``."""

    def __init__(self, session: Session, prepared: Prepared, now: float) -> None:
        self.session = session
        self.prepared = prepared
        self.at = now
        self._applied: dict[Key, Applied] = {}
        self._settled: set[Key] = set()
        """The objects of which the watch has shown our own change."""
        self._finished: set[Key] = set()
        """The Jobs that finished: one that is removed afterwards is done."""

    def record(self, applied: tuple[Applied, ...]) -> None:
        """Record which objects were applied."""
        self._applied = {obj.ref.key: obj for obj in applied}
        self._finished = {obj.ref.key for obj in applied if obj.state.readiness.is_finished}

    def read_watches(self) -> None:
        """Note of which objects the watches show our own change, or a later one."""
        watches = self.session.watches
        for key, obj in self._applied.items():
            watched = watches.get(obj.resource, obj.ref)
            if watched != obj.before or (watched is None and watches.was_removed(obj.ref.uid)):
                self._settled.add(key)
            if obj.ref.uid and watches.has_finished(obj.ref.uid):
                self._finished.add(key)

    def observe(self, known: Mapping[Key, Observation], cluster: str) -> Mapping[Key, Observation]:
        """Return what is to be remembered of the objects when they are gone."""
        scaled = {}
        for key, obj in self._applied.items():
            is_settled = key in self._settled
            seen = self.session.watches.get(obj.resource, obj.ref) if is_settled else obj.state
            if seen is not None and seen.scaled is not None:
                scaled[key] = seen.scaled
        return observe(known, cluster, self.prepared.items, self._finished, scaled)

    @property
    def refs(self) -> Inventory:
        """The references of the objects, with UIDs and origins."""
        return tuple(obj.ref for obj in self._applied.values())

    @property
    def is_complete(self) -> bool:
        """Whether all manifests were applied."""
        return len(self._applied) == len(self.prepared.items) and not self.prepared.awaited

    @property
    def drift(self) -> str:
        """The first object that is not as it was applied, in words; empty if there is none.

        An object of which the watch does not show our own change yet has not drifted.
        """
        return next(filter(None, map(self._find_change, self._applied.values())), "")

    @property
    def intact(self) -> dict[Key, Applied]:
        """The objects that are as they were applied, with their state that the watches show."""
        watches = self.session.watches
        objects = {}
        for key, obj in self._applied.items():
            if not (watches.is_blind(obj.resource) or self._find_change(obj)):
                watched = watches.get(obj.resource, obj.ref) if key in self._settled else None
                objects[key] = replace(obj, state=watched or obj.state)
        return objects

    def _find_change(self, obj: Applied) -> str:
        watched = self.session.watches.get(obj.resource, obj.ref)
        if obj.ref.key not in self._settled:
            return ""
        if obj.is_kept and obj.ref.key in self._finished:
            return f"{obj.ref.text} has finished"
        if watched is None:
            return "" if obj.ref.key in self._finished else f"{obj.ref.text} was deleted"
        if watched.uid != obj.ref.uid:
            return f"{obj.ref.text} was replaced"
        return f"{obj.ref.text} was changed" if watched.fields != obj.state.fields else ""

    @property
    def is_blind(self) -> bool:
        """Whether some objects can change without an event, because they cannot be watched."""
        return any(self.session.watches.is_blind(obj.resource) for obj in self._applied.values())

    @property
    def unready(self) -> str:
        """The objects that are not ready, in one line; empty if all are."""
        return summary((obj.ref.text, self._readiness(obj)) for obj in self._applied.values())

    @property
    def unready_reason(self) -> str:
        """The reason of the condition Ready if some objects are not ready."""
        return reason_of_all(map(self._readiness, self._applied.values()))

    async def find_gate(self) -> str:
        """Say at which gate a pod of these objects is held, and for what; empty if at none.

        Raises ApiError if the cluster does not say.
        """
        for item in self.prepared.items:
            selector, applied = pod_selector(item.body), self._applied.get(item.ref.key)
            if not selector or applied is None or self._readiness(applied).is_ready:
                continue
            with contextlib.suppress(ForbiddenError):
                if text := await find_gate(self.session.client, item.ref.namespace, selector):
                    return text
        return ""

    def has_unseen_data(self, stateless_kinds: Collection[str]) -> bool:
        """Whether an operator may still have to create what holds the data of a custom resource."""
        return any(
            is_stateful_custom(obj.ref.group, obj.ref.kind, stateless_kinds)
            and self._readiness(obj).is_assumed
            for obj in self._applied.values()
        )

    def _readiness(self, obj: Applied) -> Readiness:
        watched = self.session.watches.get(obj.resource, obj.ref)
        if watched is None and obj.ref.key in self._finished:
            return FINISHED
        if watched is None or obj.ref.key not in self._settled:
            return obj.state.readiness
        return watched.readiness


class DeploymentMemory:
    """The memory of one application with this UID."""

    def __init__(self, uid: str) -> None:
        self.uid = uid
        self.attempts = 0
        self.applied: AppliedManifests | None = None
        self.prepared: tuple[Any, Prepared] | None = None
        self.spec: tuple[int, DeployedSpec | None] | None = None
        """The earlier generation that is deployed, with its spec if that is kept."""
        self.copies = Copies()
        self.announced: set[str] = set()
        """The clusters for which an event said what the end of the application deletes."""
        self.limiter = RepairLimiter()
        self.reported = ""
        """The text of the last Warning event."""
        self.unanswered: dict[str, str] = {}
        """Why clusters that gave no answer are asked again, by name."""

    def seconds_left(self, now: float, *ends: float) -> float | None:
        """Return the seconds until the next pass over an application at rest; None for no time.

        ``ends`` are times of their own at which a pass is due; 0 is none.
        """
        due = [end for end in ends if end]
        if self.applied is not None and self.applied.at + RESYNC > now:
            due.append(self.applied.at + RESYNC)
        return max(min(due) - now, SHORTEST) if due else None
