"""The volumes of a waiting pod, judged as the scheduler does (rescheduler-spec 4.3).

Claims that are not bound, ReadWriteOncePod, and volumes of in-tree plugins or with zone labels are
not judged. Nothing is cached. How many volumes a CSI driver can attach to a node is not checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import convert
from msgspec.json import decode
from msgspec.structs import replace

from harbourmaster.api.resources import VOLUME_CLAIMS, VOLUMES
from harbourmaster.kube.errors import ForbiddenError, NotFoundError
from harbourmaster.policies.model import NodeSelector
from harbourmaster.rescheduling.constraints import node_terms
from harbourmaster.rescheduling.decoding import claim_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from harbourmaster.api.resources import Resource
    from harbourmaster.rescheduling.model import NodeTerm, PendingPod, Pod

    Get = Callable[[Resource, str, str | None], Awaitable[bytes]]

_BOUND: Final = "pv.kubernetes.io/bind-completed"
_PLUGINS: Final = frozenset(("csi", "fc", "hostPath", "iscsi", "local", "nfs"))
"""Volumes of other plugins get their node affinity from a CSI driver, in the scheduler."""
_ZONED: Final = ("topology.kubernetes.io/", "failure-domain.beta.kubernetes.io/")


async def with_volumes(pending: PendingPod, get: Get) -> PendingPod:
    """The pod with its volumes; claims that cannot be judged stay unsupported, with the reason.

    Raises ApiError.
    """
    volumes: dict[str, tuple[NodeTerm, ...] | None] = {}
    unread = set(map(claim_text, pending.claims))
    faults = [reason for reason in pending.unsupported if reason not in unread]
    for name, is_own in pending.claims.items():
        try:
            claim = decode(await get(VOLUME_CLAIMS, name, pending.pod.namespace))
            fault = _fault(claim, pending.pod, is_own=is_own)
            if not fault:
                volume = decode(await get(VOLUMES, claim["spec"]["volumeName"], None))
                fault = _fault_of_volume(volume)
                required = volume["spec"].get("nodeAffinity", {}).get("required")
                terms = node_terms(convert(required, NodeSelector | None))
                volumes[volume["metadata"]["name"]] = terms
        except (ForbiddenError, NotFoundError) as error:
            fault = error.message
        faults += [f"{claim_text(name)} ({fault})"] if fault else []
    return replace(pending, volumes=volumes, unsupported=tuple(faults))


def _fault(claim: dict[str, Any], pod: Pod, *, is_own: bool) -> str:
    """Why the claim of a pod, which the pod made if ``is_own``, cannot be judged; or empty."""
    metadata, spec = claim["metadata"], claim["spec"]
    if is_own and pod.uid not in {
        reference["uid"] for reference in metadata.get("ownerReferences", ())
    }:
        return "it belongs to another object"
    if "deletionTimestamp" in metadata or claim.get("status", {}).get("phase") == "Lost":
        return "it is being deleted, or its volume is lost"
    if not spec.get("volumeName") or _BOUND not in metadata.get("annotations", ()):
        return "it is not bound to a volume"
    return "it is ReadWriteOncePod" if "ReadWriteOncePod" in spec["accessModes"] else ""


def _fault_of_volume(volume: dict[str, Any]) -> str:
    if any(label.startswith(_ZONED) for label in volume["metadata"].get("labels", ())):
        return "its volume has zone labels"
    return "its volume is of an in-tree plugin" if _PLUGINS.isdisjoint(volume["spec"]) else ""
