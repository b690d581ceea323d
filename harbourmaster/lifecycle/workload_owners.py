"""Decides which owner of pods a KeptnWorkload follows, in which version (keptn-spec 2.6). Pure.

A KeptnWorkload follows one owner, and only goes on to one that replaces it. Owners that do not
replace each other, such as the ReplicaSets of two Deployments, have their versions side by side.
Otherwise their pods would overwrite the workload in turns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from msgspec import structs

from harbourmaster.gates.release import OURS, annotation
from harbourmaster.lifecycle.model import WorkloadStatus
from harbourmaster.lifecycle.workloads import (
    SINCE_KEY,
    annotation_operations,
    copy_operations,
    is_of_pods,
    owners_of_pods,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harbourmaster.lifecycle.model import Workload, WorkloadVersion
    from harbourmaster.lifecycle.workloads import DesiredWorkload

SHARING_ADVICE: Final = "if that is wrong, give each its own keptn.sh/workload"
OTHERS_KEY: Final = f"{OURS}other-owners"
"""Annotation of a workload: JSON with the owners that it does not follow, by uid, each with the
version and the creation time of its newest pod."""


class OwnedVersion(NamedTuple):
    """The version of one owner's pods, and the creation time of the newest of them."""

    version: str
    since: str


_decode: Final = msgspec.json.Decoder(dict[str, OwnedVersion]).decode


def other_owners(workload: Workload) -> dict[str, OwnedVersion]:
    """Return the versions of those owners, by uid, that the workload has and does not follow."""
    try:
        listed = _decode(workload.metadata.annotations.get(OTHERS_KEY, "{}"))
    except msgspec.DecodeError:
        return {}
    return {uid: listed[uid] for uid in owner_uids(workload) if uid in listed}


def owned_versions(workload: Workload) -> dict[str, OwnedVersion]:
    """Return the version of each owner by uid; of one that is gone, only if it was the last."""
    own = OwnedVersion(workload.spec.version, workload.metadata.annotations.get(SINCE_KEY, ""))
    followed, others = workload.spec.resource_reference.uid, other_owners(workload)
    return others if others and followed not in owner_uids(workload) else {**others, followed: own}


def current_versions(workload: Workload) -> list[str]:
    """Return the versions of all owners of the workload, each once, in alphabetical order."""
    return sorted({owned.version for owned in owned_versions(workload).values()})


def describe_owners(workload: Workload | None) -> str:
    """Return the owners of a workload with their versions, or "" unless there are several."""
    if workload is None:
        return ""
    owned = owned_versions(workload)
    texts = [
        f"{reference.kind} {reference.name} (version {owned[reference.uid].version})"
        for reference in workload.metadata.owner_references
        if reference.uid in owned
    ]
    return f"several owners have its workload: {', '.join(texts)}" if len(texts) > 1 else ""


def owner_uids(workload: Workload) -> list[str]:
    """Return the uids of the owners of pods that keep the workload from being deleted."""
    return [reference.uid for reference in owners_of_pods(workload)]


def is_to_follow(
    workload: Workload, version: WorkloadVersion | None, wish: DesiredWorkload
) -> bool:
    """Whether the workload must change as desired, unless the pod's owner is superseded.

    Of the pods of one owner the newer one decides, or the one whose version is missing.
    """
    uid, followed = wish.owner.uid, workload.spec.resource_reference.uid
    owned = owned_versions(workload).get(uid)
    if owned is None or not {uid, followed} <= {*owner_uids(workload)}:
        return True
    if owned.version != wish.spec.version:
        return version is None or wish.since > owned.since
    return uid == followed and workload.spec != wish.spec and wish.since > owned.since


def follow_operations(
    workload: Workload, wish: DesiredWorkload, replaced: Mapping[str, bool]
) -> list[dict[str, Any]]:
    """Return the operations that change the workload as desired.

    ``replaced`` has the owners that the pod's owner replaces, by uid: whether they still have pods.
    If the workload follows another owner that is not replaced, it goes on to follow that one.
    """
    metadata, followed = workload.metadata, workload.spec.resource_reference.uid
    references = [
        reference
        for reference in owners_of_pods(workload)
        if reference.uid != wish.owner.uid and replaced.get(reference.uid, True)
    ]
    others = {uid: owned for uid, owned in other_owners(workload).items() if uid not in replaced}
    operations: list[dict[str, Any]] = [
        {"op": "add", "path": "/metadata/ownerReferences", "value": [*references, wish.owner]}
    ]
    if followed in replaced or followed not in owner_uids(workload):
        before = metadata.annotations.get(SINCE_KEY, "") if is_of_pods(workload) else ""
        since = max(wish.since, before)
        operations += [
            {"op": "add", "path": "/spec", "value": wish.spec},
            *annotation_operations(metadata, SINCE_KEY, since),
            *copy_operations(metadata.annotations, wish.annotations),
        ]
    else:
        others[wish.owner.uid] = OwnedVersion(wish.spec.version, wish.since)
    if others:
        text = msgspec.json.encode(others).decode()
        operations += annotation_operations(metadata, OTHERS_KEY, text)
    elif OTHERS_KEY in metadata.annotations:
        operations.append({"op": "remove", "path": annotation(OTHERS_KEY)})
    return operations


def beside(workload: Workload, wish: DesiredWorkload) -> Workload | None:
    """Return the workload as if it followed the pod's owner; None if it has that version itself."""
    owned = other_owners(workload).get(wish.owner.uid)
    if (
        owned is None
        or owned.version != wish.spec.version
        or owned.version == workload.spec.version
    ):
        return None
    metadata = structs.replace(workload.metadata, annotations=wish.annotations)
    status = WorkloadStatus(owners=tuple(owner_uids(workload)))
    return structs.replace(workload, metadata=metadata, spec=wish.spec, status=status)
