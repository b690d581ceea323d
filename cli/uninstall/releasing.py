"""What is undone on objects of the users', from gates to reservations of nodes. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from harbourmaster.cli.installed import OUR_DOMAIN
from harbourmaster.cli.live.kinds import decode_workload
from harbourmaster.gates.gate import GATE
from harbourmaster.gates.known_keys import KNOWN_KEYS
from harbourmaster.gates.metadata import PARENT_KEY, REMOVED_KEY
from harbourmaster.gates.owners import SUPPORTED
from harbourmaster.gates.release import CHECKS_KEY, NONE, OURS, removal
from harbourmaster.gates.waits import ON_TIMEOUT_KEY, TIMEOUT_KEY, WAIT_FOR_KEY
from harbourmaster.gates.workload import workload_of
from harbourmaster.rescheduling.reservation import clear, decode_held

if TYPE_CHECKING:
    import msgspec

    from harbourmaster.api.metadata import Metadata
    from harbourmaster.cli.live.kinds import Workload
    from harbourmaster.rescheduling.reservation import Held

MIRRORED: Final = f"gates.{OUR_DOMAIN}/enabled"
"""The label on namespaces that mirrors Keptn's annotation."""
_THEIRS: Final = {WAIT_FOR_KEY, TIMEOUT_KEY, ON_TIMEOUT_KEY}
_WRITTEN: Final = frozenset(key for key in KNOWN_KEYS - _THEIRS if key.startswith(OURS))


def gated_pod(raw: msgspec.Raw | bytes, *, keptn: bool = False) -> Workload | None:
    """The pod if it carries the gate; ``keptn``: if it has no checks, so that Keptn keeps it."""
    pod = decode_workload(raw)
    is_left = keptn and pod.metadata.annotations.get(CHECKS_KEY) != NONE
    return pod if GATE in pod.gates and not is_left else None


def ungate(pod: Workload) -> list[dict[str, Any]] | None:
    """The patch that removes the gate, and no other, from this very pod; None where it has none.

    It fails where gates have moved or the name belongs to another pod by now.
    """
    return removal(pod.metadata.uid, pod.gates, pod.metadata.annotations or None)


def our_annotations(pod: Metadata, *, keptn: bool) -> list[str]:
    """What we wrote on a pod: of our keys, users write there those of waits alone.

    Keptn reads REMOVED_KEY at each update of a pod: without it, Keptn adds its gate, which the API
    server refuses (keptn-spec 2.3).
    """
    written = _WRITTEN if keptn else _WRITTEN | {REMOVED_KEY}
    return [key for key in pod.annotations if key in written]


def is_recreated(pod: Workload) -> bool:
    """Whether it has its scheduler from us, and an owner that makes another without it."""
    metadata = pod.metadata
    annotations = metadata.annotations
    named = workload_of(annotations, metadata.labels)
    if named is None and annotations.keys().isdisjoint((PARENT_KEY, CHECKS_KEY)):
        # It was never gated, so its own template names the scheduler.
        return False
    owner = metadata.controller
    return owner is not None and owner.kind in SUPPORTED


def scheduled_pod(scheduler: str, raw: msgspec.Raw | bytes) -> Workload | None:
    """The pod if that scheduler has yet to place it."""
    pod = decode_workload(raw)
    if pod.spec.scheduler_name != scheduler or pod.spec.node_name:
        return None
    return None if pod.metadata.deletion_timestamp else pod


def reserved_node(raw: msgspec.Raw) -> Held | None:
    """The node if anything of ours is on it."""
    node = decode_held(raw)
    return node if clear(node) else None


def our_finalizers(metadata: Metadata) -> bool:
    """Whether one of our finalizers holds the object."""
    return any(map(_is_our_finalizer, metadata.finalizers))


def without_our_finalizers(metadata: Metadata) -> list[dict[str, Any]]:
    """The patch that leaves only others' finalizers; it fails where they changed meanwhile."""
    present = metadata.finalizers
    others = [one for one in present if not _is_our_finalizer(one)]
    return [
        {"op": "test", "path": "/metadata/uid", "value": metadata.uid},
        {"op": "test", "path": "/metadata/finalizers", "value": list(present)},
        {"op": "replace", "path": "/metadata/finalizers", "value": others},
    ]


def _is_our_finalizer(name: str) -> bool:
    domain = name.partition("/")[0]
    return domain == OUR_DOMAIN or domain.endswith(f".{OUR_DOMAIN}")
