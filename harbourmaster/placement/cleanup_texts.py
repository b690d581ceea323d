"""Texts about the objects of an application on a cluster that it leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harbourmaster.placement.inventory import ADOPTED, MADE
from harbourmaster.placement.manifests import for_deletion

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harbourmaster.placement.inventory import Inventory, ObjectRef
    from harbourmaster.placement.rollout import Record

NAMED: Final = 8
"""Objects of a kind of end that are named; the rest is counted."""
_CLAIM: Final = ("", "PersistentVolumeClaim")


def describe_cleanup(objects: Inventory) -> str:
    """Return which objects are deleted, volumes first, and which stay, in one line."""
    refs_in_order = sorted(for_deletion(objects), key=lambda ref: (ref.group, ref.kind) != _CLAIM)
    texts = {
        "deletes {}": [ref for ref in refs_in_order if ref.origin == MADE],
        # As the deletion will find them.
        "deletes {}, unless others created them": [ref for ref in refs_in_order if not ref.origin],
        "keeps {}, which existed before": [ref for ref in refs_in_order if ref.origin == ADOPTED],
    }
    parts = [text.format(_join_first(refs)) for text, refs in texts.items() if refs]
    return "; ".join(parts) or "deletes nothing"


def describe_move(before: Record, to: str) -> str:
    """Return what a move to a cluster deletes on the other clusters, in one line."""
    others = [entry for entry in before.inventory.items() if entry[0] != to]
    parts = [f"from cluster {before.running_on or ', '.join(before.inventory)} to {to}"]
    parts += [f"on {name}: {describe_cleanup(objects)}" for name, objects in others]
    return "; ".join(parts)


def describe_abandoned(before: Record, after: Record) -> Iterator[str]:
    """Yield a line for each cluster that does not answer or has no Cluster any more."""
    forgotten = set(before.clusters) - set(after.clusters)
    for name in sorted(forgotten or set(before.inventory) - set(after.inventory)):
        objects = before.objects(name)
        if forgotten:
            yield f"Cluster {name} does not exist, so these stay there: {_join_first(objects)}"
        else:
            yield f"once cluster {name} is reachable: {describe_cleanup(objects)}"


def _join_first(refs: Sequence[ObjectRef]) -> str:
    more = f" and {len(refs) - NAMED} more" if len(refs) > NAMED else ""
    return ", ".join(ref.text for ref in refs[:NAMED]) + more
