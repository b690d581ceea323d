"""What is undone on objects of the users', from gates to reservations of nodes. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.cli.installed import OUR_DOMAIN
from harbourmaster.cli.metadata import Metadata
from harbourmaster.gates.gate import GATE
from harbourmaster.gates.metadata import PARENT_KEY
from harbourmaster.gates.owners import SUPPORTED
from harbourmaster.gates.release import OURS, removal
from harbourmaster.gates.workload import workload_of
from harbourmaster.rescheduling.reservation import clear, decode_held

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harbourmaster.rescheduling.reservation import Held

MIRRORED: Final = f"gates.{OUR_DOMAIN}/enabled"
"""The label on namespaces that mirrors Keptn's annotation."""


class _Gate(Struct, frozen=True):
    name: str = ""


class _PodSpec(Struct, frozen=True, rename="camel"):
    scheduling_gates: tuple[_Gate, ...] | None = None


class GatedPod(Struct, frozen=True):
    """A pod, projected onto its gates."""

    metadata: Metadata
    spec: _PodSpec = _PodSpec()

    @property
    def gate_index(self) -> int | None:
        """Where the gate stands; None where it doesn't."""
        for index, gate in enumerate(self.spec.scheduling_gates or ()):
            if gate.name == GATE:
                return index
        return None


_decode_pod: Final = msgspec.json.Decoder(GatedPod).decode


def gated_pod(raw: msgspec.Raw | bytes) -> GatedPod | None:
    """The pod if it carries the gate."""
    pod = _decode_pod(raw)
    return None if pod.gate_index is None else pod


def ungate(pod: GatedPod) -> list[dict[str, Any]] | None:
    """The patch that removes the gate, and no other, from this very pod; None where it has none.

    It fails where gates have moved or the name belongs to another pod by now.
    """
    annotations = pod.metadata.annotations
    return removal(
        pod.metadata.uid,
        [gate.name for gate in pod.spec.scheduling_gates or ()],
        annotations,
        drop=[key for key in annotations or {} if key.startswith(OURS)],
    )


class _Owner(Struct, frozen=True):
    kind: str = ""
    controller: bool = False


class _OwnedMetadata(Metadata, frozen=True, rename="camel"):
    owner_references: tuple[_Owner, ...] | None = None


class _ScheduledSpec(Struct, frozen=True, rename="camel"):
    scheduler_name: str = ""
    node_name: str = ""


class ScheduledPod(Struct, frozen=True):
    """A pod, projected onto its scheduler and its owners."""

    metadata: _OwnedMetadata
    spec: _ScheduledSpec = _ScheduledSpec()

    @property
    def key(self) -> str:
        """Namespace and name."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def is_remade(self) -> bool:
        """Whether it has its scheduler from us, and an owner that makes another without it."""
        metadata = self.metadata
        annotations = metadata.annotations or {}
        if PARENT_KEY not in annotations and not workload_of(annotations, metadata.labels or {}):
            # It was never gated, so its own template names the scheduler.
            return False
        owners = metadata.owner_references or ()
        return any(each.controller and each.kind in SUPPORTED for each in owners)


_decode_scheduled: Final = msgspec.json.Decoder(ScheduledPod).decode


def scheduled_pod(scheduler: str, raw: msgspec.Raw | bytes) -> ScheduledPod | None:
    """The pod if that scheduler has yet to place it."""
    pod = _decode_scheduled(raw)
    if pod.spec.scheduler_name != scheduler or pod.spec.node_name:
        return None
    return None if pod.metadata.deletion_timestamp else pod


def reserved_node(raw: msgspec.Raw) -> Held | None:
    """The node if anything of ours is on it."""
    node = decode_held(raw)
    return node if clear(node) else None


def unlabel(key: str) -> dict[str, Any]:
    """The merge patch that removes a label."""
    return {"metadata": {"labels": {key: None}}}


def our_finalizers(metadata: Metadata) -> bool:
    """Whether one of our finalizers holds the object."""
    return any(map(_is_our_finalizer, metadata.finalizers or ()))


def without_our_finalizers(metadata: Metadata) -> list[dict[str, Any]]:
    """The patch that leaves only others' finalizers; it fails where they changed meanwhile."""
    present: Sequence[str] = metadata.finalizers or ()
    others = [one for one in present if not _is_our_finalizer(one)]
    return [
        {"op": "test", "path": "/metadata/uid", "value": metadata.uid},
        {"op": "test", "path": "/metadata/finalizers", "value": list(present)},
        {"op": "replace", "path": "/metadata/finalizers", "value": others},
    ]


def _is_our_finalizer(name: str) -> bool:
    domain = name.partition("/")[0]
    return domain == OUR_DOMAIN or domain.endswith(f".{OUR_DOMAIN}")
