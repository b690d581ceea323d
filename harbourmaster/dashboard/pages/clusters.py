"""Builds the page of member clusters, and of the applications that are placed on them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from msgspec import Struct

from harbourmaster.api.resources import APPLICATIONS, CLUSTERS
from harbourmaster.dashboard.pages import applications
from harbourmaster.dashboard.pages.states import (
    Notice,
    ShownState,
    StateCount,
    Topic,
    parts_by_urgency,
    show_state,
)
from harbourmaster.dashboard.query import Listing, object_path, select_page
from harbourmaster.dashboard.sources import values
from harbourmaster.lifecycle.model import APPLICATION_PREFIX
from harbourmaster.placement.model import CHECKED, DecisionRecord
from harbourmaster.placement.model import condition as find_condition

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
"""The value of ``view`` for the list of applications."""
PLACED_PATH: Final = f"{PATH}?view={PLACED}"
_PLACED_TOPIC: Final = Topic(
    "Placements", PLACED_PATH, ("application placed", "applications placed"), ((APPLICATIONS,),)
)
_TOPIC: Final = Topic("Clusters", PATH, ("cluster", "clusters"), ((CLUSTERS,),))


class MetricValue(Struct, frozen=True, gc=False):
    """A metric of a cluster, with a value or a reason."""

    name: str
    weight: str
    value: str
    reason: str


class ClusterRow(Struct, frozen=True, gc=False):
    """A member cluster as it is shown."""

    namespace: str
    name: str
    state: ShownState
    faults: tuple[str, ...]
    """The messages of the conditions that are not true."""
    metrics: tuple[MetricValue, ...]
    applications: int | None
    """The number of running applications that the user may see; None if it may see none."""
    is_closed: bool
    """Whether the cluster takes no more applications."""


class PlacementRow(Struct, frozen=True, gc=False):
    """An application and its clusters."""

    namespace: str
    name: str
    link: str
    state: ShownState
    target: str
    """The cluster that was selected."""
    running_on: str
    """The cluster on which it runs, if that is another one."""
    decision: DecisionRecord
    moves: int
    """The number of moves to a better cluster within the last hour."""
    faults: tuple[str, ...]
    proposed: str
    """The generation and the cluster that are checked before anything changes."""
    checked: str
    """The reason of the condition Checked."""
    checks: str
    """The path of the page of the checks."""


class ClustersPage(Struct, frozen=True):
    """The page with one of two lists."""

    is_placed: bool
    clusters: Listing[ClusterRow] | None
    placements: Listing[PlacementRow] | None
    parts: tuple[StateCount, ...]


def clusters(
    sources: PageSources, visible: Visibility, query: PageQuery, _now: datetime
) -> ClustersPage:
    """Build the page, the most urgent rows first."""
    if query.view == PLACED:
        placed = _applications(sources, visible)
        placements = select_page(
            placed,
            query,
            namespace=lambda application: application.metadata.namespace,
            texts=lambda application: (
                application.metadata.name,
                application.metadata.namespace,
                _name(application.status.scheduled_to),
                _name(application.status.running_on),
            ),
            key=lambda application: (
                show_state(application.status.phase).urgency,
                application.metadata.key,
            ),
            row=placement_row,
            holds=lambda application: not query.state or application.status.phase == query.state,
        )
        return ClustersPage(True, None, placements, tuple(_phases(placed)))
    members = _clusters(sources, visible)
    running = _running(sources, visible)
    listing = select_page(
        members,
        query,
        namespace=lambda cluster: cluster.metadata.namespace,
        texts=lambda cluster: (cluster.metadata.name, cluster.metadata.namespace),
        key=lambda cluster: (show_state(cluster.status.state).urgency, cluster.metadata.key),
        row=lambda cluster: _cluster(cluster, running),
        holds=lambda cluster: not query.state or cluster.status.state == query.state,
    )
    return ClustersPage(False, listing, None, tuple(_states(members)))


def tally(sources: PageSources, visible: Visibility, _now: datetime) -> Tally:
    """Count clusters for the overview."""
    members = _clusters(sources, visible)
    return _TOPIC.tally(
        sources,
        visible,
        members,
        _states(members),
        [member for member in members if show_state(member.status.state).tone in {"bad", "warn"}],
        _notice,
    )


def tally_placed(sources: PageSources, visible: Visibility, _now: datetime) -> Tally:
    """Count placed applications for the overview."""
    seen = _applications(sources, visible)
    return _PLACED_TOPIC.tally(
        sources,
        visible,
        seen,
        _phases(seen),
        [application for application in seen if show_state(application.status.phase).tone == "bad"],
        _notice_placed,
    )


def _notice(cluster: ReportedCluster) -> Notice:
    text = "; ".join(_faults(cluster)) or cluster.status.state
    return Notice(
        show_state(cluster.status.state).tone, "Cluster", cluster.metadata.key, text, PATH
    )


def _notice_placed(application: Application) -> Notice:
    metadata = application.metadata
    text = "; ".join(_application_faults(application)) or application.status.phase
    link = link_of(metadata.namespace, metadata.name)
    return Notice("bad", "Placement", metadata.key, text, link)


def _clusters(sources: PageSources, visible: Visibility) -> list[ReportedCluster]:
    scope = visible.of(CLUSTERS)
    return [value for value in values(sources.clusters) if scope.sees(value.metadata.namespace)]


def _applications(sources: PageSources, visible: Visibility) -> list[Application]:
    scope = visible.of(APPLICATIONS)
    return [value for value in values(sources.applications) if scope.sees(value.metadata.namespace)]


def _phases(seen: Iterable[Application]) -> Iterator[StateCount]:
    return parts_by_urgency(application.status.phase for application in seen)


def _states(members: Iterable[ReportedCluster]) -> Iterator[StateCount]:
    return parts_by_urgency(member.status.state for member in members)


def _running(sources: PageSources, visible: Visibility) -> Counter[str] | None:
    """Count the applications on cluster cluster, by its key; None if the user may see none."""
    if visible.of(APPLICATIONS).is_empty:
        return None
    return Counter(
        f"{target.namespace or application.metadata.namespace}/{target.name}"
        for application in _applications(sources, visible)
        if (target := application.status.running_on) is not None
    )


def _cluster(cluster: ReportedCluster, running: Counter[str] | None) -> ClusterRow:
    weights = {metric.name: metric.weight for metric in cluster.spec.metrics or ()}
    reported = {metric.name: metric for metric in cluster.status.metrics}
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
        state=show_state(cluster.status.state),
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


def link_of(namespace: str, name: str) -> str:
    """Return the path of the page of an application that is placed."""
    return object_path(PATH, namespace, name)


def placement_row(application: Application) -> PlacementRow:
    """Return an application as the list has it."""
    status = application.status
    target, running = _name(status.scheduled_to), _name(status.running_on)
    proposed, checked = status.proposed, find_condition(status.conditions, CHECKED)
    metadata = application.metadata
    link = applications.link_of(metadata.namespace, APPLICATION_PREFIX + metadata.name)
    return PlacementRow(
        namespace=metadata.namespace,
        name=metadata.name,
        link=link_of(metadata.namespace, metadata.name),
        state=show_state(status.phase),
        target=target,
        running_on=running if running != target else "",
        decision=status.last_decision or DecisionRecord(),
        moves=len(status.recent_moves),
        faults=tuple(_application_faults(application)),
        proposed=f"generation {proposed.generation} on {proposed.name}" if proposed else "",
        checked=checked.reason if checked is not None else "",
        checks=f"{link}?{urlencode({'version': status.check})}" if status.check else "",
    )


def _name(reference: TargetReference | None) -> str:
    return reference.name if reference is not None else ""
