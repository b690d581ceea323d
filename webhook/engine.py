"""Decisions on pods: one snapshot with the settings, and a cache of merges.

A merge depends only on the policies that match and on the owned fields of the pod spec. Most
workloads set few of these fields, and the pods of one workload set the same ones, so few merges
are different; each is made once and its encoded answer is cached.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from msgspec.structs import replace

from harbourmaster.api.decoding import MalformedError
from harbourmaster.gates.owners import SUPPORTED
from harbourmaster.gates.waits import DISABLED, WAIT_FOR_KEY
from harbourmaster.policies.affinity import required_terms
from harbourmaster.policies.merge import DEFAULT_SCHEDULER, merge, merged_fields
from harbourmaster.policies.model import NODE_NAME, AdmissionWarning
from harbourmaster.policies.requirements import SCOPES, constraints_of
from harbourmaster.rescheduling.decoding import decode_pending
from harbourmaster.rescheduling.unmet import KnownNodes, unmet
from harbourmaster.webhook.gate_cache import GateCache, SizedCache
from harbourmaster.webhook.gating import AT_GATE, WITH_SCHEDULER
from harbourmaster.webhook.verdict import UNCHANGED, combine, from_merge, with_warnings

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence

    from harbourmaster.policies.compiled import CompiledPolicy
    from harbourmaster.policies.merge import MergeOptions
    from harbourmaster.policies.pods import Kind, PodView
    from harbourmaster.rescheduling.model import NodeRequirement, PendingPod
    from harbourmaster.webhook.gate_cache import CachedGating
    from harbourmaster.webhook.settings import AdmissionSettings
    from harbourmaster.webhook.snapshot import Namespace, Snapshot
    from harbourmaster.webhook.verdict import Audit, Verdict


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

    def match(self, name: str, namespace: Namespace, pod: PodView) -> tuple[CompiledPolicy, ...]:
        """The policies for a pod, in their order."""
        if not self._has_policies:
            return ()
        return self.snapshot.policies.match(name, namespace.labels, pod.labels, pod.kinds)

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
        owned = None if spec is None else spec.key
        labels = tuple(pod.class_labels.items()) if pod.class_labels else None
        key = (kind.shape, pod.is_daemon, policies, node_name_as_field, waits, owned, labels)
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
        if nodes is None or kind.name == "DaemonSet":
            return ()
        size = 0 if spec is None else spec.key_size
        if size > _MAX_COMPARED:
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


_TOLERATES_ALL: Final = {"tolerations": [{"operator": "Exists"}]}


def node_warnings(
    kind: Kind,
    pod: PodView,
    policies: tuple[CompiledPolicy, ...],
    options: MergeOptions,
    nodes: KnownNodes,
) -> tuple[AdmissionWarning, ...]:
    """Warn where no node matches the pod with the policies merged into it.

    Taints count for pods only: to those of a template other admission plugins may add tolerations.
    """
    asks = policies or pod.node_selector or required_terms(pod.affinity)
    if not asks and (kind.is_template or not nodes.are_tainted):
        return ()
    fields = merged_fields(pod, policies, options)
    if kind.is_template or fields.get(NODE_NAME):
        fields |= _TOLERATES_ALL
    try:
        pending = decode_pending(msgspec.json.encode({"spec": fields}))
    except MalformedError:
        # The API server says what is wrong.
        return ()
    if name := pending.node_name:
        # No scheduler decides about it, but the kubelet does.
        named = tuple(node for node in nodes.nodes if node.name == name)
        nodes = KnownNodes(named, named, (), False)
        pending = replace(pending, node_name="")
    elif _is_judged_elsewhere(pending, kind):
        return ()
    if (
        # Where an API server allows these, they may tolerate what has the key.
        any(toleration.operator in {"Gt", "Lt"} for toleration in pending.tolerations)
        or (reason := unmet(pending, nodes)) is None
    ):
        return ()
    text, requirements = reason
    names = dict.fromkeys(_writer(requirement, kind, pod, policies) for requirement in requirements)
    by = f" ({', '.join(names)})" if names else ""
    outcome = "pods stay Pending until a node matches"
    if name:
        text = text.replace("no node has", f'node "{name}" does not match', 1)
        outcome = "its kubelet refuses the pod that names it"
    return (AdmissionWarning("no-node-matches", f"{text}{by}: {outcome}"),)


def _is_judged_elsewhere(pending: PendingPod, kind: Kind) -> bool:
    """Whether the rules of the scheduler are unknown, or the pod is made for a node."""
    # A DaemonSet's pod is made for a node, which is perhaps not known here yet.
    is_made = not kind.is_template and any(term.fields for term in pending.node_terms or ())
    return is_made or pending.scheduler != DEFAULT_SCHEDULER


def _writer(
    requirement: NodeRequirement, kind: Kind, pod: PodView, policies: Sequence[CompiledPolicy]
) -> str:
    """Return the source of a requirement: the path of the pod spec, or the first policy with it."""
    labels = pod.node_selector or {}
    if _is_among(requirement, labels, required_terms(pod.affinity)):
        return kind.path
    for policy in policies:
        asked = filter(None, (policy.required, policy.node_name_requirement))
        terms = [term for required in asked for term in required.terms.terms]
        if _is_among(requirement, dict(policy.node_selector), terms):
            return policy.reference
    return "policies"


def _is_among(
    requirement: NodeRequirement, labels: Mapping[str, str], terms: Sequence[dict[str, Any]]
) -> bool:
    asked = requirement.operator, frozenset(requirement.values)
    if asked == ("In", frozenset([labels.get(requirement.key, None)])):
        return True
    keys = [(scope, requirement.key) for scope in SCOPES]
    return any(asked in constraints_of(term, keys).get(key, ()) for term in terms for key in keys)


def selector_warnings(
    pod: PodView, policies: Sequence[CompiledPolicy], selector: tuple[str, dict[str, str]]
) -> tuple[AdmissionWarning, ...]:
    """Warn of labels with which an admission plugin refuses the pods of a template.

    ``selector`` is that of the namespace: the annotation, and its labels.
    """
    annotation, labels = selector
    own = {**pod.class_labels, **(pod.node_selector or {})}
    warnings: list[AdmissionWarning] = []
    for policy in policies:
        for key, value in policy.node_selector:
            # It may be the template's own because the policy has set it before.
            if own.setdefault(key, value) == value and labels.get(key, value) != value:
                text = (
                    f"{policy.reference} sets {key}={value}, {annotation} of the namespace has "
                    f"{key}={labels[key]}: an API server with that plugin refuses all its pods"
                )
                warnings.append(AdmissionWarning("node-selector-conflict", text))
    return tuple(warnings)


MAX_AUDITED: Final = 8
"""Policies that are evaluated for one object, in their order."""
WOULD_CHANGE: Final = "would_change"
FITS_NO_NODE: Final = "fits_no_node"
"""The policy would change the object so that no node matches, although one does now."""


def audit_results(audit: Audit, engine: Engine) -> Iterator[tuple[str, str]]:
    """Yield each audited policy and its result, as if only it were enforced besides the others."""
    kind, pod, enforced, waiting = audit.kind, audit.pod, audit.enforced, audit.waiting

    def merge_result(policies: tuple[CompiledPolicy, ...]) -> tuple[bool, bytes]:
        verdict = engine.merge(
            kind, pod, policies, node_name_as_field=waiting[0], waits=waiting[1]
        ).response
        return verdict.allowed, verdict.patch or b""

    before = merge_result(enforced)
    # Meanwhile no review is answered.
    for policy in audit.audited[:MAX_AUDITED]:
        together = tuple(sorted((*enforced, policy), key=lambda compiled: compiled.rank))
        if merge_result(together) == before:
            yield policy.reference, UNCHANGED
            continue
        unmet = engine.node_warnings(kind, pod, together, waiting)
        fits = not unmet or engine.node_warnings(kind, pod, enforced, waiting)
        yield policy.reference, WOULD_CHANGE if fits else FITS_NO_NODE
