"""The selection of policies that the API server can enforce, and its objects (decision D21)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.policies import cel
from harbourmaster.policies.admission_policies import MAX_EXPRESSION, expressions
from harbourmaster.policies.cel_paths import NAMESPACE_NAME, PARTS, PODS, PROBE_NAMESPACE
from harbourmaster.policies.compiled import CompiledPolicy
from harbourmaster.policies.enforcement import BOUND_KEY, COMPILED_KEY, WEBHOOK

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from harbourmaster.api.selectors import Matcher
    from harbourmaster.policies.admission_policies import Expressions

    Json = dict[str, Any]

GROUP: Final = "admissionregistration.k8s.io/v1"
POLICY: Final = "policy"
"""Values of the label COMPILED_KEY."""
FINAL: Final = "final"
PROBE: Final = "probe"
CHECK: Final = "check"
HASHES_KEY: Final = "harbourmaster.dev/policy-hashes"
"""Annotation: a JSON object of policy references and hashes."""
SET_KEY: Final = "harbourmaster.dev/compiled-set"
PARTS_KEY: Final = "harbourmaster.dev/compiled-parts"
MAX_ITEMS: Final = 32
"""Tolerations and affinity terms of a policy."""
MAX_ALL_ITEMS: Final = 256
"""The most tolerations and affinity terms of all policies of a set."""
MAX_SAFE_INTEGER: Final = 2**53 - 1
_PREFIX: Final = "harbourmaster-compiled"
_SET_DIGITS: Final = 8
_encode: Final = msgspec.json.Encoder(order="deterministic").encode


class Refusal(Struct, frozen=True):
    """A policy that the webhook must go on enforcing."""

    reference: str
    reason: str


class Selection(Struct, frozen=True):
    """The policies that the API server can enforce, in their order, and the refusals of others."""

    policies: tuple[CompiledPolicy, ...]
    refusals: tuple[Refusal, ...]


class Registered(Struct, frozen=True):
    """The registration of the webhook, which the admission policies take over."""

    rules: Mapping[str, Sequence[Json]]
    """The rules by part; a part without rules has no objects."""
    namespaces: Json
    """A label selector."""
    objects: Json


class Objects(Struct, frozen=True):
    """The objects to apply, in this order: policies, bindings of the probe, and final bindings."""

    policies: list[Json]
    probe: list[Json]
    final: list[Json]
    set: str
    """The digest of the set, which is the value of the label SET_KEY."""


def select(
    policies: Iterable[CompiledPolicy],
    *,
    namespaces: Collection[str],
    waiting_scheduler: str,
    has_gates: bool = True,
) -> Selection:
    """Choose; ``namespaces`` are those whose own policies may be compiled.

    ``waiting_scheduler`` is the one in which pods wait for their checks, all without ``has_gates``.
    """
    chosen: list[CompiledPolicy] = []
    others: list[CompiledPolicy] = []
    refusals = []
    for policy in sorted(policies, key=lambda policy: policy.rank):
        if policy.is_audited:
            continue
        if policy.enforcement == WEBHOOK:
            others.append(policy)
            continue
        reason = next(_reasons(policy, namespaces), "")
        # A pod that names another scheduler would not wait at all.
        is_apart = has_gates and policy.scheduler_name != waiting_scheduler
        if policy.scheduler_name and not is_apart:
            reason = f"spec.schedulerName: pods wait for their checks in {waiting_scheduler}"
        reason = reason or _out_of_order(policy, others)
        if reason:
            refusals.append(Refusal(policy.reference, reason))
            others.append(policy)
        else:
            chosen.append(policy)
    return Selection(tuple(chosen), tuple(refusals))


def _reasons(policy: CompiledPolicy, namespaces: Collection[str]) -> Iterator[str]:
    """Why a policy can't be compiled, whatever others there are."""
    if policy.fault is not None:
        yield f"it is invalid: {policy.fault}"
    if policy.namespace is not None and policy.namespace not in namespaces:
        yield f"namespace {policy.namespace} is not one of --policy-namespaces"
    if policy.node_name:
        yield "spec.nodeName: a gate that is added later would be refused beside it"
    for slot, items in policy.lists:
        if len({cel.ITEMS[slot].key(item) for item, _ in items}) < len(items):
            yield f"spec.affinity.{slot[0]}.{slot[1]}: the same entry stands there twice"
    yield from _beyond_bounds(policy)


def _beyond_bounds(policy: CompiledPolicy) -> Iterator[str]:
    lists = (*dict(policy.lists).values(), policy.tolerations)
    items = [item for entries in lists for item, _ in entries]
    terms = policy.required.terms.terms if policy.required else ()
    if len(terms) > cel.MAX_TERMS:
        yield f"spec.affinity.nodeAffinity: more than {cel.MAX_TERMS} required terms"
    for term in (*terms, *items):
        requirements, texts = cel.count_parts(term)
        # Each requirement has a key and an operator, each item a few texts more.
        if requirements > cel.MAX_REQUIREMENTS or texts - 2 * requirements > cel.MAX_VALUES:
            yield (
                f"spec: a term of more than {cel.MAX_REQUIREMENTS} requirements or of about "
                f"{cel.MAX_VALUES} values, labels and names"
            )
    if len(items) > MAX_ITEMS:
        yield f"spec: more than {MAX_ITEMS} tolerations and affinity terms"
    selectors = (policy.pods, policy.namespaces)
    content = (items, terms, policy.node_selector, policy.scheduler_name, selectors)
    if not msgspec.json.encode(content).isascii():
        yield "spec: characters other than ASCII"
    if any(abs(item.get("tolerationSeconds") or 0) > MAX_SAFE_INTEGER for item in items):
        yield f"spec.tolerations: tolerationSeconds beyond {MAX_SAFE_INTEGER}"


def _out_of_order(policy: CompiledPolicy, earlier: Iterable[CompiledPolicy]) -> str:
    """Admission policies run before webhooks, so no policy before it may set the same there."""
    for former in earlier:
        field = (
            ""
            if former.fault is not None or _never_meet(policy, former)
            else _common(policy, former)
        )
        if field:
            return (
                f"{field}: {former.reference} comes before it, sets the same and is enforced by "
                "the webhook: compile both, or none"
            )
    return ""


def _never_meet(first: CompiledPolicy, second: CompiledPolicy) -> bool:
    """Whether no pod is selected by both."""
    spaces = {first.namespace, second.namespace} - {None}
    return (
        len(spaces) > 1
        or _disjoint(first.pods, second.pods)
        or (not spaces and _disjoint(first.namespaces, second.namespaces))
    )


def _disjoint(first: Matcher | None, second: Matcher | None) -> bool:
    if first is None or second is None:
        return True
    return any(
        key == same and values.isdisjoint(others)
        for key, values in first.one_of
        for same, others in second.one_of
    )


def _common(first: CompiledPolicy, second: CompiledPolicy) -> str:
    """A field on which the order of two policies counts; empty for none."""
    labels = dict(second.node_selector)
    for key, value in first.node_selector:
        if labels.get(key, value) != value:
            return f"spec.nodeSelector[{key}]"
    if first.scheduler_name and second.scheduler_name not in {None, first.scheduler_name}:
        return "spec.schedulerName"
    if first.tolerations and second.tolerations:
        return "spec.tolerations"
    slots = dict(second.lists)
    for slot, _ in first.lists:
        if slot in slots:
            return f"spec.affinity.{slot[0]}.{slot[1]}"
    if first.required and (second.required or second.node_name):
        return "spec.affinity.nodeAffinity"
    return ""


def compile_objects(policies: Sequence[CompiledPolicy], registered: Registered) -> Objects:
    """Return the objects of selected policies. Raises ValueError if they are too many."""
    count = sum(
        len(policy.tolerations) + sum(len(items) for _, items in policy.lists)
        for policy in policies
    )
    if count > MAX_ALL_ITEMS:
        text = f"{count} tolerations and affinity terms in all, more than {MAX_ALL_ITEMS}"
        raise ValueError(f"{text}: let the webhook enforce some of the policies")
    parts = [part for part in PARTS if registered.rules.get(part.name)]
    compiled = {part.name: expressions(policies, part) for part in parts}
    specs = {
        part.name: _mutating_spec(compiled[part.name], registered.rules[part.name])
        for part in parts
    }
    checks = dict(_checks(policies, compiled[PODS.name], registered)) if PODS in parts else {}
    for name, spec in (*specs.items(), *checks.items()):
        _check_length(name, spec)
    content = _encode((specs, checks, registered.namespaces, registered.objects))
    digest = hashlib.sha256(content).hexdigest()[:_SET_DIGITS]
    selected = {
        "namespaceSelector": _beside_probe(registered.namespaces),
        "objectSelector": registered.objects,
    }
    annotations = {
        BOUND_KEY: _encode(selected).decode(),
        HASHES_KEY: _encode({policy.reference: policy.hash for policy in policies}).decode(),
        SET_KEY: digest,
        PARTS_KEY: ",".join(part.name for part in parts),
    }
    result = Objects([], [_probe_namespace()], [], digest)
    tried = {"namespaceSelector": {"matchLabels": {NAMESPACE_NAME: PROBE_NAMESPACE}}}
    for kind, mark, named in (("Mutating", POLICY, specs), ("Validating", CHECK, checks)):
        for name, spec in named.items():
            full = f"{_PREFIX}-{digest}-{name}"
            policy = _object(f"{kind}AdmissionPolicy", full, mark, spec, annotations)
            result.policies.append(policy)
            more = (
                {"validationActions": ["Deny" if name == _DENIES else "Warn"]}
                if mark == CHECK
                else {}
            )
            for bindings, prefix, matched, stage in (
                (result.probe, f"{_PREFIX}-probe", tried, PROBE),
                (result.final, _PREFIX, selected, FINAL),
            ):
                bound: Json = {"policyName": full, "matchResources": matched, **more}
                label = CHECK if mark == CHECK else stage
                bindings.append(
                    _object(f"{kind}AdmissionPolicyBinding", f"{prefix}-{name}", label, bound)
                )
    return result


_DENIES: Final = "too-large-deny"
_WARNS: Final = "too-large-warn"


def _mutating_spec(compiled: Expressions, rules: Sequence[Json]) -> Json:
    return {
        "failurePolicy": "Ignore",
        "reinvocationPolicy": "IfNeeded",
        **_matching(compiled, rules),
        "variables": _name_expressions(compiled.variables),
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": compiled.mutation}}],
    }


def _checks(
    policies: Sequence[CompiledPolicy], compiled: Expressions, registered: Registered
) -> Iterator[tuple[str, Json]]:
    """Yield checks that refuse or warn, as the webhook does, on pods too large for a policy."""
    for name, denies in ((_DENIES, True), (_WARNS, False)):
        lacking = [
            f"{condition} ? [{cel.literal(policy.reference)}] : []"
            for policy, condition in zip(policies, compiled.lacking, strict=True)
            if policy.denies_too_large == denies
        ]
        if not lacking:
            continue
        variables = (*compiled.variables, ("lacking", f"[{', '.join(lacking)}].flatten()"))
        more = '" and " + string(variables.lacking.size() - 1) + " more"'
        message = (
            '"harbourmaster: the pod is too large for " + variables.lacking[0] '
            f'+ (variables.lacking.size() > 1 ? {more} : "") + ": give it fewer or shorter entries"'
        )
        yield (
            name,
            {
                "failurePolicy": "Fail" if denies else "Ignore",
                **_matching(compiled, registered.rules[PODS.name]),
                "variables": _name_expressions(variables),
                "validations": [
                    {"expression": "variables.lacking.size() == 0", "messageExpression": message}
                ],
            },
        )


def _matching(compiled: Expressions, rules: Sequence[Json]) -> Json:
    return {
        "matchConstraints": {"matchPolicy": "Equivalent", "resourceRules": list(rules)},
        "matchConditions": _name_expressions(compiled.conditions),
    }


def _name_expressions(named: Iterable[tuple[str, str]]) -> list[Json]:
    return [{"name": name, "expression": expression} for name, expression in named]


def _check_length(name: str, spec: Json) -> None:
    mutations = [mutation["jsonPatch"] for mutation in spec.get("mutations", ())]
    for condition in (*spec["matchConditions"], *spec["variables"], *mutations):
        size = len(condition["expression"])
        if size > MAX_EXPRESSION:
            text = f"{name}: an expression of {size} characters, more than {MAX_EXPRESSION}"
            raise ValueError(f"{text}: let the webhook enforce some of the policies")


def _beside_probe(selector: Json) -> Json:
    """The selector without the namespace in which objects are tried."""
    probe = {"key": NAMESPACE_NAME, "operator": "NotIn", "values": [PROBE_NAMESPACE]}
    return {**selector, "matchExpressions": [*selector.get("matchExpressions", ()), probe]}


def _probe_namespace() -> Json:
    labels = {"app.kubernetes.io/name": "harbourmaster", COMPILED_KEY: PROBE}
    metadata = {"name": PROBE_NAMESPACE, "labels": labels}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def _object(
    kind: str, name: str, mark: str, spec: Json, annotations: Mapping[str, str] | None = None
) -> Json:
    labels = {"app.kubernetes.io/name": "harbourmaster", COMPILED_KEY: mark}
    metadata: Json = {"name": name, "labels": labels}
    if annotations:
        # As a label too, so that those of former sets can be deleted.
        labels[SET_KEY] = annotations[SET_KEY]
        metadata["annotations"] = dict(annotations)
    return {"apiVersion": GROUP, "kind": kind, "metadata": metadata, "spec": spec}
