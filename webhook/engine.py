"""Decisions on pods: one snapshot with the settings, and a cache of merges.

A merge depends only on the policies that match and on the owned fields of the pod spec. Most
workloads set few of these fields, and the pods of one workload set the same ones, so few merges
are different; each is made once and its encoded answer is cached.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from harbourmaster.gates.owners import SUPPORTED
from harbourmaster.gates.waits import DISABLED, WAIT_FOR_KEY
from harbourmaster.policies.admission_warning import AdmissionWarning
from harbourmaster.policies.merge import merge
from harbourmaster.webhook.auditing import Audit
from harbourmaster.webhook.gate_cache import GateCache
from harbourmaster.webhook.gating import AT_GATE, WITH_SCHEDULER
from harbourmaster.webhook.node_warnings import node_warnings
from harbourmaster.webhook.review import Response, allowed, denied, patched, patched_with
from harbourmaster.webhook.sized_cache import SizedCache

if TYPE_CHECKING:
    from collections.abc import Hashable

    from harbourmaster.policies.compiled import CompiledPolicy
    from harbourmaster.policies.merge import Merged
    from harbourmaster.policies.pods import Kind, PodView
    from harbourmaster.webhook.gate_cache import CachedGating
    from harbourmaster.webhook.gating import Gating
    from harbourmaster.webhook.settings import AdmissionSettings
    from harbourmaster.webhook.snapshot import Namespace, Snapshot

MUTATED: Final = "mutated"
"""A patch was sent."""
GATED: Final = "gated"
"""The pod waits at our gate or with our scheduler, whatever else the patch has."""
UNCHANGED: Final = "unchanged"
"""Policies matched, but the pod already holds all they ask for."""
UNMATCHED: Final = "unmatched"
"""No policy matched, or the object is one that is never changed."""
SKIPPED: Final = "skipped"
"""Allowed as it is because the mutation could not be made."""
DENIED: Final = "denied"
"""A pod that may have to wait, and can't: not even the fixed patch could be made, or it names
another scheduler and the settings deny that. Or one that cannot get a policy that must not be
skipped. Or an object with an unknown key, where the settings deny that."""
_MAX_COMPARED: Final = 16 * 1024
"""About the bytes of a pod's owned fields up to which it is compared with the nodes."""


class Verdict(Struct, frozen=True, gc=False):
    """What was decided, for the answer, the log and the metrics; the same for equal questions."""

    outcome: str
    response: Response
    policies: tuple[str, ...] = ()
    operations: int = 0
    warnings: tuple[AdmissionWarning, ...] = ()
    """Given to the user."""
    audit: Audit | None = None
    """What to evaluate after the answer, for policies in Audit mode."""

    @property
    def codes(self) -> tuple[str, ...]:
        """Of the warnings."""
        return tuple(warning.code for warning in self.warnings)


class Engine:
    """Decides on pods from one snapshot; a new snapshot gets a new engine."""

    __slots__ = (
        "_has_policies",
        "_kept",
        "_node_warnings_cache",
        "_options",
        "gates",
        "settings",
        "snapshot",
    )

    def __init__(self, snapshot: Snapshot, settings: AdmissionSettings, hashed: str = "") -> None:
        """``hashed`` is for a recorded review: the hash of a pod that is not whole any more."""
        self.snapshot = snapshot
        self.gates = GateCache(replace(settings.gate_rules(), hashed=hashed))
        self.settings = settings
        self._has_policies = "policies" in settings.features
        self._options = {
            (as_field, waits): settings.merge_options(node_name_as_field=as_field, waits=waits)
            for as_field in (False, True)
            for waits in ("", AT_GATE, WITH_SCHEDULER)
        }
        self._kept: SizedCache[Hashable, Verdict] = SizedCache()
        self._node_warnings_cache: SizedCache[Hashable, tuple[AdmissionWarning, ...]] = SizedCache()

    def succeeded(self, snapshot: Snapshot) -> Engine:
        """The engine of the next snapshot; cached merges stay while the policies do."""
        successor = Engine(snapshot, self.settings)
        if snapshot.policies is self.snapshot.policies:
            successor._kept = self._kept
            if snapshot.nodes is self.snapshot.nodes:
                successor._node_warnings_cache = self._node_warnings_cache
        successor.gates = self.gates
        return successor

    def with_gating(self, gating: Literal["schedulingGates", "schedulerName"]) -> Engine:
        """An engine of the same snapshot and settings whose pods wait there."""
        return Engine(self.snapshot, replace(self.settings, gating=gating))

    def has_gates(self, name: str, namespace: Namespace) -> bool:
        """Whether pods of that namespace may have to wait at a gate."""
        return namespace.has_gates and self.gates.rules.apply_in(name)

    def waits_for_objects(self, name: str, namespace: Namespace) -> bool:
        """Whether pods of that namespace wait for the objects that their annotation names."""
        is_allowed = namespace.labels.get(WAIT_FOR_KEY) != DISABLED
        return is_allowed and self.gates.rules.for_objects and self.gates.rules.apply_in(name)

    def namespace_warnings(self, name: str, namespace: Namespace) -> tuple[AdmissionWarning, ...]:
        """Warnings on a namespace whose request for gates has no effect."""
        return namespace.warnings if namespace.warnings and self.gates.rules.apply_in(name) else ()

    def match(
        self, name: str, namespace: Namespace, labels: dict[str, str]
    ) -> tuple[CompiledPolicy, ...]:
        """The policies for a pod with these labels, in their order."""
        if not self._has_policies:
            return ()
        return self.snapshot.policies.match(name, namespace.labels, labels)

    def template_waits(self, kind: Kind) -> str:
        """Where the pods of a template wait, if they do, in a namespace with gates."""
        return self.gates.rules.waits if kind.name in SUPPORTED else ""

    def merge(
        self,
        kind: Kind,
        pod: PodView,
        policies: tuple[CompiledPolicy, ...],
        *,
        node_name_as_field: bool,
        waits: str = "",
    ) -> Verdict:
        """Merge the policies into the pod, or find the cached result.

        ``waits`` is where the pod waits, as in ``Gating``.
        """
        spec = pod.spec
        key = (kind.shape, policies, node_name_as_field, waits, None if spec is None else spec.key)
        found = self._kept.get(key)
        if found is None:
            options = self._options[node_name_as_field, waits]
            found = _verdict(kind, merge(pod, kind.pointer, policies, options), policies)
            size = 0 if spec is None else spec.key_size
            self._kept.keep(key, found, size + len(found.response.encoded))
        return found

    def node_warnings(
        self,
        kind: Kind,
        pod: PodView,
        policies: tuple[CompiledPolicy, ...],
        waiting: tuple[bool, str],
    ) -> tuple[AdmissionWarning, ...]:
        """Warn where no node matches the pod as ``merge`` makes it; ``waiting`` has its options."""
        nodes, spec = self.snapshot.nodes, pod.spec
        # A DaemonSet often waits for nodes that are added later.
        size = 0 if spec is None else spec.key_size
        if nodes is None or kind.name == "DaemonSet" or size > _MAX_COMPARED:
            return ()
        key = (kind.shape, policies, waiting, None if spec is None else spec.key)
        found = self._node_warnings_cache.get(key)
        if found is None:
            try:
                found = node_warnings(kind, pod, policies, self._options[waiting], nodes)
            except Exception as error:  # noqa: BLE001 - a warning must not cost the mutation
                _log_once(type(error).__name__)
                found = ()
            self._node_warnings_cache.keep(key, found, size)
        return found

    def fuse(self, decided: CachedGating, merged: Verdict | None) -> Verdict:
        """One verdict of what gates and policies ask, or the cached one."""
        if decided.verdict is not None and decided.merged is merged:
            return decided.verdict
        verdict = noted(fused(decided.gating, merged), decided.warnings)
        self.gates.keep_answer(decided, merged, verdict)
        return verdict


class EngineHolder:
    """The current engine; replacing it is one assignment, so readers need no lock."""

    __slots__ = ("current",)

    def __init__(self, current: Engine) -> None:
        self.current = current


def fused(gating: Gating, merged: Verdict | None) -> Verdict:
    """One verdict of what gates and policies ask: one patch, for they touch different fields.

    A policy's schedulerName is left out of ``merged`` where the pod waits with our scheduler.
    """
    if merged and merged.outcome == DENIED:
        return merged
    if gating.refusal:
        return Verdict(DENIED, denied(gating.refusal), warnings=gating.warnings)
    if not gating.patch and not gating.warnings:
        return merged or _left_alone(gating.reason)
    merged = merged or _left_alone(None)
    warnings = merged.warnings + gating.warnings
    patch = _joined(merged.response.patch, gating.patch)
    if patch is None:
        return Verdict(SKIPPED, allowed(warnings=warnings), merged.policies, warnings=warnings)
    return Verdict(
        GATED if gating.patch else merged.outcome,
        patched_with(patch, warnings),
        merged.policies,
        merged.operations + gating.operations,
        warnings,
    )


def noted(verdict: Verdict, warnings: tuple[AdmissionWarning, ...]) -> Verdict:
    """The verdict with more to tell; a refusal says why it is one, and no more."""
    response = verdict.response
    if not warnings or not response.allowed:
        return verdict
    warnings = verdict.warnings + warnings
    if response.patch:
        response = patched_with(response.patch, warnings)
    else:
        response = allowed(response.reason, warnings)
    return replace(verdict, response=response, warnings=warnings)


@cache
def _log_once(_cause: str) -> None:
    # The command line imports this module too, and must start fast.
    from harbourmaster.telemetry.logging import get_logger  # noqa: PLC0415

    get_logger("admission").exception("comparison with nodes failed, no warning was given")


@cache
def _left_alone(reason: str | None) -> Verdict:
    return Verdict(UNMATCHED, allowed(reason))


def _joined(first: bytes | None, second: bytes) -> bytes | None:
    """Two lists of operations as one, without decoding either."""
    if not first or not second:
        return first or second or None
    return b"%b,%b" % (first[:-1], second[1:])


def _verdict(kind: Kind, merged: Merged, policies: tuple[CompiledPolicy, ...]) -> Verdict:
    warnings = merged.warnings
    references = tuple(policy.reference for policy in policies)
    if merged.refusal and not kind.is_template:
        return Verdict(DENIED, denied(merged.refusal), references, warnings=tuple(warnings))
    if merged.operations:
        outcome, response = MUTATED, patched(merged.operations, warnings)
    else:
        outcome, response = UNCHANGED, allowed(warnings=warnings)
    return Verdict(
        outcome,
        response,
        references,
        len(merged.operations),
        tuple(warnings),
    )
