"""Whether a pod may run on a node beside the present pods (rescheduler-spec 4.2, 4.3).

It is never more permissive than the scheduler; what it cannot evaluate is reported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from harbourmaster.rescheduling import anti_affinity, node_affinity, ports, taints
from harbourmaster.rescheduling.model import TAINT_KEY, FitVerdict, PendingPod
from harbourmaster.rescheduling.requests import PODS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from harbourmaster.rescheduling.anti_affinity import Namespaces, Rivals
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
        f"host port {port} is taken" for port in ports.conflicts(pending.pod.ports, taken)
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
