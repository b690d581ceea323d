"""Validation of policies: the checks of kupid-spec 5.2, with its paths and in its order.

Beyond upstream, values of ``In`` and ``NotIn`` in the policy's own selectors must be label values:
they would fail at match time (5.3). ``advice.warn`` reports what is merely odd.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harbourmaster.api.field_errors import forbidden, invalid, quote, required, unsupported
from harbourmaster.api.names import dns_label, dns_subdomain, label_value, qualified_name
from harbourmaster.policies.enforcement import ENFORCEMENT_KEY, ENFORCEMENTS, MODE_KEY, MODES
from harbourmaster.policies.model import (
    DENY,
    ON_TOO_LARGE,
    PREFERRED,
    REQUIRED,
    WARN,
    NodeSelectorTerm,
    PodAffinityTerm,
    PolicySpec,
)
from harbourmaster.policies.targets import (
    EXCLUDED_KEY,
    KIND_NAMES,
    TARGETS,
    TARGETS_KEY,
    excluded_names,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from harbourmaster.api.field_errors import FieldError
    from harbourmaster.api.selectors import LabelSelector, LabelSelectorRequirement
    from harbourmaster.policies.model import (
        Affinity,
        ManagedFieldsEntry,
        NodeAffinity,
        NodeSelectorRequirement,
        OwnerReference,
        PodAffinity,
        Policy,
        PolicyMetadata,
        Toleration,
    )

MIN_WEIGHT: Final = 1
MAX_WEIGHT: Final = 100
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_TOLERATION_OPERATORS: Final = ("Equal", "Exists")
SUPPORTED_VALUES: Final = {
    ON_TOO_LARGE: (DENY, WARN),
    ENFORCEMENT_KEY: ENFORCEMENTS,
    MODE_KEY: MODES,
    TARGETS_KEY: TARGETS,
    EXCLUDED_KEY: KIND_NAMES,
}
"""The values of our annotations on policies; the last one is the default, except of kinds."""
MAX_ANNOTATIONS: Final = 256 * 1024
"""Bytes of all keys and values together."""
_SHOWN_CHARACTERS: Final = 40
MAX_MANAGER: Final = 128
MAX_SUBRESOURCE: Final = 256
_ORPHAN: Final = "orphan"
_FOREGROUND: Final = "foregroundDeletion"
_STANDARD_FINALIZERS: Final = frozenset(("kubernetes", _ORPHAN, _FOREGROUND))


def validate(policy: Policy) -> tuple[FieldError, ...]:
    """Return all errors that deny the policy at admission: metadata first, then the spec."""
    metadata = _object_metadata(policy.metadata, is_cluster_scoped=policy.is_cluster_scoped)
    return (*metadata, *validate_spec(policy))


def validate_spec(policy: Policy) -> tuple[FieldError, ...]:
    """Return the errors of the spec, which make a stored policy unusable."""
    spec = policy.spec or PolicySpec()
    return tuple(_spec(spec, is_cluster_scoped=policy.is_cluster_scoped))


def _spec(spec: PolicySpec, *, is_cluster_scoped: bool) -> Iterator[FieldError]:
    yield from label_selector(spec.pod_selector, "spec.podSelector")
    yield from _labels(spec.node_selector, "spec.nodeSelector")
    if spec.node_name:
        yield from _all_invalid("spec.nodeName", spec.node_name, dns_subdomain(spec.node_name))
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
        yield from _expression(requirement, f"{path}.matchExpressions[{index}]", compares=True)
    for index, requirement in enumerate(term.match_fields or ()):
        yield from _node_field(requirement, f"{path}.matchFields[{index}]")


def _node_field(requirement: NodeSelectorRequirement, path: str) -> Iterator[FieldError]:
    values = requirement.values or ()
    if requirement.operator not in {"In", "NotIn"}:
        yield _unknown_operator(requirement.operator, path)
    elif len(values) != 1:
        yield required(f"{path}.values", "a node field is compared with exactly one value")
    if requirement.key != "metadata.name":
        key = requirement.key or ""
        yield invalid(f"{path}.key", key, "the only node field is metadata.name")
        return
    for index, value in enumerate(values):
        yield from _all_invalid(f"{path}.values[{index}]", value, dns_subdomain(value))


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
        yield from _all_invalid(f"{path}.namespace", namespace, dns_label(namespace))
    if not term.topology_key:
        yield required(f"{path}.topologyKey", "must not be empty")
    yield from _label_key(term.topology_key, f"{path}.topologyKey")


def _weight(weight: int | None, path: str) -> Iterator[FieldError]:
    if not MIN_WEIGHT <= (weight or 0) <= MAX_WEIGHT:
        detail = f"must be in the range {MIN_WEIGHT}-{MAX_WEIGHT}"
        yield invalid(f"{path}.weight", weight or 0, detail)


def _toleration(toleration: Toleration, path: str) -> Iterator[FieldError]:
    operator = toleration.operator or ""
    effect = toleration.effect or ""
    if toleration.key:
        yield from _label_key(toleration.key, f"{path}.key")
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


def _labels(values: Mapping[str, str] | None, path: str) -> Iterator[FieldError]:
    """Check keys and values; every error stands at ``path``, without the key, as upstream."""
    for key, value in (values or {}).items():
        yield from _label_key(key, path)
        yield from _all_invalid(path, value, label_value(value))


def _label_key(key: str | None, path: str) -> Iterator[FieldError]:
    """Check one label key."""
    yield from _all_invalid(path, key or "", qualified_name(key or ""))


def label_selector(
    selector: LabelSelector | None, path: str, *, with_values: bool = True
) -> Iterator[FieldError]:
    """Check a selector; ``with_values`` says whether the values of expressions count too."""
    if selector is None:
        return
    yield from _labels(selector.match_labels, f"{path}.matchLabels")
    for index, requirement in enumerate(selector.match_expressions or ()):
        at = f"{path}.matchExpressions[{index}]"
        yield from _expression(requirement, at)
        if with_values:
            yield from _values(requirement, at)


def label_selector_values(selector: LabelSelector | None, path: str) -> Iterator[FieldError]:
    """Check nothing but the values of expressions."""
    if selector is not None:
        for index, requirement in enumerate(selector.match_expressions or ()):
            yield from _values(requirement, f"{path}.matchExpressions[{index}]")


def _expression(
    requirement: LabelSelectorRequirement | NodeSelectorRequirement,
    path: str,
    *,
    compares: bool = False,
) -> Iterator[FieldError]:
    """Check operator, number of values and key; ``compares`` says whether Gt and Lt are allowed."""
    match requirement.operator:
        case "In" | "NotIn":
            if not requirement.values:
                yield required(f"{path}.values", "operators In and NotIn need at least one value")
        case "Exists" | "DoesNotExist":
            if requirement.values:
                yield forbidden(
                    f"{path}.values", "operators Exists and DoesNotExist take no values"
                )
        case "Gt" | "Lt" if compares:
            if len(requirement.values or ()) != 1:
                yield required(f"{path}.values", "operators Gt and Lt need exactly one value")
        case operator:
            yield _unknown_operator(operator, path)
    yield from _label_key(requirement.key, f"{path}.key")


def _all_invalid(path: str, value: str, faults: Iterable[str]) -> Iterator[FieldError]:
    for fault in faults:
        yield invalid(path, value, fault)


def _unknown_operator(operator: str | None, path: str) -> FieldError:
    """Say that the requirement at ``path`` has an operator that is not allowed there."""
    return invalid(f"{path}.operator", operator or "", "not a valid selector operator")


def _values(requirement: LabelSelectorRequirement, path: str) -> Iterator[FieldError]:
    if requirement.operator in {"In", "NotIn"}:
        for index, value in enumerate(requirement.values or ()):
            yield from _all_invalid(f"{path}.values[{index}]", value, label_value(value))


def _object_metadata(metadata: PolicyMetadata, *, is_cluster_scoped: bool) -> Iterator[FieldError]:
    """Check the metadata, in the order of the spec."""
    yield from _name(metadata.name)
    yield from _namespace(metadata.namespace, is_cluster_scoped=is_cluster_scoped)
    yield from _labels(metadata.labels, "metadata.labels")
    yield from _annotations(metadata.annotations or {}, "metadata.annotations")
    yield from _owners(metadata.owner_references or (), "metadata.ownerReferences")
    if (metadata.generation or 0) < 0:
        yield invalid("metadata.generation", metadata.generation, "must not be negative")
    for index, entry in enumerate(metadata.managed_fields or ()):
        yield from _managed_fields(entry, f"metadata.managedFields[{index}]")
    yield from _finalizers(metadata.finalizers or (), "metadata.finalizers")


def _name(name: str | None) -> Iterator[FieldError]:
    if not name:
        yield required("metadata.name", "the policy needs a name")
        return
    yield from _all_invalid("metadata.name", name, dns_subdomain(name))


def _namespace(namespace: str | None, *, is_cluster_scoped: bool) -> Iterator[FieldError]:
    path = "metadata.namespace"
    if is_cluster_scoped:
        if namespace:
            yield forbidden(path, "the kind is cluster-scoped")
    elif not namespace:
        yield required(path)
    else:
        yield from _all_invalid(path, namespace, dns_label(namespace))


def _annotations(annotations: Mapping[str, str], path: str) -> Iterator[FieldError]:
    for key, value in annotation_faults(annotations).items():
        yield unsupported(f"{path}[{key}]", value, SUPPORTED_VALUES[key])
    for key in annotations:
        # Unlike the keys of labels, those of annotations may have capitals in their prefix.
        yield from _all_invalid(path, key, qualified_name(key.lower()))
    size = sum(
        len(text.encode(errors="replace")) for entry in annotations.items() for text in entry
    )
    if size > MAX_ANNOTATIONS:
        yield invalid(path, size, f"more than {MAX_ANNOTATIONS} bytes of keys and values")


def annotation_faults(annotations: Mapping[str, str]) -> dict[str, str]:
    """Return our annotations with unsupported values, one value of each."""
    single = annotations.keys() - {EXCLUDED_KEY}
    values = [(key, annotations[key]) for key in SUPPORTED_VALUES if key in single]
    values += [(EXCLUDED_KEY, name) for name in excluded_names(annotations)]
    return {key: value for key, value in values if value not in SUPPORTED_VALUES[key]}


def describe_fault(key: str, value: str) -> str:
    """Say which value of an annotation is not supported, and what counts instead."""
    default = "the annotation without it" if key == EXCLUDED_KEY else SUPPORTED_VALUES[key][-1]
    return f"unsupported value {quote(value[:_SHOWN_CHARACTERS])} of {key}, so {default} counts"


def _owners(owners: Sequence[OwnerReference], path: str) -> Iterator[FieldError]:
    controllers = 0
    for owner in owners:
        yield from _owner(owner, path)
        if owner.controller:
            controllers += 1
    if controllers > 1:
        yield invalid(path, list(owners), "only one owner may be the controller")


def _owner(owner: OwnerReference, path: str) -> Iterator[FieldError]:
    """Check one owner; the errors stand at the list's path, without an index, as upstream."""
    api_version = owner.api_version or ""
    if not api_version.rpartition("/")[2] or api_version.count("/") > 1:
        yield invalid(f"{path}.apiVersion", api_version, "the version is missing")
    for field, value in (("kind", owner.kind), ("name", owner.name), ("uid", owner.uid)):
        if not value:
            yield invalid(f"{path}.{field}", "", "must not be empty")
    if (api_version, owner.kind) == ("v1", "Event"):
        yield invalid(path, owner, "an Event cannot own objects")


def _managed_fields(entry: ManagedFieldsEntry, path: str) -> Iterator[FieldError]:
    if entry.operation not in {"Apply", "Update"}:
        yield invalid(f"{path}.operation", entry.operation or "", "must be Apply or Update")
    if entry.fields_type not in {None, "", "FieldsV1"}:
        yield invalid(f"{path}.fieldsType", entry.fields_type, "must be FieldsV1")
    manager = entry.manager or ""
    if len(manager) > MAX_MANAGER:
        yield invalid(f"{path}.manager", manager, f"more than {MAX_MANAGER} characters")
    if not manager.isprintable():
        yield invalid(f"{path}.manager", manager, "holds characters that do not print")
    subresource = entry.subresource or ""
    if len(subresource) > MAX_SUBRESOURCE:
        yield invalid(f"{path}.subresource", subresource, f"more than {MAX_SUBRESOURCE} characters")


def _finalizers(finalizers: Sequence[str], path: str) -> Iterator[FieldError]:
    for finalizer in finalizers:
        yield from _all_invalid(path, finalizer, qualified_name(finalizer))
    for index, finalizer in enumerate(finalizers):
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            yield invalid(
                f"{path}[{index}]", finalizer, "neither a standard finalizer nor domain/name"
            )
    if _ORPHAN in finalizers and _FOREGROUND in finalizers:
        yield invalid(path, list(finalizers), f"{_ORPHAN} and {_FOREGROUND} exclude each other")
