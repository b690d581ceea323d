"""A policy made ready for matching and merging: selectors compiled, parts indexed by key."""

from __future__ import annotations

import re
from itertools import starmap
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from harbourmaster.api.field_errors import reason
from harbourmaster.api.selectors import EVERYTHING, Matcher, compile_selector
from harbourmaster.policies import keys
from harbourmaster.policies.affinity_product import Requirement, compile_requirement, each_once
from harbourmaster.policies.enforcement import (
    WEBHOOK,
    enforcement_of,
    is_audited,
    policy_hash,
)
from harbourmaster.policies.model import DENY, ON_TOO_LARGE, PREFERRED, REQUIRED, PolicySpec
from harbourmaster.policies.requirements import FIELDS
from harbourmaster.policies.targets import excluded_kinds
from harbourmaster.policies.validation import annotation_faults, describe_fault, validate_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from harbourmaster.api.selectors import LabelSelector
    from harbourmaster.policies.model import Policy

    Json = dict[str, Any]

Entries: TypeAlias = "tuple[tuple[Json, Hashable], ...]"
"""Items of one list with their keys, in the policy's order."""

SLOTS: Final[dict[tuple[str, str], Callable[[Json], Hashable]]] = {
    ("nodeAffinity", PREFERRED): keys.preferred_key,
    ("podAffinity", REQUIRED): keys.pod_term_key,
    ("podAffinity", PREFERRED): keys.weighted_pod_term_key,
    ("podAntiAffinity", REQUIRED): keys.pod_term_key,
    ("podAntiAffinity", PREFERRED): keys.weighted_pod_term_key,
}
"""The affinity lists that are appended to: sub-object and list, with the key of an item."""

NODE_TERMS: Final = "nodeSelectorTerms"

# A node name that none can have is injected, as the original does: it selects no node.
_NODE_NAME_VALUE: Final = re.compile(r"matchFields\[\d+\]\.values\[\d+\]$")


class CompiledPolicy(Struct, frozen=True, gc=False, eq=False):
    """One policy, ready to match and merge; ``fault`` says why a broken one is skipped.

    Compared by identity: two policy sets share none, and a tuple of them is a cheap key.

    A broken policy matches whatever its intact selectors select, so that those who would have been
    its targets are told (kupid-spec 2.5).
    """

    reference: str
    rank: tuple[bool, str, str]
    """Sorts cluster policies before namespaced ones, then by namespace and name (decision D3)."""
    namespace: str | None
    """None for a cluster policy."""
    namespaces: Matcher | None
    pods: Matcher | None
    excluded_kinds: frozenset[str] = frozenset()
    """The kinds that its annotations leave out."""
    remark: str = ""
    """Why an annotation has no effect."""
    fault: str | None = None
    enforcement: str = WEBHOOK
    """Whom the policy names to enforce it."""
    is_audited: bool = False
    hash: str = ""
    """The hash by ``policy_hash``; empty where the webhook enforces the policy."""
    is_left_out: bool = False
    """Whether the API server enforces it alone, see ``policies.enforcement``."""
    denies_too_large: bool = False
    """Whether a pod that cannot get it because of a limit on sizes is refused."""
    required: Requirement | None = None
    lists: tuple[tuple[tuple[str, str], Entries], ...] = ()
    node_name: str | None = None
    node_name_requirement: Requirement | None = None
    node_selector: tuple[tuple[str, str], ...] = ()
    scheduler_name: str | None = None
    tolerations: Entries = ()
    source: bytes = b""
    """The object as JSON, without what no answer depends on; only where reviews are recorded."""


def compile_policy(policy: Policy) -> CompiledPolicy:
    """Compile a policy of either kind; an invalid one comes back with its fault."""
    spec = policy.spec or PolicySpec()
    namespace = None if policy.is_cluster_scoped else policy.metadata.namespace or ""
    rank = (not policy.is_cluster_scoped, namespace or "", policy.metadata.name or "")
    annotations = policy.metadata.annotations or {}
    enforcement = enforcement_of(annotations)
    errors = [error for error in validate_spec(policy) if not _NODE_NAME_VALUE.search(error.path)]
    if errors:
        paths = [error.path for error in errors]
        return CompiledPolicy(
            reference=policy.reference,
            rank=rank,
            namespace=namespace,
            namespaces=_intact(spec.namespace_selector, "spec.namespaceSelector", paths),
            pods=_intact(spec.pod_selector, "spec.podSelector", paths),
            excluded_kinds=excluded_kinds(annotations),
            fault=reason(errors),
            enforcement=enforcement,
        )
    affinity: Json = _plain(spec.affinity) if spec.affinity else {}
    node_affinity = affinity.get("nodeAffinity") or {}
    required_terms = (node_affinity.get(REQUIRED) or {}).get(NODE_TERMS)
    return CompiledPolicy(
        reference=policy.reference,
        rank=rank,
        namespace=namespace,
        namespaces=compile_selector(spec.namespace_selector),
        pods=compile_selector(spec.pod_selector),
        excluded_kinds=excluded_kinds(annotations),
        remark="; ".join(starmap(describe_fault, annotation_faults(annotations).items())),
        enforcement=enforcement,
        is_audited=is_audited(annotations),
        hash=policy_hash(policy) if enforcement != WEBHOOK else "",
        denies_too_large=annotations.get(ON_TOO_LARGE) == DENY,
        required=compile_requirement(required_terms) if required_terms else None,
        lists=tuple(
            (slot, _entries(items, key_of))
            for slot, key_of in SLOTS.items()
            if (items := (affinity.get(slot[0]) or {}).get(slot[1]))
        ),
        node_name=spec.node_name or None,
        node_name_requirement=_node_name_requirement(spec.node_name),
        node_selector=tuple((spec.node_selector or {}).items()),
        scheduler_name=spec.scheduler_name or None,
        tolerations=_entries(_plain(spec.tolerations or []), keys.toleration_key),
    )


def undecodable_policy(reference: str, namespace: str | None, fault: str) -> CompiledPolicy:
    """Stand in for a policy whose fields have the wrong types; it selects all it could reach.

    ``reference`` is written as ``Policy.reference``.
    """
    name = reference.partition(" ")[2]
    if namespace is not None:
        name = name.removeprefix(f"{namespace}/")
    return CompiledPolicy(
        reference=reference,
        rank=(namespace is not None, namespace or "", name),
        namespace=namespace,
        namespaces=EVERYTHING,
        pods=EVERYTHING,
        fault=fault,
    )


def _intact(selector: LabelSelector | None, path: str, faulty: list[str]) -> Matcher | None:
    broken = any(fault == path or fault.startswith(f"{path}.") for fault in faulty)
    return EVERYTHING if broken else compile_selector(selector)


def _node_name_requirement(node_name: str | None) -> Requirement | None:
    if not node_name:
        return None
    requirement = {"key": "metadata.name", "operator": "In", "values": [node_name]}
    return compile_requirement([{FIELDS: [requirement]}])


def _entries(items: list[Json], key_of: Callable[[Json], Hashable]) -> Entries:
    return each_once(lambda item: (item, key_of(item)), items)


def _plain(value: Any) -> Any:  # noqa: ANN401
    """Structs to plain JSON values as the API writes them: empty optional fields left out."""
    if isinstance(value, list):
        # Thousands of equal terms, such as empty ones, take the memory of one.
        known: dict[bytes, Any] = {}
        return [
            known.setdefault(msgspec.json.encode(item), item) if isinstance(item, dict) else item
            for item in map(_plain, value)
        ]
    if isinstance(value, Struct):
        # All at once would keep other threads from running for too long.
        fields = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        value = {name: getattr(value, field) for name, field in fields}
    if not isinstance(value, dict):
        return value
    return {
        name: field if name == "matchLabels" else _plain(field)
        for name, field in value.items()
        # An empty selector says something; an empty map of labels inside one does not.
        if field not in (None, "", []) and not (name == "matchLabels" and field == {})
    }
