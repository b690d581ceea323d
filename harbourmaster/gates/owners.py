"""The owner of a pod that counts, and its object to inherit from (keptn-spec 2.3, 2.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harbourmaster.api import resources

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from harbourmaster.api.metadata import OwnerReference
    from harbourmaster.api.resources import Resource

REPLICA_SET: Final = "ReplicaSet"
DEPLOYMENT: Final = "Deployment"
STATEFUL_SET: Final = "StatefulSet"
DAEMON_SET: Final = "DaemonSet"
ROLLOUT: Final = "Rollout"
SUPPORTED: Final[Mapping[str, Resource]] = {
    REPLICA_SET: resources.REPLICA_SETS,
    DEPLOYMENT: resources.DEPLOYMENTS,
    STATEFUL_SET: resources.STATEFUL_SETS,
    DAEMON_SET: resources.DAEMON_SETS,
    ROLLOUT: resources.ROLLOUTS,
}
"""Kinds whose pods are gated; pods of Jobs, bare pods and all others never are."""

HASHES: Final = {"pod-template-hash": DEPLOYMENT, "rollouts-pod-template-hash": ROLLOUT}
"""Labels of pods with the end of the name of their ReplicaSet, and whose that is."""
_LONGEST_BASE: Final = 58
"""Characters that a generated name has before its random ones."""
_RANDOM: Final = 5
_GROUPS: Final = frozenset(("", "apps", "extensions"))
_ROLLOUT_GROUPS: Final = frozenset(("", "argoproj.io"))


def pod_name_base(owner: str) -> str:
    """Return the beginning of the generated names of the pods of an owner with this name."""
    return f"{owner}-"[:_LONGEST_BASE]


def bases_of_pod(pod: str) -> tuple[str, str]:
    """Return what ``pod_name_base`` of its owner may be: for a generated name, and a numbered one.

    Pods of a StatefulSet are numbered.
    """
    return pod[:-_RANDOM], f"{pod.rpartition('-')[0]}-"


def supported_owner(owners: Iterable[OwnerReference]) -> OwnerReference | None:
    """The last owner of a supported kind; None for a pod that is never gated.

    Only the kind counts, so that other StatefulSets than Kubernetes' stay gated by what their pods
    carry themselves.
    """
    supported = None
    for owner in owners:
        if owner.kind in SUPPORTED:
            supported = owner
    return supported


def shown_owner(owners: Sequence[OwnerReference]) -> OwnerReference | None:
    """The owner to name to people: the supported one, or the last; None of a bare pod."""
    return supported_owner(owners) or (owners[-1] if owners else None)


def is_parent(owner: OwnerReference) -> bool:
    """Whether a pod of this owner inherits from the owner itself."""
    return owner.kind in {STATEFUL_SET, DAEMON_SET} and _is_served(owner)


def is_replica_set(owner: OwnerReference) -> bool:
    """Whether a pod of this owner inherits from the owner's own owner, see ``parent_of``."""
    return owner.kind == REPLICA_SET and _is_served(owner)


def parent_of(owners: Iterable[OwnerReference]) -> OwnerReference | None:
    """Return the Deployment or Rollout among a ReplicaSet's owners, from which its pods inherit."""
    owner = supported_owner(owners)
    if owner is None or owner.kind not in {DEPLOYMENT, ROLLOUT} or not _is_served(owner):
        return None
    return owner


def workload_above(owner: OwnerReference, labels: Mapping[str, str]) -> tuple[str, str]:
    """Kind and name of the workload that a pod with this owner and these labels is of.

    No permission to read ReplicaSets is needed: their names end in a label of their pods.
    """
    for label, kind in HASHES.items():
        digits = labels.get(label)
        if digits and owner.kind == REPLICA_SET and owner.name.endswith(f"-{digits}"):
            return kind, owner.name.removesuffix(f"-{digits}")
    return owner.kind, owner.name


def _is_served(owner: OwnerReference) -> bool:
    """Whether the kind is Kubernetes' or Argo's, and no namesake of another group."""
    group, slash, _ = owner.api_version.rpartition("/")
    groups = _ROLLOUT_GROUPS if owner.kind == ROLLOUT else _GROUPS
    return group in groups or not slash
