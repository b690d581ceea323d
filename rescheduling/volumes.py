"""PersistentVolumeClaims of a pod and their volumes, as the scheduler judges them (4.3).

Not judged are claims without a volume, volumes of in-tree plugins and ReadWriteOncePod. The limits
of CSI drivers, on the number of volumes of a node, are not checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Raw, Struct, field

from harbourmaster.api.decoding import decode
from harbourmaster.policies.model import NodeSelector
from harbourmaster.rescheduling.constraints import node_terms
from harbourmaster.rescheduling.model import BoundVolume
from harbourmaster.rescheduling.node_affinity import ZONES
from harbourmaster.rescheduling.projections import ObjectMeta, Owner  # noqa: TC001 - decoded

if TYPE_CHECKING:
    from harbourmaster.rescheduling.model import Pod

_IN_TREE: Final = frozenset(
    (
        "awsElasticBlockStore",
        "azureDisk",
        "azureFile",
        "cinder",
        "gcePersistentDisk",
        "portworxVolume",
        "rbd",
        "vsphereVolume",
    )
)
"""Volumes whose node affinity the scheduler translates to that of a CSI driver."""
_ALONE: Final = "ReadWriteOncePod"
_BETWEEN: Final = "__"
"""Between the zones in a label of a volume."""


class _Notes(Struct, frozen=True):
    bound: str | None = field(default=None, name="pv.kubernetes.io/bind-completed")


class _ClaimMeta(ObjectMeta, frozen=True, rename="camel"):
    annotations: _Notes | None = None
    owner_references: tuple[Owner, ...] | None = None


class _ClaimSpec(Struct, frozen=True, rename="camel"):
    volume_name: str | None = None
    access_modes: tuple[str, ...] | None = None


class _ClaimStatus(Struct, frozen=True):
    phase: str | None = None


class Claim(Struct, frozen=True):
    """A PersistentVolumeClaim."""

    metadata: _ClaimMeta = _ClaimMeta()
    spec: _ClaimSpec = _ClaimSpec()
    status: _ClaimStatus = _ClaimStatus()

    def fault(self, pod: Pod, *, is_own: bool) -> str:
        """Why the claim of a pod, which the pod made if ``is_own``, cannot be judged; or empty."""
        metadata, spec = self.metadata, self.spec
        owners = [each.uid for each in metadata.owner_references or () if each.controller]
        if is_own and pod.uid not in owners:
            return "it belongs to another object"
        if metadata.deletion_timestamp is not None or self.status.phase == "Lost":
            return "it is being deleted, or its volume is lost"
        if not (spec.volume_name and metadata.annotations and metadata.annotations.bound):
            return "it is not bound to a volume"
        if _ALONE in (spec.access_modes or ()):
            return f"its access mode is {_ALONE}"
        return ""


class _Affinity(Struct, frozen=True):
    required: NodeSelector | None = None


class _VolumeSpec(Struct, frozen=True, rename="camel"):
    node_affinity: _Affinity | None = None


class _Volume(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: Raw = Raw(b"{}")


_claims: Final = msgspec.json.Decoder(Claim)
_volumes: Final = msgspec.json.Decoder(_Volume)
_specs: Final = msgspec.json.Decoder(_VolumeSpec)
_fields: Final = msgspec.json.Decoder(dict[str, Raw])


def decode_claim(raw: bytes | Raw) -> Claim:
    """A PersistentVolumeClaim. Raises MalformedError."""
    return decode(_claims, raw, "")


def decode_volume(raw: bytes | Raw) -> BoundVolume | str:
    """A PersistentVolume, or why it cannot be judged. Raises MalformedError."""
    given = decode(_volumes, raw, "")
    for kind in decode(_fields, given.spec, "spec"):
        if kind in _IN_TREE:
            return f"its volume is of the in-tree plugin {kind}"
    affinity = decode(_specs, given.spec, "spec").node_affinity
    labels = given.metadata.labels or {}
    zones = ((key, [each.strip() for each in labels.get(key, "").split(_BETWEEN)]) for key in ZONES)
    return BoundVolume(
        given.metadata.name or "",
        node_terms(affinity.required if affinity else None),
        tuple((key, frozenset(values)) for key, values in zones if all(values)),
    )
