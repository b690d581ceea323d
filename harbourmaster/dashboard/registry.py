"""Lists the pages: their paths, the kinds that users must be allowed to list, and their views."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from harbourmaster.api.resources import (
    ANALYSES,
    APP_VERSIONS,
    APPLICATIONS,
    CLUSTER_POLICIES,
    CLUSTERS,
    NODES,
    PODS,
    POLICIES,
    WORKLOAD_VERSIONS,
    Resource,
)
from harbourmaster.dashboard.pages import (
    application,
    applications,
    checks,
    cluster_map,
    clusters,
    gates,
    overview,
    placements,
    policies,
    reservations,
)
from harbourmaster.dashboard.pages.gates import DEFINITIONS, DETAILS
from harbourmaster.dashboard.query import PageQuery
from harbourmaster.dashboard.reads import (
    OF_APPLICATION,
    Reads,
    read_application,
    read_pod,
    read_pods,
)
from harbourmaster.dashboard.sources import PageSources
from harbourmaster.dashboard.visibility import Visibility, namespaces_of

if TYPE_CHECKING:
    from harbourmaster.dashboard.sources import Source

Build: TypeAlias = Callable[[PageSources, Visibility, PageQuery, datetime], Any]


_ONE: Final = "/{namespace}/{name:[^/]+}"


class Page(Struct, frozen=True):
    """A page, refused to users that may list all kinds of none of the ``needed`` groups."""

    name: str
    path: str
    title: str
    build: Build
    """Builds the view, at once or in slices."""
    needed: tuple[tuple[Resource, ...], ...]
    besides: tuple[Resource, ...] = ()
    """Kinds that the page also shows if the user may list them."""
    counts: bool = False
    """Whether the page shows how many pods policies select."""
    reads: Reads | None = None
    """Reads from the API server what the page shows besides the caches."""
    is_live: bool = True
    """Whether changes of what the page shows are known, so that open pages are kept up to date."""

    @property
    def kinds(self) -> tuple[Resource, ...]:
        """All kinds that the page may show."""
        return tuple(
            dict.fromkeys((*(kind for group in self.needed for kind in group), *self.besides))
        )

    @property
    def needed_kinds(self) -> frozenset[Resource]:
        """The kinds of all needed groups."""
        return frozenset(kind for group in self.needed for kind in group)

    @property
    def template(self) -> str:
        """The name of the page's template, which all pages of checks of one kind share."""
        return f"{self.name.partition('-')[0]}.html"

    def is_refused(self, visible: Visibility) -> bool:
        """Whether the user may see nothing of the page."""
        return visible.is_refused(self.needed)


OVERVIEW: Final = Page(
    "overview",
    "/",
    "Overview",
    overview.overview,
    (
        (APP_VERSIONS,),
        gates.NEEDED,
        (POLICIES,),
        (CLUSTER_POLICIES,),
        (CLUSTERS,),
        (APPLICATIONS,),
        (NODES,),
    ),
    besides=(PODS, *DETAILS),
    counts=True,
)
APPLICATIONS_PAGE: Final = Page(
    "applications",
    applications.PATH,
    "Applications",
    applications.applications,
    ((APP_VERSIONS,),),
    besides=(WORKLOAD_VERSIONS,),
)
APPLICATION_PAGE: Final = replace(
    APPLICATIONS_PAGE,
    name="application",
    path=f"{applications.PATH}{_ONE}",
    build=application.application,
    besides=(WORKLOAD_VERSIONS, *DETAILS, ANALYSES, *OF_APPLICATION),
    reads=read_application,
)
_CHECKS: Final = Page(
    "checks",
    checks.PATH,
    "Checks",
    checks.checks,
    tuple((kind,) for kinds in checks.VIEWS.values() for kind in kinds),
    besides=checks.RELEASES,
)
_CHECK_PAGES: Final = tuple(
    replace(
        _CHECKS,
        name=f"check-{kind.plural}",
        path=f"{checks.PATH}/{kind.plural}{_ONE}",
        build=partial(checks.check, kind),
        needed=((kind,),),
        besides=_CHECKS.kinds,
    )
    for kind in _CHECKS.kinds
    if kind not in checks.RELEASES
)
PAGES: Final = (
    OVERVIEW,
    APPLICATIONS_PAGE,
    Page(
        "map",
        cluster_map.PATH,
        "Map",
        cluster_map.cluster_map,
        ((APP_VERSIONS,), (APPLICATIONS,)),
        besides=(WORKLOAD_VERSIONS, PODS, CLUSTERS),
        reads=read_pods,
        is_live=False,
    ),
    Page("gates", gates.PATH, "Gates", gates.gates, (gates.NEEDED,), besides=DETAILS),
    _CHECKS,
    Page(
        "policies",
        policies.PATH,
        "Policies",
        policies.policies,
        ((POLICIES,), (CLUSTER_POLICIES,)),
        besides=(PODS,),
        counts=True,
    ),
    Page("clusters", clusters.PATH, "Clusters", clusters.clusters, ((CLUSTERS,), (APPLICATIONS,))),
    Page(
        "reservations",
        reservations.PATH,
        "Reservations",
        reservations.reservations,
        ((NODES,),),
    ),
)
_PODS: Final = Page(
    "pods",
    policies.PODS_PATH,
    "Policies",
    policies.pods,
    ((PODS,),),
    besides=(POLICIES, CLUSTER_POLICIES),
    counts=True,
)
_POD: Final = replace(
    _PODS,
    name="pod",
    path=f"{policies.PODS_PATH}{_ONE}",
    build=policies.pod,
    besides=(*_PODS.besides, *gates.NEEDED, *DETAILS),
    reads=read_pod,
)
_PLACEMENT: Final = Page(
    "placement",
    f"{clusters.PATH}{_ONE}",
    "Clusters",
    placements.placement,
    ((APPLICATIONS,),),
    besides=(APP_VERSIONS,),
)
BY_NAME: Final = {
    page.name: page for page in (*PAGES, APPLICATION_PAGE, *_CHECK_PAGES, _PODS, _POD, _PLACEMENT)
}


def places_of(kind: Resource, sources: PageSources) -> frozenset[str]:
    """Return the namespaces in which the permission to list a kind matters.

    These have objects of the kind, or pods and versions that may wait for a missing object of it.
    """
    places = _places(sources.of(kind))
    if kind in gates.NEEDED or kind in DETAILS:
        places |= _places(sources.gated_pods) | _places(sources.app_versions)
    if kind in DEFINITIONS:
        places |= frozenset(sources.definition_namespaces)
    if kind is PODS:
        places |= sources.counts.pods.keys()
    return places


def _places(source: Source[Any] | None) -> frozenset[str]:
    return frozenset() if source is None else namespaces_of(source.store)
