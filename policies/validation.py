"""Validation of policies: the checks of kupid-spec 5.2, with its paths and in its order.

Beyond upstream, values of ``In`` and ``NotIn`` in the policy's own selectors must be label values:
they would fail at match time (5.3). ``advice.warn`` reports what is merely odd.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harbourmaster.api.field_errors import invalid, required, unsupported
from harbourmaster.api.names import dns_label, dns_subdomain, label_value
from harbourmaster.policies.label_validation import (
    label_key,
    label_selector,
    labels,
    unknown_operator,
    value_count,
)
from harbourmaster.policies.metadata_validation import object_metadata
from harbourmaster.policies.model import (
    PREFERRED,
    REQUIRED,
    NodeSelectorTerm,
    PodAffinityTerm,
    PolicySpec,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harbourmaster.api.field_errors import FieldError
    from harbourmaster.policies.model import (
        Affinity,
        NodeAffinity,
        NodeSelectorRequirement,
        PodAffinity,
        Policy,
        Toleration,
    )

MIN_WEIGHT: Final = 1
MAX_WEIGHT: Final = 100
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_TOLERATION_OPERATORS: Final = ("Equal", "Exists")


def validate(policy: Policy) -> tuple[FieldError, ...]:
    """Return all errors that deny the policy at admission: metadata first, then the spec."""
    metadata = object_metadata(policy.metadata, is_cluster_scoped=policy.is_cluster_scoped)
    return (*metadata, *validate_spec(policy))


def validate_spec(policy: Policy) -> tuple[FieldError, ...]:
    """Return the errors of the spec, which make a stored policy unusable."""
    spec = policy.spec or PolicySpec()
    return tuple(_spec(spec, is_cluster_scoped=policy.is_cluster_scoped))


def _spec(spec: PolicySpec, *, is_cluster_scoped: bool) -> Iterator[FieldError]:
    yield from label_selector(spec.pod_selector, "spec.podSelector")
    yield from labels(spec.node_selector, "spec.nodeSelector")
    if spec.node_name:
        for fault in dns_subdomain(spec.node_name):
            yield invalid("spec.nodeName", spec.node_name, fault)
    if spec.affinity:
        yield from _affinity(spec.affinity, "spec.affinity")
    for index, toleration in enumerate(spec.tolerations or ()):
        yield from _toleration(toleration, f"spec.tolerations[{index}]")
    if is_cluster_scoped:
        yield from label_selector(spec.namespace_selector, "spec.namespaceSelector")


def _affinity(affinity: Affinity, path: str) -> Iterator[FieldError]:
    if affinity.node_affinity:
        yield from _node_affinity(affinity.node_affinity, f"{path}.nodeAffinity")
    if affinity.pod_affinity:
        yield from _pod_affinity(affinity.pod_affinity, f"{path}.podAffinity")
    if affinity.pod_anti_affinity:
        yield from _pod_affinity(affinity.pod_anti_affinity, f"{path}.podAntiAffinity")


def _node_affinity(affinity: NodeAffinity, path: str) -> Iterator[FieldError]:
    if affinity.required:
        terms = affinity.required.node_selector_terms or ()
        at = f"{path}.{REQUIRED}.nodeSelectorTerms"
        if not terms:
            yield required(at, "at least one term is needed")
        for index, term in enumerate(terms):
            yield from _node_term(term, f"{at}[{index}]")
    for index, entry in enumerate(affinity.preferred or ()):
        at = f"{path}.{PREFERRED}[{index}]"
        yield from _weight(entry.weight, at)
        yield from _node_term(entry.preference or NodeSelectorTerm(), f"{at}.preference")


def _node_term(term: NodeSelectorTerm, path: str) -> Iterator[FieldError]:
    for index, requirement in enumerate(term.match_expressions or ()):
        yield from _node_requirement(requirement, f"{path}.matchExpressions[{index}]")
    for index, requirement in enumerate(term.match_fields or ()):
        yield from _node_field(requirement, f"{path}.matchFields[{index}]")


def _node_requirement(requirement: NodeSelectorRequirement, path: str) -> Iterator[FieldError]:
    match requirement.operator:
        case "In" | "NotIn" | "Exists" | "DoesNotExist":
            yield from value_count(requirement, path)
        case "Gt" | "Lt":
            if len(requirement.values or ()) != 1:
                yield required(f"{path}.values", "operators Gt and Lt need exactly one value")
        case operator:
            yield unknown_operator(operator, path)
    yield from label_key(requirement.key, f"{path}.key")


def _node_field(requirement: NodeSelectorRequirement, path: str) -> Iterator[FieldError]:
    values = requirement.values or ()
    if requirement.operator not in {"In", "NotIn"}:
        yield unknown_operator(requirement.operator, path)
    elif len(values) != 1:
        yield required(f"{path}.values", "a node field is compared with exactly one value")
    if requirement.key != "metadata.name":
        key = requirement.key or ""
        yield invalid(f"{path}.key", key, "the only node field is metadata.name")
        return
    for index, value in enumerate(values):
        for fault in dns_subdomain(value):
            yield invalid(f"{path}.values[{index}]", value, fault)


def _pod_affinity(affinity: PodAffinity, path: str) -> Iterator[FieldError]:
    for index, term in enumerate(affinity.required or ()):
        yield from _pod_term(term, f"{path}.{REQUIRED}[{index}]")
    for index, entry in enumerate(affinity.preferred or ()):
        at = f"{path}.{PREFERRED}[{index}]"
        yield from _weight(entry.weight, at)
        yield from _pod_term(entry.pod_affinity_term or PodAffinityTerm(), f"{at}.podAffinityTerm")


def _pod_term(term: PodAffinityTerm, path: str) -> Iterator[FieldError]:
    # Upstream reports the selector below a segment of this name, and namespaces in the singular.
    yield from label_selector(term.label_selector, f"{path}.matchExpressions", with_values=False)
    for namespace in term.namespaces or ():
        for fault in dns_label(namespace):
            yield invalid(f"{path}.namespace", namespace, fault)
    if not term.topology_key:
        yield required(f"{path}.topologyKey", "must not be empty")
    yield from label_key(term.topology_key, f"{path}.topologyKey")


def _weight(weight: int | None, path: str) -> Iterator[FieldError]:
    if not MIN_WEIGHT <= (weight or 0) <= MAX_WEIGHT:
        detail = f"must be in the range {MIN_WEIGHT}-{MAX_WEIGHT}"
        yield invalid(f"{path}.weight", weight or 0, detail)


def _toleration(toleration: Toleration, path: str) -> Iterator[FieldError]:
    operator = toleration.operator or ""
    effect = toleration.effect or ""
    if toleration.key:
        yield from label_key(toleration.key, f"{path}.key")
    elif operator != "Exists":
        yield invalid(f"{path}.operator", operator, "must be Exists where the key is empty")
    if toleration.toleration_seconds is not None and effect != "NoExecute":
        yield invalid(f"{path}.effect", effect, "tolerationSeconds need the effect NoExecute")
    yield from _toleration_value(toleration, f"{path}.operator")
    if effect and effect not in _EFFECTS:
        yield unsupported(f"{path}.effect", effect, _EFFECTS)


def _toleration_value(toleration: Toleration, path: str) -> Iterator[FieldError]:
    """Check that value and operator fit; upstream reports all of it at the operator."""
    value = toleration.value or ""
    match toleration.operator or "":
        case "" | "Equal":
            if faults := label_value(value):
                yield invalid(path, value, "; ".join(faults))
        case "Exists":
            if value:
                yield invalid(path, toleration, "the value must be empty with Exists")
        case operator:
            yield unsupported(path, operator, _TOLERATION_OPERATORS)
