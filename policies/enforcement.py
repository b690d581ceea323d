"""The enforcer of a policy: the webhook, the API server, both or none (decision D21)."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from harbourmaster.api.resources import MUTATING_POLICIES, MUTATING_POLICY_BINDINGS
from harbourmaster.api.selectors import LabelSelector
from harbourmaster.policies.model import ON_TOO_LARGE
from harbourmaster.policies.targets import excluded_kinds

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from harbourmaster.policies.model import Policy

ENFORCEMENT_KEY: Final = "harbourmaster.dev/enforcement"
"""Annotation of a policy: who sets its fields in pods; one of ENFORCEMENTS."""
WEBHOOK: Final = "Webhook"
API_SERVER: Final = "APIServer"
BOTH: Final = "Both"
ENFORCEMENTS: Final = (API_SERVER, BOTH, WEBHOOK)
MODE_KEY: Final = "harbourmaster.dev/mode"
"""Annotation of a policy: whether it changes pods or is only evaluated; one of MODES."""
AUDIT: Final = "Audit"
ENFORCE: Final = "Enforce"
MODES: Final = (AUDIT, ENFORCE)

COMPILED_KEY: Final = "harbourmaster.dev/compiled"
"""Label of what ``compile`` writes: ``policy``, ``probe`` or ``final`` (bindings), ``check``."""
COMPILED_SELECTORS: Final = {
    MUTATING_POLICIES: f"{COMPILED_KEY}=policy",
    MUTATING_POLICY_BINDINGS: f"{COMPILED_KEY}=final",
}
"""The kinds of compiled objects that show what the API server enforces, and their selectors."""
PROBE_LABEL: Final = f"{COMPILED_KEY}=probe"
QUIET: Final = 30.0
"""Seconds without a change of a compiled object after which every API server knows them all."""

Enforced: TypeAlias = "frozenset[tuple[str, str]]"
"""References of policies, each with a hash as ``policy_hash``."""

BOUND_KEY: Final = "harbourmaster.dev/bound"
"""Annotation of a compiled policy: the ``matchResources`` of its final binding, as JSON."""

CONDITION: Final = "EnforcedByAPIServer"
"""The condition of a policy: the API server enforces it, and the webhook leaves it out."""
ENFORCED: Final = "Enforced"
UNKNOWN: Final = "Unknown"
UNSUPPORTED: Final = "Unsupported"
WAITING: Final = "WaitingForWebhooks"
REASONS: Final = {
    ENFORCED: "the API server enforces the policy, and the webhook leaves it out",
    WAITING: "the API server enforces the policy, and the webhook leaves it out 30 s after the "
    "last change of a compiled object",
    "ModeIsAudit": "nothing enforces the policy, because its mode is Audit",
    "ModeIsBoth": "the API server and the webhook enforce the policy",
    "ModeIsWebhook": "the webhook enforces the policy",
    "NotBound": "the webhook enforces the policy, because a part or a final binding of its "
    "compiled set is missing: run harbourmaster compile apply",
    "NotCompiled": "the webhook enforces the policy, because no compiled object contains it: run "
    "harbourmaster compile apply",
    "OutdatedHash": "the webhook enforces the policy, because the compiled objects have another "
    "version of it: run harbourmaster compile apply",
    UNKNOWN: "the webhook enforces the policy unless it knows more: the controller cannot read "
    "the compiled objects",
    UNSUPPORTED: "the webhook enforces the policy, because this API server has no "
    "MutatingAdmissionPolicies: use Kubernetes 1.36 or later",
}
"""Reasons of the condition, with their messages."""
UNFULFILLED: Final = frozenset(("NotBound", "NotCompiled", "OutdatedHash", UNSUPPORTED))
"""Those for which a policy that names the API server is not enforced by it."""

_PREFIX: Final = "harbourmaster-compiled-"
_HASH_DIGITS: Final = 16
_encode: Final = msgspec.json.Encoder(order="deterministic").encode


def enforcement_of(annotations: Mapping[str, str]) -> str:
    """One of ENFORCEMENTS; an unknown value counts as Webhook."""
    value = annotations.get(ENFORCEMENT_KEY, WEBHOOK)
    return value if value in ENFORCEMENTS else WEBHOOK


def is_audited(annotations: Mapping[str, str]) -> bool:
    """Whether the policy is evaluated and counted, and changes nothing."""
    return annotations.get(MODE_KEY) == AUDIT


def policy_hash(policy: Policy) -> str:
    """Sixteen hexadecimal digits that differ when the policy's effect does.

    Read from the decoded fields, so the same for a file and for the stored object.
    """
    annotations = policy.metadata.annotations or {}
    content: list[Any] = [policy.reference, policy.spec, annotations.get(ON_TOO_LARGE)]
    if excluded := excluded_kinds(annotations):
        content.append(sorted(excluded))
    return hashlib.sha256(_encode(content)).hexdigest()[:_HASH_DIGITS]


class _Labels(Struct, frozen=True, gc=False):
    compiled: str = msgspec.field(default="", name=COMPILED_KEY)


class _Annotations(Struct, frozen=True, gc=False):
    hashes: str = msgspec.field(default="", name="harbourmaster.dev/policy-hashes")
    set: str = msgspec.field(default="", name="harbourmaster.dev/compiled-set")
    parts: str = msgspec.field(default="", name="harbourmaster.dev/compiled-parts")
    bound: str = msgspec.field(default="", name=BOUND_KEY)


class _Metadata(Struct, frozen=True, gc=False, rename="camel"):
    name: str = ""
    uid: str = ""
    generation: int = 0
    deletion_timestamp: str | None = None
    labels: _Labels | None = None
    annotations: _Annotations | None = None


class _Matched(Struct, frozen=True, gc=False, rename="camel"):
    """The scope of a binding; an empty selector, which the API server adds, counts as none."""

    namespace_selector: LabelSelector | None = None
    object_selector: LabelSelector | None = None
    resource_rules: list[Any] | None = None
    exclude_resource_rules: list[Any] | None = None

    @property
    def selectors(self) -> tuple[LabelSelector, LabelSelector] | None:
        """Those of namespaces and objects; None for a binding that leaves out more."""
        if self.resource_rules or self.exclude_resource_rules:
            return None
        return self.namespace_selector or LabelSelector(), self.object_selector or LabelSelector()


class _Spec(Struct, frozen=True, gc=False, rename="camel"):
    policy_name: str = ""
    match_resources: _Matched | None = None


class CompiledObject(Struct, frozen=True, gc=False):
    """A MutatingAdmissionPolicy of ours or its binding: what tells whom it enforces.

    Two versions that differ in effect are unequal, because their generations are.
    """

    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()

    @property
    def hashes(self) -> dict[str, str]:
        """The hashes of the policies in it, by reference; empty where the annotation is broken."""
        try:
            return _decode_hashes((self.metadata.annotations or _Annotations()).hashes)
        except msgspec.MsgspecError:
            return {}


_decode_matched: Final = msgspec.json.Decoder(_Matched).decode
_decode_hashes: Final = msgspec.json.Decoder(dict[str, str]).decode
decode_compiled: Final = msgspec.json.Decoder(CompiledObject).decode
"""From the JSON of either kind."""


class Known(Struct, frozen=True, gc=False):
    """The compiled objects of a cluster, as far as they are known."""

    problem: str = UNKNOWN
    """UNSUPPORTED or UNKNOWN where nothing is known; else empty."""
    compiled: Mapping[str, frozenset[str]] = {}
    """The hashes of policies that any of them has, by reference."""
    enforced: Enforced = frozenset()
    left_out: Enforced = frozenset()
    """Those of them that every API server is sure to enforce by now."""


def known_of(
    state: Literal["unknown", "unsupported", "changing", "quiet"],
    objects: Sequence[Collection[CompiledObject]],
) -> Known:
    """Return what is known of ``objects``, those of each kind in COMPILED_SELECTORS.

    A policy that both enforce changes a pod once, and one that neither enforces is missed. So each
    change, and each doubt, puts all policies back at once; only when the objects are ``quiet`` is
    one left out. No replica has to know what another one saw.
    """
    if state == "unknown":
        return Known(UNKNOWN)
    if state == "unsupported":
        return Known(UNSUPPORTED)
    mutations, bindings = objects
    hashes: defaultdict[str, set[str]] = defaultdict(set)
    for mutation in mutations:
        for reference, mutation_hash in mutation.hashes.items():
            hashes[reference].add(mutation_hash)
    compiled = {reference: frozenset(texts) for reference, texts in hashes.items()}
    by_server = enforced_policies(mutations, bindings)
    return Known("", compiled, by_server, by_server if state == "quiet" else frozenset())


def reason_of(asked: tuple[str, str], enforcement: str, known: Known, *, is_audited: bool) -> str:
    """Return the reason of the condition of the policy with this reference and hash."""
    if is_audited:
        return "ModeIsAudit"
    if enforcement == WEBHOOK:
        return "ModeIsWebhook"
    if known.problem:
        return known.problem
    if asked in known.enforced:
        if enforcement == BOTH:
            return "ModeIsBoth"
        return ENFORCED if asked in known.left_out else WAITING
    hashes = known.compiled.get(asked[0], ())
    if not hashes:
        return "NotCompiled"
    return "NotBound" if asked[1] in hashes else "OutdatedHash"


def enforced_policies(
    mutations: Iterable[CompiledObject], bindings: Iterable[CompiledObject]
) -> Enforced:
    """Return the policies that the API server enforces: those in every part of a bound set.

    Objects that are being deleted do not count.
    """
    bound = {
        binding.spec.policy_name: (binding.spec.match_resources or _Matched()).selectors
        for binding in bindings
        if _counts(binding, "final")
    }
    sets: defaultdict[str, dict[str, CompiledObject]] = defaultdict(dict)
    for mutation in mutations:
        name = mutation.metadata.name
        set_name, _, part = name.removeprefix(_PREFIX).partition("-")
        annotations = mutation.metadata.annotations
        # Each set has names of its own, so only a person changes the spec of one.
        if (
            annotations is None
            or mutation.metadata.generation > 1
            or not _counts(mutation, "policy")
        ):
            continue
        selectors = _selectors_in(annotations.bound)
        if annotations.set == set_name and selectors is not None and bound.get(name) == selectors:
            sets[set_name][part] = mutation
    together: set[tuple[str, str]] = set()
    for parts in sets.values():
        of_set = parts.values()
        named = {(part.metadata.annotations or _Annotations()).parts for part in of_set}
        if named == {",".join(sorted(parts))}:
            together |= set.intersection(*(set(part.hashes.items()) for part in of_set))
    return frozenset(together)


def _selectors_in(annotation: str) -> tuple[LabelSelector, LabelSelector] | None:
    """The selectors that the final binding was compiled with; None where that can't be read."""
    try:
        return _decode_matched(annotation).selectors
    except msgspec.MsgspecError:
        return None


def _counts(obj: CompiledObject, label: str) -> bool:
    labels = obj.metadata.labels or _Labels()
    return not obj.metadata.deletion_timestamp and labels.compiled == label
