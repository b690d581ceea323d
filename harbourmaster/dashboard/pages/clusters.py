"""Member clusters and what is placed on them, with the scores that decided."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from msgspec import Struct

from harbourmaster.api.resources import APPLICATIONS, CLUSTERS
from harbourmaster.dashboard.pages.states import (
    Notice,
    ShownState,
    StateCount,
    Topic,
    parts_by_urgency,
    shown,
)
from harbourmaster.dashboard.query import Listing, select_page
from harbourmaster.dashboard.sources import values
from harbourmaster.placement.model import DecisionRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from harbourmaster.dashboard.pages.states import (
        Tally,
    )
    from harbourmaster.dashboard.query import PageQuery
    from harbourmaster.dashboard.sources import PageSources
    from harbourmaster.dashboard.visibility import Visibility
    from harbourmaster.placement.model import Application, ReportedCluster, TargetReference

PATH: Final = "/clusters"
PLACED: Final = "placed"
"""The view of applications."""
PLACED_PATH: Final = f"{PATH}?view={PLACED}"
_PLACED_TOPIC: Final = Topic(
    "Placements", PLACED_PATH, ("application placed", "applications placed"), ((APPLICATIONS,),)
)
_TOPIC: Final = Topic("Clusters", PATH, ("cluster", "clusters"), ((CLUSTERS,),))


class MetricValue(Struct, frozen=True, gc=False):
    """A metric of a cluster; without a value there is a reason."""

    name: str
    weight: str
    value: str
    reason: str


class ClusterRow(Struct, frozen=True, gc=False):
    """A member cluster."""

    namespace: str
    name: str
    state: ShownState
    faults: tuple[str, ...]
    """What its conditions say that is not as it should be."""
    metrics: tuple[MetricValue, ...]
    applications: int | None
    """That run there, of those that may be seen; None where none may be."""
    is_closed: bool
    """Whether it takes no more."""


class PlacementRow(Struct, frozen=True, gc=False):
    """An application and where it is."""

    namespace: str
    name: str
    state: ShownState
    target: str
    """Where it is to run."""
    running_on: str
    """Where it does, if that is elsewhere."""
    decision: DecisionRecord
    moves: int
    """To a better cluster within the last hour."""
    faults: tuple[str, ...]


class ClustersPage(Struct, frozen=True):
    """The page: one of two lists."""

    is_placed: bool
    clusters: Listing[ClusterRow] | None
    placements: Listing[PlacementRow] | None
    parts: tuple[StateCount, ...]


def clusters(
    sources: PageSources, visible: Visibility, query: PageQuery, _now: datetime
) -> ClustersPage:
    """The page, the most urgent first."""
    if query.view == PLACED:
        placed = _applications(sources, visible)
        placements = select_page(
            placed,
            query,
            namespace=lambda each: each.metadata.namespace,
            texts=lambda each: (
                each.metadata.name,
                each.metadata.namespace,
                _name(each.status.scheduled_to),
                _name(each.status.running_on),
            ),
            key=lambda each: (shown(each.status.phase).urgency, each.metadata.key),
            row=_placement,
            holds=lambda each: not query.state or each.status.phase == query.state,
        )
        return ClustersPage(True, None, placements, tuple(_phases(placed)))
    members = _clusters(sources, visible)
    running = _running(sources, visible)
    found = select_page(
        members,
        query,
        namespace=lambda each: each.metadata.namespace,
        texts=lambda each: (each.metadata.name, each.metadata.namespace),
        key=lambda each: (shown(each.status.state).urgency, each.metadata.key),
        row=lambda each: _cluster(each, running),
        holds=lambda each: not query.state or each.status.state == query.state,
    )
    return ClustersPage(False, found, None, tuple(_states(members)))


def tally(sources: PageSources, visible: Visibility, _now: datetime) -> Tally:
    """What the overview says of the clusters."""
    members = _clusters(sources, visible)
    return _TOPIC.tally(
        sources,
        visible,
        members,
        _states(members),
        [member for member in members if shown(member.status.state).tone in {"bad", "warn"}],
        _notice,
    )


def tally_placed(sources: PageSources, visible: Visibility, _now: datetime) -> Tally:
    """What the overview says of the applications that are placed."""
    seen = _applications(sources, visible)
    return _PLACED_TOPIC.tally(
        sources,
        visible,
        seen,
        _phases(seen),
        [each for each in seen if shown(each.status.phase).tone == "bad"],
        _notice_placed,
    )


def _notice(cluster: ReportedCluster) -> Notice:
    text = "; ".join(_faults(cluster)) or cluster.status.state
    return Notice(shown(cluster.status.state).tone, "Cluster", cluster.metadata.key, text, PATH)


def _notice_placed(application: Application) -> Notice:
    metadata = application.metadata
    text = "; ".join(_application_faults(application)) or application.status.phase
    found_by = urlencode({"namespace": metadata.namespace, "q": metadata.name})
    return Notice("bad", "Placement", metadata.key, text, f"{PLACED_PATH}&{found_by}")


def _clusters(sources: PageSources, visible: Visibility) -> list[ReportedCluster]:
    scope = visible.of(CLUSTERS)
    return [value for value in values(sources.clusters) if scope.sees(value.metadata.namespace)]


def _applications(sources: PageSources, visible: Visibility) -> list[Application]:
    scope = visible.of(APPLICATIONS)
    return [value for value in values(sources.applications) if scope.sees(value.metadata.namespace)]


def _phases(seen: Iterable[Application]) -> Iterator[StateCount]:
    return parts_by_urgency(each.status.phase for each in seen)


def _states(members: Iterable[ReportedCluster]) -> Iterator[StateCount]:
    return parts_by_urgency(member.status.state for member in members)


def _running(sources: PageSources, visible: Visibility) -> Counter[str] | None:
    """How many applications run on each cluster, by its key."""
    if visible.of(APPLICATIONS).is_empty:
        return None
    return Counter(
        f"{target.namespace or application.metadata.namespace}/{target.name}"
        for application in _applications(sources, visible)
        if (target := application.status.running_on) is not None
    )


def _cluster(cluster: ReportedCluster, running: Counter[str] | None) -> ClusterRow:
    weights = {metric.name: metric.weight for metric in cluster.spec.metrics or ()}
    reported = {each.name: each for each in cluster.status.metrics}
    metrics = []
    for name in dict.fromkeys((*weights, *reported)):
        report = reported.get(name)
        value = "" if report is None or report.value is None else f"{report.value:g}"
        reason = "" if value else (report.reason if report else "") or "no value yet"
        weight = f"{weights[name]:g}" if name in weights else ""
        metrics.append(MetricValue(name, weight, value, reason))
    return ClusterRow(
        namespace=cluster.metadata.namespace,
        name=cluster.metadata.name,
        state=shown(cluster.status.state),
        faults=tuple(_faults(cluster)),
        metrics=tuple(metrics),
        applications=None if running is None else running[cluster.metadata.key],
        is_closed=cluster.spec.unschedulable,
    )


def _faults(cluster: ReportedCluster) -> Iterator[str]:
    for condition in cluster.status.conditions:
        if condition.status != "True":
            said = condition.message or condition.reason or condition.status
            yield f"{condition.type}: {said}"


def _application_faults(application: Application) -> Iterator[str]:
    for condition in application.status.conditions:
        if condition.status == "False":
            yield f"{condition.type}: {condition.message or condition.reason or condition.status}"


def _placement(application: Application) -> PlacementRow:
    status = application.status
    target, running = _name(status.scheduled_to), _name(status.running_on)
    return PlacementRow(
        namespace=application.metadata.namespace,
        name=application.metadata.name,
        state=shown(status.phase),
        target=target,
        running_on=running if running != target else "",
        decision=status.last_decision or DecisionRecord(),
        moves=len(status.recent_moves),
        faults=tuple(_application_faults(application)),
    )


def _name(reference: TargetReference | None) -> str:
    return reference.name if reference is not None else ""
