"""Warnings about valid policies that are probably mistakes (kupid-spec 5.3)."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import msgspec

from harbourmaster.api.field_errors import quote
from harbourmaster.api.names import dns_subdomain, label_value, nearest, qualified_name
from harbourmaster.policies import keys, validation
from harbourmaster.policies.model import PREFERRED, REQUIRED, PolicySpec
from harbourmaster.policies.requirements import integer, is_contradictory
from harbourmaster.policies.validation import label_selector, label_selector_values

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

    from harbourmaster.api.selectors import LabelSelector, LabelSelectorRequirement
    from harbourmaster.policies.model import (
        Affinity,
        NodeSelectorRequirement,
        NodeSelectorTerm,
        PodAffinity,
        PodAffinityTerm,
        Policy,
        PolicyMetadata,
        PreferredSchedulingTerm,
        WeightedPodAffinityTerm,
    )
    from harbourmaster.policies.requirements import Constraint

    Item = TypeVar("Item")
    Requirements: TypeAlias = Sequence[LabelSelectorRequirement | NodeSelectorRequirement]

MAX_LENGTH: Final = 256
"""Characters of one warning: the API server cuts there."""
MAX_WARNINGS: Final = 12
_SHOWN_CHARACTERS: Final = 40
_PREFIXES: Final = ("harbourmaster.dev/", "kupid.gardener.cloud/")
_KEYS: Final = {key.partition("/")[2]: key for key in validation.SUPPORTED_VALUES}


def warn(policy: Policy) -> tuple[str, ...]:
    """Warnings of one line, at most MAX_LENGTH characters each, the most severe first.

    After MAX_WARNINGS of them one more line counts the rest. Made for policies that are valid;
    what an invalid one breaks is not all told here.
    """
    spec = policy.spec or PolicySpec()
    oddities = [*_key_oddities(policy.metadata)]
    oddities += _oddities(spec, is_cluster_scoped=policy.is_cluster_scoped)
    shown = [_cut(text, MAX_LENGTH) for text in oddities[:MAX_WARNINGS]]
    if len(oddities) > MAX_WARNINGS:
        shown.append(f"{len(oddities) - MAX_WARNINGS} more warnings were omitted")
    return tuple(shown)


def _key_oddities(metadata: PolicyMetadata) -> Iterator[str]:
    """Find keys of ours that have no effect: labels, and misspelt annotations."""
    for place, own in (("labels", metadata.labels), ("annotations", metadata.annotations)):
        ours = (key for key in own or () if key.startswith(_PREFIXES))
        for key in islice(ours, MAX_WARNINGS):
            near = _KEYS.get(nearest(key.partition("/")[2], _KEYS), "")
            to_do = f"did you mean the annotation {near}?" if near else "correct or remove it"
            if key != near if place == "annotations" else near:
                yield f"metadata.{place}[{_cut(key, MAX_LENGTH // 3)}]: has no effect: {to_do}"


def _oddities(spec: PolicySpec, *, is_cluster_scoped: bool) -> Iterator[str]:
    if spec.pod_selector is None:
        yield "spec.podSelector: absent, so the policy matches nothing; {} matches every pod"
    if is_cluster_scoped and spec.namespace_selector is None:
        yield (
            "spec.namespaceSelector: absent, so the policy matches nothing;"
            " {} matches every namespace"
        )
    if not _has_effect(spec):
        yield (
            "spec: has no effect, it sets no affinity, nodeName, nodeSelector, schedulerName"
            " or tolerations"
        )
    if spec.scheduler_name and dns_subdomain(spec.scheduler_name):
        yield (
            f"spec.schedulerName: {_quote(spec.scheduler_name)} is not a valid scheduler name;"
            " without a scheduler of that name pods stay pending"
        )
    yield from _label_selector(spec.pod_selector, "spec.podSelector")
    if is_cluster_scoped:
        yield from _label_selector(spec.namespace_selector, "spec.namespaceSelector")
    if spec.affinity:
        yield from _affinity(spec.affinity, "spec.affinity")
    tolerations = map(keys.toleration_key, msgspec.to_builtins(spec.tolerations or []))
    yield from _repeats(tolerations, "spec.tolerations")


def _has_effect(spec: PolicySpec) -> bool:
    if spec.node_name or spec.node_selector or spec.scheduler_name or spec.tolerations:
        return True
    affinity = spec.affinity
    if affinity is None:
        return False
    node = affinity.node_affinity
    pods = (affinity.pod_affinity, affinity.pod_anti_affinity)
    return bool(node and (node.required or node.preferred)) or any(
        pod and (pod.required or pod.preferred) for pod in pods
    )


def _affinity(affinity: Affinity, path: str) -> Iterator[str]:
    if node := affinity.node_affinity:
        at = f"{path}.nodeAffinity.{REQUIRED}.nodeSelectorTerms"
        terms = node.required.node_selector_terms if node.required else None
        yield from _list(terms, at, keys.node_term_key, _node_term)
        at = f"{path}.nodeAffinity.{PREFERRED}"
        yield from _list(node.preferred, at, keys.preferred_key, _preferred_term)
    if affinity.pod_affinity:
        yield from _pod_affinity(affinity.pod_affinity, f"{path}.podAffinity")
    if affinity.pod_anti_affinity:
        yield from _pod_affinity(affinity.pod_anti_affinity, f"{path}.podAntiAffinity")


def _list(
    items: list[Item] | None,
    path: str,
    key_of: Callable[[dict[str, Any]], Hashable],
    oddities: Callable[[Item, str], Iterator[str]],
) -> Iterator[str]:
    yield from _repeats(map(key_of, msgspec.to_builtins(items or [])), path)
    for index, item in enumerate(items or ()):
        yield from oddities(item, f"{path}[{index}]")


def _preferred_term(entry: PreferredSchedulingTerm, path: str) -> Iterator[str]:
    if entry.preference:
        yield from _node_term(entry.preference, f"{path}.preference")


def _node_term(term: NodeSelectorTerm, path: str) -> Iterator[str]:
    expressions = term.match_expressions or ()
    for index, requirement in enumerate(expressions):
        yield from _node_values(requirement, f"{path}.matchExpressions[{index}].values")
    for scope, requirements in (
        ("matchExpressions", expressions),
        ("matchFields", term.match_fields or ()),
    ):
        yield from _repeated_requirements(requirements, f"{path}.{scope}")
        for key in _contradictory_keys(requirements):
            yield f"{path}.{scope}: no node can satisfy all requirements on {_quote(key)}"


def _node_values(requirement: NodeSelectorRequirement, path: str) -> Iterator[str]:
    is_number = requirement.operator in {"Gt", "Lt"}
    wanted = "an integer" if is_number else "a label value"
    for index, value in enumerate(requirement.values or ()):
        if label_value(value) or (is_number and integer(value) is None):
            to_do = ": write one item for each value" if "," in value else ""
            yield f"{path}[{index}]: {_quote(value)} is not {wanted} that schedulers accept{to_do}"


def _pod_affinity(affinity: PodAffinity, path: str) -> Iterator[str]:
    yield from _list(affinity.required, f"{path}.{REQUIRED}", keys.pod_term_key, _pod_term)
    at = f"{path}.{PREFERRED}"
    yield from _list(affinity.preferred, at, keys.weighted_pod_term_key, _weighted_pod_term)


def _weighted_pod_term(entry: WeightedPodAffinityTerm, path: str) -> Iterator[str]:
    if entry.pod_affinity_term:
        yield from _pod_term(entry.pod_affinity_term, f"{path}.podAffinityTerm")


def _pod_term(term: PodAffinityTerm, path: str) -> Iterator[str]:
    refused = (
        *label_selector_values(term.label_selector, f"{path}.labelSelector"),
        *label_selector(term.namespace_selector, f"{path}.namespaceSelector"),
    )
    for error in refused:
        yield f"{error.path}: pods with this value are rejected: {error.detail}"
    yield from _label_selector(term.label_selector, f"{path}.labelSelector")
    yield from _label_selector(term.namespace_selector, f"{path}.namespaceSelector")
    yield from _repeats(term.namespaces or (), f"{path}.namespaces")
    yield from _label_keys(term, path)
    if term.topology_key == "hostname":
        yield f"{path}.topologyKey: no label of nodes: did you mean kubernetes.io/hostname?"


def _label_keys(term: PodAffinityTerm, path: str) -> Iterator[str]:
    matched = term.match_label_keys or ()
    for name, label_keys in (
        ("matchLabelKeys", matched),
        ("mismatchLabelKeys", term.mismatch_label_keys),
    ):
        for index, key in enumerate(label_keys or ()):
            faults = list(qualified_name(key))
            if term.label_selector is None:
                faults = ["labelSelector is absent"]
            elif label_keys is not matched and key in matched:
                faults = ["the key is in matchLabelKeys too"]
            for fault in faults:
                yield f"{path}.{name}[{index}]: pods with this value are rejected: {fault}"


def _label_selector(selector: LabelSelector | None, path: str) -> Iterator[str]:
    if selector is None:
        return
    expressions = selector.match_expressions or ()
    yield from _repeated_requirements(expressions, f"{path}.matchExpressions")
    for key in _contradictory_keys(expressions, (selector.match_labels or {}).items()):
        yield f"{path}: no labels can satisfy all requirements on {_quote(key)}"


def _repeated_requirements(requirements: Requirements, path: str) -> Iterator[str]:
    for index, requirement in enumerate(requirements):
        yield from _repeats(requirement.values or (), f"{path}[{index}].values")
    yield from _repeats(map(keys.requirement_key, msgspec.to_builtins(list(requirements))), path)


def _repeats(items: Iterable[Hashable], path: str) -> Iterator[str]:
    first: dict[Hashable, int] = {}
    for index, item in enumerate(items):
        earlier = first.setdefault(item, index)
        if earlier != index:
            yield f"{path}[{index}]: repeats item {earlier} of the list"


def _contradictory_keys(
    requirements: Requirements, labels: Iterable[tuple[str, str]] = ()
) -> Iterator[str]:
    """Find keys on which the requirements (and ``labels``, which must be equal) exclude each other.

    All constraints of a key are looked at together, in linear time.
    """
    by_key: dict[str, list[Constraint]] = {
        key: [("In", frozenset((value,)))] for key, value in labels
    }
    for requirement in requirements:
        constraint = (requirement.operator or "", frozenset(requirement.values or ()))
        by_key.setdefault(requirement.key or "", []).append(constraint)
    for key, constraints in by_key.items():
        if len(constraints) > 1 and is_contradictory(constraints):
            yield key


def _quote(text: str) -> str:
    return _cut(quote(text), _SHOWN_CHARACTERS)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 3]}..."
