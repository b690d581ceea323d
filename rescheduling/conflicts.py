"""Which pods a critical pod can't be beside, looked up by index.

(rescheduler-spec 4.2, items 5 and 6)

Both host ports and required anti-affinity are matters between two pods: one that is on the same
node can be moved, one that is elsewhere in the same topology domain closes the node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harbourmaster.rescheduling import anti_affinity, ports
from harbourmaster.rescheduling.fit import KEPT_APART, KEPT_APART_ELSEWHERE, UNKNOWN_NAMESPACE
from harbourmaster.rescheduling.model import Node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from harbourmaster.rescheduling.accounting import Cluster
    from harbourmaster.rescheduling.model import Pod
    from harbourmaster.rescheduling.spaces import Group

_NOBODY: Final[Mapping[str, str]] = {}


class Conflicts:
    """The pods that are in the way of one pod.

    ``of_node``: by node, UID -> reason. The domains of anti-affinity tell which nodes are closed.
    """

    def __init__(self) -> None:
        self.of_node: dict[str, dict[str, str]] = {}
        self._certain: dict[str, dict[str, set[str]]] = {}
        self._doubtful: dict[str, dict[str, set[str]]] = {}

    def __bool__(self) -> bool:
        return bool(self.of_node or self._certain or self._doubtful)

    def on(self, node: Node) -> Mapping[str, str]:
        """The pods on the node that are in the way, by UID, and why."""
        return self.of_node.get(node.name, _NOBODY)

    def closing(self, node: Node) -> str:
        """Why nothing that is done on the node helps; empty if it may."""
        for key, domains in self._certain.items():
            names = domains.get(node.labels.get(key, ""))
            if names and key in node.labels and (len(names) > 1 or node.name not in names):
                return KEPT_APART_ELSEWHERE
        for key, domains in self._doubtful.items():
            if key in node.labels and node.labels[key] in domains:
                return UNKNOWN_NAMESPACE
        return ""

    def note(self, pod: Pod, node: Node, reason: str) -> None:
        """A pod on the node is in the way."""
        self.of_node.setdefault(node.name, {})[pod.uid] = reason

    def keep_apart(self, pod: Pod, node: Node, keys: Iterable[str], *, is_certain: bool) -> None:
        """Anti-affinity speaks of a pod by these topology keys."""
        domains = self._certain if is_certain else self._doubtful
        for key in keys:
            value = node.labels.get(key)
            if value is not None:
                domains.setdefault(key, {}).setdefault(value, set()).add(node.name)
                if is_certain:
                    self.note(pod, node, KEPT_APART)


def find(
    cluster: Cluster,
    pod: Pod,
    is_gone: Callable[[Pod], bool],
    others: Iterable[tuple[Pod, Node]] = (),
    replaced: str = "",
) -> Conflicts:
    """Look through the cluster, and through ``others`` that count as present.

    What the cluster says of the node ``replaced`` does not count.
    """
    found = Conflicts()
    for port in pod.ports:
        for other in cluster.ports.get(port.number, {}).values():
            node = cluster.node(other.node)
            if node is not None and node.name != replaced and not is_gone(other):
                _note_ports(found, pod, other, node)
    for group in _rivals(cluster, pod):
        certain, doubtful = _keys(pod, next(iter(group.pods.values())), cluster)
        if not certain and not doubtful:
            continue
        for other in group.pods.values():
            node = cluster.node(other.node)
            if node is None or node.name == replaced or other.uid == pod.uid or is_gone(other):
                continue
            found.keep_apart(other, node, certain, is_certain=True)
            found.keep_apart(other, node, doubtful, is_certain=False)
    for other, node in others:
        if other.uid == pod.uid or is_gone(other) or other.is_finished:
            continue
        _note_ports(found, pod, other, node)
        certain, doubtful = _keys(pod, other, cluster)
        found.keep_apart(other, node, certain, is_certain=True)
        found.keep_apart(other, node, doubtful, is_certain=False)
    return found


def _note_ports(found: Conflicts, pod: Pod, other: Pod, node: Node) -> None:
    for port in ports.conflicts(pod.ports, other.ports):
        if other.uid != pod.uid:
            found.note(other, node, f"host port {port} is taken")


def _rivals(cluster: Cluster, pod: Pod) -> Iterable[Group]:
    """The groups of which a term, theirs or the pod's, may speak."""
    groups = {id(group): group for group in cluster.keeping_apart.values()}
    for term in pod.anti_affinity:
        everywhere = term.namespace_selector is not None
        namespaces = list(cluster.groups) if everywhere else term.namespaces
        groups |= {id(group): group for group in cluster.groups_in(namespaces)}
    return groups.values()


def _keys(pod: Pod, other: Pod, cluster: Cluster) -> tuple[set[str], set[str]]:
    """The topology keys by which two pods are kept apart for certain, and perhaps."""
    terms = (*pod.anti_affinity, *other.anti_affinity)
    if not terms:
        return set(), set()
    # A node that is in a domain of every key, so that all terms get their say.
    anywhere = Node(name=" ", labels={term.topology_key: "" for term in terms})
    found = anti_affinity.rivals(pod, [(other, anywhere)], cluster.namespaces)
    return {key for key, _ in found.certain}, {key for key, _ in found.doubtful}
