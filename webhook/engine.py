"""Decisions on pods: one snapshot with the settings, and a cache of merges.

A merge depends only on the policies that match and on the owned fields of the pod spec. Most
workloads set few of these fields, and the pods of one workload set the same ones, so few merges
are different; each is made once and its encoded answer is cached.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final, Literal

from msgspec.structs import replace

from harbourmaster.gates.owners import SUPPORTED
from harbourmaster.gates.waits import DISABLED, WAIT_FOR_KEY
from harbourmaster.policies.merge import merge
from harbourmaster.webhook.gate_cache import GateCache
from harbourmaster.webhook.gating import AT_GATE, WITH_SCHEDULER
from harbourmaster.webhook.node_warnings import node_warnings
from harbourmaster.webhook.sized_cache import SizedCache
from harbourmaster.webhook.verdict import combine, from_merge, with_warnings

if TYPE_CHECKING:
    from collections.abc import Hashable

    from harbourmaster.policies.admission_warning import AdmissionWarning
    from harbourmaster.policies.compiled import CompiledPolicy
    from harbourmaster.policies.pods import Kind, PodView
    from harbourmaster.webhook.gate_cache import CachedGating
    from harbourmaster.webhook.settings import AdmissionSettings
    from harbourmaster.webhook.snapshot import Namespace, Snapshot
    from harbourmaster.webhook.verdict import Verdict

_MAX_COMPARED: Final = 16 * 1024
"""About the bytes of a pod's owned fields up to which it is compared with the nodes."""


class Engine:
    """Decides on pods from one snapshot; a new snapshot gets a new engine."""

    __slots__ = (
        "_has_policies",
        "_merges",
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
        self._merges: SizedCache[Hashable, Verdict] = SizedCache()
        self._node_warnings_cache: SizedCache[Hashable, tuple[AdmissionWarning, ...]] = SizedCache()

    def with_snapshot(self, snapshot: Snapshot) -> Engine:
        """Return an engine for the next snapshot; cached merges stay while the policies do."""
        successor = Engine(snapshot, self.settings)
        if snapshot.policies is self.snapshot.policies:
            successor._merges = self._merges
            if snapshot.nodes is self.snapshot.nodes:
                successor._node_warnings_cache = self._node_warnings_cache
        successor.gates = self.gates
        return successor

    def with_gating(self, gating: Literal["schedulingGates", "schedulerName"]) -> Engine:
        """An engine of the same snapshot and settings whose pods wait there."""
        return Engine(self.snapshot, replace(self.settings, gating=gating))

    def has_gates(self, name: str, namespace: Namespace) -> bool:
        """Return whether pods of that namespace may have to wait at a gate."""
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
        """Return where pods of a template wait in a namespace with gates; empty if they do not."""
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
        verdict = self._merges.get(key)
        if verdict is None:
            options = self._options[node_name_as_field, waits]
            verdict = from_merge(kind, merge(pod, kind.pointer, policies, options), policies)
            size = 0 if spec is None else spec.key_size
            self._merges.keep(key, verdict, size + len(verdict.response.encoded))
        return verdict

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
        warnings = self._node_warnings_cache.get(key)
        if warnings is None:
            try:
                warnings = node_warnings(kind, pod, policies, self._options[waiting], nodes)
            except Exception as error:  # noqa: BLE001 - a warning must not cost the mutation
                _log_once(type(error).__name__)
                warnings = ()
            self._node_warnings_cache.keep(key, warnings, size)
        return warnings

    def combine(self, decided: CachedGating, merged: Verdict | None) -> Verdict:
        """Combine what gates and policies set into one verdict, or return the cached one."""
        if decided.verdict is not None and decided.merged is merged:
            return decided.verdict
        verdict = with_warnings(combine(decided.gating, merged), decided.warnings)
        self.gates.keep_answer(decided, merged, verdict)
        return verdict


class EngineHolder:
    """The current engine; replacing it is one assignment, so readers need no lock."""

    __slots__ = ("current",)

    def __init__(self, current: Engine) -> None:
        self.current = current


@cache
def _log_once(_cause: str) -> None:
    # The command line imports this module too, and must start fast.
    from harbourmaster.telemetry.logging import get_logger  # noqa: PLC0415

    get_logger("admission").exception("comparison with nodes failed, no warning was given")
