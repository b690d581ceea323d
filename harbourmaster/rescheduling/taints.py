"""Decides which taints keep a pod away, and which nodes are never used (rescheduler-spec 4.2, 6.2).

The comparing operators ``Gt`` and ``Lt`` of tolerations match nothing: they are alpha.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harbourmaster.rescheduling.model import TAINT_KEY, Taint

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from harbourmaster.rescheduling.model import Toleration

NO_SCHEDULE: Final = "NoSchedule"
_KEEPING_AWAY: Final = frozenset((NO_SCHEDULE, "NoExecute"))
_CORDON: Final = Taint("node.kubernetes.io/unschedulable", "", NO_SCHEDULE)
EXCLUDING: Final = frozenset(
    (
        "ToBeDeletedByClusterAutoscaler",
        "karpenter.sh/disrupted",
        "karpenter.sh/disruption",
        "node.cloudprovider.kubernetes.io/shutdown",
        "node.kubernetes.io/out-of-service",
    )
)
"""Taint keys of nodes that are about to be removed; a toleration makes no difference."""
DELETION_CANDIDATE: Final = "DeletionCandidateOfClusterAutoscaler"


def is_tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    """Whether one of them matches the taint."""
    return any(_matches(toleration, taint) for toleration in tolerations)


def find_untolerated(
    taints: Iterable[Taint], tolerations: tuple[Toleration, ...]
) -> Iterator[Taint]:
    """The taints that keep a pod with these tolerations away."""
    for taint in taints:
        if taint.effect in _KEEPING_AWAY and not is_tolerated(taint, tolerations):
            yield taint


def tolerates_cordon(tolerations: Iterable[Toleration]) -> bool:
    """Whether a pod may go to a cordoned node."""
    return is_tolerated(_CORDON, tolerations)


def tolerates_reservation(tolerations: Iterable[Toleration], key: str = TAINT_KEY) -> bool:
    """Whether a pod may go to a node that is reserved, whatever the value of that taint."""
    return any(
        toleration.operator == "Exists" and _matches(toleration, Taint(key, "", NO_SCHEDULE))
        for toleration in tolerations
    )


def _matches(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in {"", taint.effect}:
        return False
    if toleration.operator == "Exists":
        return toleration.key in {"", taint.key}
    if toleration.operator not in {"", "Equal"}:
        return False
    return toleration.key == taint.key and toleration.value == taint.value
