"""What decides: one snapshot with the settings, and the merges already worked out for it.

A merge depends on the policies that match and on the owned fields of the pod spec, nothing else.
Most workloads set few of these fields, and the pods of one workload all the same ones, so the same
merges come again and again; each is made once and its answer kept encoded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from policies.merge import merge
from webhook.review import Response, allowed, patched

if TYPE_CHECKING:
    from collections.abc import Hashable

    from policies.compiled import CompiledPolicy
    from policies.merge import Merged
    from policies.pods import Kind, PodSpec, PodView
    from webhook.settings import AdmissionSettings
    from webhook.snapshot import Snapshot

MUTATED: Final = "mutated"
"""A patch was sent."""
UNCHANGED: Final = "unchanged"
"""Policies matched, but the pod already holds all they ask for."""

MAX_KEPT_BYTES: Final = 4 * 1024 * 1024
"""Of encoded answers and of the fields they answer; beyond it all are forgotten at once."""
_ENTRY_BYTES: Final = 1024
"""What an entry takes besides."""


class Verdict(Struct, frozen=True, gc=False):
    """What was decided, for the answer, the log and the metrics; the same for equal questions."""

    outcome: str
    response: Response
    policies: tuple[str, ...] = ()
    operations: int = 0
    codes: tuple[str, ...] = ()
    """Of the notes given to the user."""


class Engine:
    """Decides on pods from one snapshot; a new snapshot gets a new engine."""

    __slots__ = ("_kept", "_kept_bytes", "_options", "snapshot")

    def __init__(self, snapshot: Snapshot, settings: AdmissionSettings) -> None:
        self.snapshot = snapshot
        self._options = {
            as_field: settings.merge_options(node_name_as_field=as_field)
            for as_field in (False, True)
        }
        self._kept: dict[Hashable, Verdict] = {}
        self._kept_bytes = 0

    def merge(
        self,
        kind: Kind,
        pod: PodView,
        policies: tuple[CompiledPolicy, ...],
        *,
        node_name_as_field: bool,
    ) -> Verdict:
        """Merge the policies into the pod, or find what came of it before."""
        spec = pod.spec
        key = (kind.shape, policies, node_name_as_field, None if spec is None else spec.key)
        found = self._kept.get(key)
        if found is None:
            options = self._options[node_name_as_field]
            found = _verdict(merge(pod, kind.pointer, policies, options), policies)
            self._keep(key, found, spec)
        return found

    def _keep(self, key: Hashable, verdict: Verdict, spec: PodSpec | None) -> None:
        size = _ENTRY_BYTES + len(verdict.response.encoded)
        if spec is not None:
            size += spec.key_size
        if self._kept_bytes + size > MAX_KEPT_BYTES:
            self._kept.clear()
            self._kept_bytes = 0
        if size <= MAX_KEPT_BYTES:
            self._kept[key] = verdict
            self._kept_bytes += size


class EngineHolder:
    """The current engine; replacing it is one assignment, so readers need no lock."""

    __slots__ = ("current",)

    def __init__(self, current: Engine) -> None:
        self.current = current


def _verdict(merged: Merged, policies: tuple[CompiledPolicy, ...]) -> Verdict:
    notes = merged.notes
    if merged.operations:
        outcome, response = MUTATED, patched(merged.operations, notes)
    else:
        outcome, response = UNCHANGED, allowed(notes=notes)
    return Verdict(
        outcome,
        response,
        tuple(policy.reference for policy in policies),
        len(merged.operations),
        tuple(note.code for note in notes),
    )
