"""Owners of gated pods as the API server has them now: what pods inherit, and which one counts.

Asked live, one object at a time, and only for pods of which it matters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.metadata import Metadata
from harbourmaster.controller.lifecycle.owners import OwnerSpec, OwnerStatus
from harbourmaster.gates.metadata import Metadata as Keys
from harbourmaster.gates.owners import (
    DEPLOYMENT,
    ROLLOUT,
    STATEFUL_SET,
    SUPPORTED,
    is_parent,
    is_replica_set,
    parent_of,
)
from harbourmaster.kube.errors import NotFoundError
from harbourmaster.lifecycle.gated_pods import GENERATION_LABEL, REVISION_LABEL

if TYPE_CHECKING:
    from harbourmaster.api.metadata import OwnerReference
    from harbourmaster.kube.client import Client
    from harbourmaster.lifecycle.gated_pods import Pod

_REVISIONS: Final = {
    DEPLOYMENT: "deployment.kubernetes.io/revision",
    ROLLOUT: "rollout.argoproj.io/revision",
}
"""The annotation that a ReplicaSet and its owner both have, equal while the ReplicaSet counts."""
_TEMPLATE_GENERATION: Final = "deprecated.daemonset.template.generation"


class OwnerGoneError(Exception):
    """The owner of a pod, or the owner's owner, is not there any more; the text names it."""


class LiveOwner(Struct, frozen=True, gc=False):
    """An owner, projected."""

    metadata: Metadata = Metadata()
    spec: OwnerSpec = OwnerSpec()
    status: OwnerStatus = OwnerStatus()


_decode: Final = msgspec.json.Decoder(LiveOwner).decode


async def inherited(client: Client, namespace: str, owner: OwnerReference) -> Keys | None:
    """The metadata that pods of this owner inherit; None where there is nothing to inherit from.

    Raises OwnerGoneError, ApiError.
    """
    if is_replica_set(owner):
        above = parent_of((await _get(client, namespace, owner)).metadata.owner_references)
        if above is None:
            return None
        owner = above
    elif not is_parent(owner):
        return None
    metadata = (await _get(client, namespace, owner)).metadata
    return Keys(metadata.annotations, metadata.labels)


async def is_superseded(
    client: Client, pod: Pod, owner: OwnerReference, *, has_version: bool = True
) -> bool:
    """Tell whether a rollout replaces the pod, as far as that is certain. Raises ApiError.

    A pod below the partition of a StatefulSet keeps its revision, and counts as superseded only if
    ``has_version``: without a version that was checked it would wait forever.
    """
    try:
        if is_replica_set(owner):
            return await _is_old_replica_set(client, pod.namespace, owner)
        if not is_parent(owner):
            return False
        found = await _get(client, pod.namespace, owner)
    except OwnerGoneError:
        return True
    if owner.kind == STATEFUL_SET:
        if not has_version and _is_below_partition(pod, found.spec):
            return False
        revision, wanted = pod.labels.get(REVISION_LABEL), found.status.update_revision
        is_current = found.status.observed_generation == found.metadata.generation
        return is_current and bool(revision and wanted) and revision != wanted
    return _is_older(
        pod.labels.get(GENERATION_LABEL), found.metadata.annotations.get(_TEMPLATE_GENERATION)
    )


async def _is_old_replica_set(client: Client, namespace: str, owner: OwnerReference) -> bool:
    found = await _get(client, namespace, owner)
    above = parent_of(found.metadata.owner_references)
    if above is None:
        return False
    key = _REVISIONS[above.kind]
    return _is_older(
        found.metadata.annotations.get(key),
        (await _get(client, namespace, above)).metadata.annotations.get(key),
    )


def _is_below_partition(pod: Pod, spec: OwnerSpec) -> bool:
    ordinal = pod.name.rpartition("-")[2]
    kept_pods = spec.kept_pods or 0
    return ordinal.isdecimal() and int(ordinal) < spec.ordinals.start + kept_pods


async def _get(client: Client, namespace: str, owner: OwnerReference) -> LiveOwner:
    gone = f"{owner.kind} {owner.name}"
    try:
        found = _decode(await client.get(SUPPORTED[owner.kind], owner.name, namespace))
    except NotFoundError as error:
        raise OwnerGoneError(gone) from error
    if owner.uid and found.metadata.uid != owner.uid:
        raise OwnerGoneError(gone)
    return found


def _is_older(text: str | None, than: str | None) -> bool:
    """Of two counters; what is none tells nothing."""
    if not (text and than and text.isdecimal() and than.isdecimal()):
        return False
    return int(text) < int(than)
