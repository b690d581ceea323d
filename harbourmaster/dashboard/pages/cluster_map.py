"""Builds the map: clusters, applications, workloads, versions, and their pods with their nodes."""

from __future__ import annotations

from collections import Counter, defaultdict
from os.path import commonprefix
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from msgspec import Struct
from msgspec.structs import replace

from harbourmaster.api.resources import (
    APP_VERSIONS,
    APPLICATIONS,
    CLUSTERS,
    PODS,
    WORKLOAD_VERSIONS,
)
from harbourmaster.dashboard.pages import applications, clusters
from harbourmaster.dashboard.pages.policies import PODS_PATH
from harbourmaster.dashboard.pages.states import URGENCY, ShownState, show_state
from harbourmaster.dashboard.query import object_path
from harbourmaster.dashboard.sources import lookup, values
from harbourmaster.gates.owners import bases_of_pod, pod_name_base
from harbourmaster.gates.workload import workload_of
from harbourmaster.lifecycle.workloads import names_of_pod

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from harbourmaster.dashboard.pages.states import Tone
    from harbourmaster.dashboard.query import PageQuery
    from harbourmaster.dashboard.slicing import Sliced
    from harbourmaster.dashboard.sources import PageSources
    from harbourmaster.dashboard.visibility import Visibility
    from harbourmaster.lifecycle.model import WorkloadVersion

PATH: Final = "/map"
MOST: Final = 100
"""Maximum pods of a state, and children of a node of the map, that are shown."""
MOST_NODES: Final = 3
"""Maximum names of nodes in the summary of a state."""
SLICE: Final = 500
"""Pods that are assigned before other tasks may run."""
_NO_VERSION: Final = ("", "")
_BUSY: Final = {"Pending", "ContainerCreating", "PodInitializing", "SchedulingGated"}
_WORDS: Final = {"SchedulingGated": "Waiting at a gate", "": "Unknown"}


class PodCells(Struct, frozen=True, gc=False):
    """The cells of a pod that ``kubectl get pods -o wide`` prints; ``node`` is "" without one."""

    name: str
    ready: str
    status: str
    restarts: str
    node: str

    @property
    def state(self) -> ShownState:
        """The state by which pods are grouped."""
        status = self.status
        ready, _, wanted = self.ready.partition("/")
        if status == "Running":
            return (
                ShownState("Ready", "good") if ready == wanted else ShownState("Not ready", "warn")
            )
        if status == "Terminating":
            return ShownState(status, "idle")
        is_init = status.startswith("Init:") and "/" in status
        tone: Tone = "busy" if status in _BUSY or is_init else "bad"
        return ShownState(_WORDS.get(status, status), tone)


class PodsRead(Struct, frozen=True):
    """The pods of a namespace; ``fault`` says why some are missing."""

    namespace: str = ""
    pods: tuple[PodCells, ...] = ()
    fault: str = ""


class MapNode(Struct, frozen=True, gc=False):
    """A node of the map; its state is its own, and ``urgency`` the worst of it and below it."""

    kind: str
    name: str
    state: ShownState | None = None
    link: str = ""
    note: str = ""
    ready: int = 0
    pods: int = 0
    children: tuple[MapNode, ...] = ()
    more: int = 0
    """The number of children that are not shown."""

    @property
    def urgency(self) -> int:
        """The rank of the worst tone of this node and all below it."""
        own = URGENCY["good"] if self.state is None else self.state.urgency
        return min((own, *(child.urgency for child in self.children)))

    @property
    def is_open(self) -> bool:
        """Whether it is open at first: if something in it is not well."""
        return self.urgency < URGENCY["idle"]


class MapPage(Struct, frozen=True):
    """The map of one namespace, or of all without their pods."""

    namespace: str
    namespaces: tuple[str, ...]
    clusters: tuple[MapNode, ...]
    """This cluster, and the members with an application that the user may see."""
    more: int
    """The number of members that are not shown."""
    fault: str
    sees_pods: bool


def namespace_of(sources: PageSources, visible: Visibility, query: PageQuery) -> str:
    """Return the namespace whose pods are shown: the selected one, or the only one."""
    places = _places(sources, visible)
    return query.namespace or (places[0] if len(places) == 1 else "")


def cluster_map(
    sources: PageSources, visible: Visibility, query: PageQuery, _now: datetime
) -> Sliced[MapPage]:
    """Build the map, the most urgent first."""
    namespace = namespace_of(sources, visible, query)
    read = sources.read if isinstance(sources.read, PodsRead) else PodsRead()
    pods = read.pods if read.namespace == namespace else ()
    if namespace:
        here = yield from _namespace(sources, visible, namespace, pods, query.q.casefold())
    else:
        here = list(_newest(sources, visible, query.q.casefold()))
    note = "" if namespace else _applications(len(here))
    members = _node("", "", _members(sources, visible, query))
    return MapPage(
        namespace=namespace,
        namespaces=_places(sources, visible),
        clusters=(_node("Cluster", "This cluster", here, note=note), *members.children),
        more=members.more,
        fault=read.fault,
        sees_pods=visible.sees(PODS, namespace),
    )


def _rank(node: MapNode) -> tuple[int, str]:
    return node.urgency, node.name


def _node(kind: str, name: str, below: Iterable[MapNode], **fields: Any) -> MapNode:  # noqa: ANN401
    """Return a node with the counts of its pods, and its most urgent children."""
    ranked = sorted(below, key=_rank)
    return MapNode(
        kind,
        name,
        ready=sum(child.ready for child in ranked),
        pods=sum(child.pods for child in ranked),
        children=tuple(ranked[:MOST]),
        more=max(len(ranked) - MOST, 0),
        **fields,
    )


def _places(sources: PageSources, visible: Visibility) -> tuple[str, ...]:
    scope = visible.of(APP_VERSIONS)
    keys = sources.app_versions.store if sources.app_versions else ()
    return tuple(sorted({place for key in keys if scope.sees(place := key.partition("/")[0])}))


def _newest(sources: PageSources, visible: Visibility, needle: str) -> Iterator[MapNode]:
    """Yield the applications of all namespaces, which lead to their pods."""
    for version in applications.newest_versions(sources, visible):
        metadata, app = version.metadata, version.spec.app_name
        # Those that placement deploys are below the cluster that they run on.
        if not version.is_of_application and needle in app.casefold():
            link = f"{PATH}?{urlencode({'namespace': metadata.namespace, 'q': app})}"
            state = show_state(version.status.status)
            yield MapNode("Application", f"{metadata.namespace}/{app}", state, link)


def _members(sources: PageSources, visible: Visibility, query: PageQuery) -> Iterator[MapNode]:
    """Yield the member clusters with the applications that are placed on them."""
    placed: dict[str, list[MapNode]] = defaultdict(list)
    needle = query.q.casefold()
    for application in values(sources.applications):
        metadata, running = application.metadata, application.status.running_on
        is_wanted = (
            query.namespace in {"", metadata.namespace} and needle in metadata.name.casefold()
        )
        if running is None or not is_wanted or not visible.sees(APPLICATIONS, metadata.namespace):
            continue
        name = metadata.name if query.namespace else metadata.key
        link = clusters.link_of(metadata.namespace, metadata.name)
        node = MapNode("Placed", name, show_state(application.status.phase), link)
        placed[f"{running.namespace or metadata.namespace}/{running.name}"].append(node)
    for key, nodes in placed.items():
        namespace = key.partition("/")[0]
        cluster = lookup(sources.clusters, key) if visible.sees(CLUSTERS, namespace) else None
        state = show_state(cluster.status.state) if cluster is not None else None
        name = key.removeprefix(f"{query.namespace}/")
        yield _node("Cluster", name, nodes, state=state, note=_applications(len(nodes)))


def _applications(count: int) -> str:
    return f"{count} application" if count == 1 else f"{count} applications"


def _namespace(
    sources: PageSources,
    visible: Visibility,
    namespace: str,
    pods: Sequence[PodCells],
    needle: str,
) -> Sliced[list[MapNode]]:
    """Return the applications of a namespace, and its pods that belong to none."""
    sees = visible.sees(WORKLOAD_VERSIONS, namespace)
    versions = [
        version
        for version in (values(sources.workload_versions) if sees else ())
        if version.metadata.namespace == namespace
    ]
    owners = _Owners(versions)
    by_version: dict[tuple[str, str], list[PodCells]] = defaultdict(list)
    for number, pod in enumerate(pods, 1):
        if not number % SLICE:
            yield
        known = lookup(sources.labels, f"{namespace}/{pod.name}")
        by_version[owners.find(pod.name, known.labels if known else {})].append(pod)
    nodes = list(_apps(sources, visible, namespace, versions, by_version, needle))
    if others := by_version.get(_NO_VERSION, ()) if not needle else ():
        nodes.append(_node("Pods", "of no application", _groups(namespace, others)))
    return nodes


class _Owners:
    """Finds the version of a pod by the name of its owner; by labels if that has several."""

    def __init__(self, versions: Sequence[WorkloadVersion]) -> None:
        self._by_name = {version.metadata.name: version for version in versions}
        self._by_base: dict[str, list[WorkloadVersion]] = defaultdict(list)
        for version in versions:
            base = pod_name_base(version.spec.resource_reference.name)
            self._by_base[base].append(version)

    def find(self, pod: str, labels: Mapping[str, str]) -> tuple[str, str]:
        """Return the workload of a pod and the name of its version, or "" if that is unknown."""
        own = next(filter(None, map(self._by_base.get, bases_of_pod(pod))), None)
        version = own[0] if own and len(own) == 1 else None
        if version is None and (metadata := workload_of({}, labels)) is not None:
            version = self._by_name.get(names_of_pod(metadata).version)
        if version is not None:
            return version.spec.workload_name, version.metadata.name
        return (own[0].spec.workload_name, "") if own else _NO_VERSION


def _age(version: WorkloadVersion) -> tuple[str, str]:
    return version.metadata.creation_timestamp, version.metadata.name


def _apps(
    sources: PageSources,
    visible: Visibility,
    namespace: str,
    versions: Iterable[WorkloadVersion],
    pods: Mapping[tuple[str, str], Sequence[PodCells]],
    needle: str,
) -> Iterator[MapNode]:
    known = {
        version.spec.app_name: version
        for version in applications.newest_versions(sources, visible)
        if version.metadata.namespace == namespace and not version.is_of_application
    }
    by_app: dict[str, dict[str, list[WorkloadVersion]]] = {app: {} for app in known}
    for version in sorted(versions, key=_age, reverse=True):
        workloads = by_app.setdefault(version.spec.app, {})
        workloads.setdefault(version.spec.workload_name, []).append(version)
    for app, workloads in by_app.items():
        if needle not in app.casefold():
            continue
        children = []
        for workload, all_versions in workloads.items():
            nodes = [*_groups(namespace, pods.get((workload, ""), ()))]
            for place, version in enumerate(all_versions):
                own = pods.get((workload, version.metadata.name), ())
                # Former versions without pods say nothing.
                if own or not place:
                    status, groups = show_state(version.status.status), _groups(namespace, own)
                    nodes.append(_node("Version", version.spec.version, groups, state=status))
            children.append(_node("Workload", workload.removeprefix(f"{app}-"), nodes))
        newest = known.get(app)
        state = show_state(newest.status.status) if newest is not None else None
        link = applications.link_of(namespace, app) if newest is not None else ""
        yield _node("Application", app, children, state=state, link=link)


def _groups(namespace: str, pods: Iterable[PodCells]) -> Iterator[MapNode]:
    """Group pods by their state; those of a node stand together, and a single one for itself."""
    by_state: dict[ShownState, list[PodCells]] = defaultdict(list)
    for pod in pods:
        by_state[pod.state].append(pod)
    for state, members in by_state.items():
        count, is_ready = len(members), state.tone == "good"
        members.sort(key=lambda pod: (pod.node, pod.name))
        leaves = tuple(_pod(namespace, pod) for pod in members[:MOST])
        if count == 1:
            yield replace(leaves[0], state=state, pods=1, ready=int(is_ready))
            continue
        nodes = Counter(pod.node for pod in members if pod.node)
        named = ", ".join(f"{name} ({number})" for name, number in nodes.most_common(MOST_NODES))
        rest = f" and {len(nodes) - MOST_NODES} more" if len(nodes) > MOST_NODES else ""
        prefix = commonprefix([pod.name for pod in members])  # noqa: RUF071 - characters
        yield MapNode(
            "Pods",
            state.word,
            state,
            link=f"{PODS_PATH}?{urlencode({'namespace': namespace, 'q': prefix})}",
            note=f"on {named}{rest}" if named else "without a node",
            ready=count if is_ready else 0,
            pods=count,
            children=leaves,
            more=count - len(leaves),
        )


def _pod(namespace: str, pod: PodCells) -> MapNode:
    node = f"on {pod.node}" if pod.node else "without a node"
    restarts = f", restarts {pod.restarts}" if pod.restarts not in {"", "0"} else ""
    link = object_path(PODS_PATH, namespace, pod.name)
    return MapNode("Pod", pod.name, link=link, note=f"{node}, {pod.ready} ready{restarts}")
