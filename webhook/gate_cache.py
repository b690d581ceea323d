"""A cache of gate decisions: the pods of one owner have the same fields and get the same answer.

An entry is used only if every field that the decision depends on has the same bytes and the owners
are the same objects, so a cached answer never differs from a new decision.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from msgspec.structs import replace

from harbourmaster.gates.critical import SYSTEM_NAMESPACES
from harbourmaster.policies.pods import is_absent
from harbourmaster.webhook.gating import FOR_CHECKS, MAX_HASHED_BYTES, UNSUPPORTED, gate
from harbourmaster.webhook.key_warnings import key_refusal, owner_warnings, pod_warnings
from harbourmaster.webhook.reviewed_object import container_texts

if TYPE_CHECKING:
    from harbourmaster.policies.model import AdmissionWarning
    from harbourmaster.webhook.gating import GateRules, Gating, WaitsFor
    from harbourmaster.webhook.parents import Parents
    from harbourmaster.webhook.reviewed_object import ReviewedObject, ReviewedSpec
    from harbourmaster.webhook.verdict import Verdict

    _Key: TypeAlias = tuple[str, bytes, bytes, bytes, str | None, WaitsFor]


Key = TypeVar("Key")
Value = TypeVar("Value")

MAX_BYTES: Final = 4 * 1024 * 1024
"""The most bytes of one cache, keys included."""
MAX_SECONDS: Final = 600.0
"""Until it is emptied: most pods whose decisions it keeps are long there by then."""
_ENTRY_BYTES: Final = 1024
"""Added for each entry."""


class SizedCache(dict[Key, Value]):
    """Values by key; ``size`` is about the bytes that they take."""

    __slots__ = ("begun", "size")

    def __init__(self) -> None:
        super().__init__()
        self.size = 0
        self.begun = monotonic()

    def keep(self, key: Key, value: Value, size: int) -> bool:
        """Keep an entry of ``size`` bytes; False for one that is larger than all room."""
        size += _ENTRY_BYTES
        now = monotonic()
        if self.size + size > MAX_BYTES or now - self.begun > MAX_SECONDS:
            self.clear()
            self.size, self.begun = 0, now
        if size > MAX_BYTES:
            return False
        self[key] = value
        self.size += size
        return True


MAX_ANSWER_BYTES: Final = 64 * 1024
"""The most bytes of an answer that is cached."""


class CachedGating:
    """A decision, with all that it depends on besides the key."""

    __slots__ = ("containers", "gating", "is_kept", "merged", "verdict", "warnings")

    def __init__(
        self,
        gating: Gating,
        containers: tuple[bytes, ...] | None,
        warnings: tuple[AdmissionWarning, ...],
    ) -> None:
        self.gating = gating
        self.warnings = warnings
        """Further warnings."""
        self.containers = containers
        """The containers from which the version was computed, if it was."""
        self.is_kept = False
        self.merged: Verdict | None = None
        self.verdict: Verdict | None = None
        """The answer, if the policies' part is ``merged``."""

    def holds(self, spec: ReviewedSpec) -> bool:
        """Return whether the decision is still valid for a pod with the same key."""
        lineage, containers = self.gating.lineage, self.containers
        if lineage is not None and not lineage.holds():
            return False
        if containers is None or memoryview(spec.containers).nbytes > MAX_HASHED_BYTES:
            return containers is None
        return containers == container_texts(spec)


class GateCache:
    """Decides on pods, or finds what was decided before."""

    __slots__ = ("_kept", "rules")

    def __init__(self, rules: GateRules) -> None:
        self.rules = rules
        self._kept: SizedCache[_Key, CachedGating] = SizedCache()

    def decide(
        self,
        pod: ReviewedObject,
        labels: dict[str, str],
        namespace: str,
        parents: Parents,
        waits_for: WaitsFor = FOR_CHECKS,
    ) -> CachedGating:
        """Decide on a pod. Raises MalformedError, as ``gate`` does."""
        spec = pod.spec
        key = _key(pod, namespace, waits_for)
        if key is not None and spec is not None:
            known = self._kept.get(key)
            if known is not None and known.holds(spec):
                return known
        gating = gate(pod, labels, namespace, parents, self.rules, waits_for)
        containers = container_texts(spec) if spec is not None and gating.is_computed else None
        is_foreign = gating.reason == UNSUPPORTED.reason
        warnings = pod_warnings(pod, labels, gating.marks, is_foreign=is_foreign)
        if self.rules.denies_unknown and (refusal := key_refusal(pod.metadata, warnings)):
            gating = replace(gating, refusal=refusal, warnings=gating.warnings + warnings)
        entry = CachedGating(gating, containers, warnings + owner_warnings(gating.lineage))
        if key is not None:
            entry.is_kept = self._kept.keep(key, entry, _size(key, entry))
        return entry

    def keep_answer(self, entry: CachedGating, merged: Verdict | None, verdict: Verdict) -> None:
        """Remember the whole answer of an entry, policies' part included."""
        size = len(verdict.response.encoded)
        if entry.is_kept and size <= MAX_ANSWER_BYTES:
            self._kept.size += size
            entry.merged, entry.verdict = merged, verdict


def _size(key: _Key, entry: CachedGating) -> int:
    texts = key[:-1]
    size = sum(len(part or "") for part in texts) + 2 * len(entry.gating.patch)
    return (
        size
        + sum(map(len, entry.containers or ()))
        + sum(len(warning.text) for warning in entry.warnings)
    )


def _key(pod: ReviewedObject, namespace: str, waits_for: WaitsFor) -> _Key | None:
    """Return the fields that a decision depends on; None for rare pods, which are not cached."""
    meta, spec = pod.metadata, pod.spec
    if meta is None or spec is None or spec.node_name or not is_absent(spec.scheduling_gates):
        return None
    if namespace in SYSTEM_NAMESPACES:
        return None
    return (
        namespace,
        bytes(meta.annotations),
        bytes(meta.labels),
        bytes(meta.owner_references),
        spec.scheduler_name,
        waits_for,
    )
