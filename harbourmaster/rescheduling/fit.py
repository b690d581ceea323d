"""Whether a pod may run on a node beside the present pods (rescheduler-spec 4.2, 4.3).

It is never more permissive than the scheduler; what it cannot evaluate is reported. Host ports and
required anti-affinity (4.2, items 5 and 6) concern two pods each: one that is on the same node can
be evicted, one that is elsewhere in the same topology domain closes the node.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from harbourmaster.rescheduling import anti_affinity, node_affinity, taints
from harbourmaster.rescheduling.model import TAINT_KEY, FitVerdict, PendingPod
from harbourmaster.rescheduling.requests import PODS, find_port_conflicts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from harbourmaster.rescheduling.anti_affinity import Namespaces, Rivals
    from harbourmaster.rescheduling.cluster import Cluster
    from harbourmaster.rescheduling.model import Node, Pod, Requests
    from harbourmaster.rescheduling.topology import Topology

NOT_READY: Final = "node is not ready"
DELETING: Final = "node is being deleted"
CORDONED: Final = "node is cordoned"
NOT_SELECTED: Final = "node selector or affinity does not match"
OTHER_NODE: Final = "another node is named"
NOT_TOLERATING: Final = "the taint of reservations is not tolerated"
TOO_MANY_PODS: Final = "too many pods"
KEPT_APART: Final = "anti-affinity keeps it away from a pod on the node"
KEPT_APART_ELSEWHERE: Final = "anti-affinity keeps it away from a pod on another node"
UNKNOWN_NAMESPACE: Final = "not judged: a namespace selector, the namespace's labels being unknown"
UNKNOWN_DOMAINS: Final = "not judged: topology spread or pod affinity, without the other nodes"
_NO_NAMESPACES: Final[Mapping[str, Mapping[str, str]]] = {}


def static_reasons(
    pending: PendingPod, node: Node, *, taint_key: str = TAINT_KEY, reserving: bool = True
) -> tuple[str, ...]:
    """Why the node is excluded, whatever runs there: items 1-3, and 6.2.

    ``reserving`` also considers the taint of a reservation; a node with a taint of that key gets
    no second one.
    """
    reasons = []
    if not node.is_ready:
        reasons.append(NOT_READY)
    if node.is_deleting:
        reasons.append(DELETING)
    if node.is_cordoned and not taints.tolerates_cordon(pending.tolerations):
        reasons.append(CORDONED)
    is_tainted = False
    for taint in node.taints:
        is_tainted = is_tainted or (taint.key, taint.effect) == (taint_key, taints.NO_SCHEDULE)
        if taint.key in taints.EXCLUDING:
            reasons.append(f"node is about to go: taint {taint}")
    reasons.extend(
        f"untolerated taint {taint}"
        for taint in taints.find_untolerated(node.taints, pending.tolerations)
        if taint.key not in taints.EXCLUDING
    )
    if reserving and not is_tainted and not _tolerates(pending, taint_key):
        reasons.append(NOT_TOLERATING)
    if pending.node_name not in {"", node.name}:
        reasons.append(OTHER_NODE)
    if not node_affinity.matches(pending, node):
        reasons.append(NOT_SELECTED)
    reasons.extend(
        f"volume {name} is not available there"
        for name, terms in pending.volumes.items()
        # The scheduler tells volumes no name of a node.
        if not node_affinity.matches(
            PendingPod(pod=pending.pod, node_terms=terms), replace(node, name="")
        )
    )
    return tuple(reasons)


def resource_reasons(
    requests: Requests, node: Node, used: Mapping[str, int], pods: int
) -> tuple[str, ...]:
    """Return what the node lacks for another pod beside ``pods`` pods that use ``used``."""
    available = node.allocatable
    reasons = [
        f"too little {name}"
        for name, amount in requests
        if used.get(name, 0) + amount > available.get(name, 0)
    ]
    if pods >= available.get(PODS, 0):
        reasons.append(TOO_MANY_PODS)
    return tuple(reasons)


def fits(
    pending: PendingPod,
    node: Node,
    present: Iterable[Pod],
    *,
    rivals: Rivals | None = None,
    topology: Topology | None = None,
    namespaces: Namespaces = _NO_NAMESPACES,
) -> FitVerdict:
    """Whether the pod may run on the node if exactly these pods are there.

    The pod itself and finished pods among them do not count. Without ``rivals`` anti-affinity is
    checked with the pods on the node only; without ``topology`` spread and pod affinity are not
    checked. A constraint that fails decides, even if others cannot be evaluated. The taint of a
    reservation is not considered.
    """
    beside = [pod for pod in present if not (pod.is_finished or pending.pod.is_same(pod))]
    reasons = list(static_reasons(pending, node, reserving=False))
    reasons.extend(resource_reasons(pending.pod.requests, node, sum_requests(beside), len(beside)))
    taken = tuple(port for pod in beside for port in pod.ports)
    reasons.extend(
        f"host port {port} is taken" for port in find_port_conflicts(pending.pod.ports, taken)
    )
    apart = {anti_affinity.keeps_apart(pending.pod, pod, node, namespaces) for pod in beside}
    if True in apart:
        reasons.append(KEPT_APART)
    afar = rivals.are_elsewhere(node) if rivals else False
    if afar:
        reasons.append(KEPT_APART_ELSEWHERE)
    reasons.extend(topology.reasons(node, beside) if topology else ())
    if reasons:
        return FitVerdict(False, tuple(dict.fromkeys(reasons)))
    doubts = [f"not judged: {text}" for text in pending.unsupported]
    if topology is None and (pending.spread or pending.affinity):
        doubts.append(UNKNOWN_DOMAINS)
    if None in apart or afar is None:
        doubts.append(UNKNOWN_NAMESPACE)
    return FitVerdict(None, tuple(doubts)) if doubts else FitVerdict(True)


def _tolerates(pending: PendingPod, taint_key: str) -> bool:
    return taints.tolerates_reservation(pending.tolerations, taint_key)


def sum_requests(pods: Iterable[Pod]) -> dict[str, int]:
    """Return the sum of the requests of these pods."""
    total: dict[str, int] = {}
    for pod in pods:
        for name, amount in pod.requests:
            total[name] = total.get(name, 0) + amount
    return total


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


def find_conflicts(
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
    placed = list(find_staying(cluster, pod, is_gone, suspects, others))
    by_node: dict[str, dict[str, str]] = {}
    for neighbour, node in placed:
        for port in find_port_conflicts(pod.ports, neighbour.ports):
            by_node.setdefault(node.name, {})[neighbour.uid] = f"host port {port} is taken"
        if anti_affinity.keeps_apart(pod, neighbour, node, cluster.namespaces):
            by_node.setdefault(node.name, {})[neighbour.uid] = KEPT_APART
    return Conflicts(by_node, anti_affinity.rivals(pod, placed, cluster.namespaces))


def find_staying(
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
