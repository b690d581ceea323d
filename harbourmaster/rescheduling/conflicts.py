"""Finds the pods that a critical pod cannot run beside (rescheduler-spec 4.2, items 5 and 6).

Host ports and required anti-affinity concern two pods each: one that is on the same node can be
evicted, one that is elsewhere in the same topology domain closes the node.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from harbourmaster.rescheduling import anti_affinity, ports
from harbourmaster.rescheduling.fit import KEPT_APART, KEPT_APART_ELSEWHERE, UNKNOWN_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from harbourmaster.rescheduling.anti_affinity import Rivals
    from harbourmaster.rescheduling.cluster import Cluster
    from harbourmaster.rescheduling.model import Node, Pod


class Conflicts(NamedTuple):
    """The pods that conflict with one pod: reasons by node and UID, and topology domains."""

    by_node: Mapping[str, Mapping[str, str]]
    rivals: Rivals

    def on(self, node: Node) -> Mapping[str, str]:
        """The conflicting pods on the node: reasons by UID."""
        return self.by_node.get(node.name, {})

    def closing(self, node: Node) -> str:
        """Why no eviction on the node helps; empty if one may."""
        if self.rivals.are_elsewhere(node):
            return KEPT_APART_ELSEWHERE
        if any(item in self.rivals.doubtful for item in node.labels.items()):
            return UNKNOWN_NAMESPACE
        return ""


def find(
    cluster: Cluster,
    pod: Pod,
    is_gone: Callable[[Pod], bool],
    others: Iterable[tuple[Pod, Node]] = (),
    replaced: str = "",
) -> Conflicts:
    """The conflicts in the cluster, and with ``others``, which count as present.

    The pods of the cluster on the node ``replaced`` do not count.
    """
    suspects = [suspect for suspect in _suspects(cluster, pod) if suspect.node != replaced]
    placed = list(staying(cluster, pod, is_gone, suspects, others))
    by_node: dict[str, dict[str, str]] = {}
    for neighbour, node in placed:
        for port in ports.conflicts(pod.ports, neighbour.ports):
            by_node.setdefault(node.name, {})[neighbour.uid] = f"host port {port} is taken"
        if anti_affinity.keeps_apart(pod, neighbour, node, cluster.namespaces):
            by_node.setdefault(node.name, {})[neighbour.uid] = KEPT_APART
    return Conflicts(by_node, anti_affinity.rivals(pod, placed, cluster.namespaces))


def staying(
    cluster: Cluster,
    pod: Pod,
    is_gone: Callable[[Pod], bool],
    bound: Iterable[Pod],
    others: Iterable[tuple[Pod, Node]],
) -> Iterator[tuple[Pod, Node]]:
    """The bound pods and the others that count, but ``pod``, with their nodes."""
    known = ((pod, node) for pod in bound if (node := cluster.node(pod.node)) is not None)
    for neighbour, node in chain(known, others):
        if neighbour.uid != pod.uid and not neighbour.is_finished and not is_gone(neighbour):
            yield neighbour, node


def _suspects(cluster: Cluster, pod: Pod) -> list[Pod]:
    """The bound pods that may conflict: by their ports and terms, or by a term of ``pod``."""
    exclusive = cluster.in_the_way_of(pod)
    suspects = list(exclusive.values())
    if not pod.anti_affinity:
        return suspects
    is_anywhere = any(term.namespace_selector is not None for term in pod.anti_affinity)
    namespaces = frozenset().union(*(term.namespaces for term in pod.anti_affinity))
    may_match: dict[tuple[str, int], bool] = {}
    for neighbour in cluster.pods():
        if is_anywhere or neighbour.namespace in namespaces:
            # Pods that are alike share one object of labels.
            key = neighbour.namespace, id(neighbour.labels)
            if key not in may_match:
                may_match[key] = anti_affinity.may_select(pod, neighbour, cluster.namespaces)
            if may_match[key] and neighbour.uid not in exclusive:
                suspects.append(neighbour)
    return suspects
