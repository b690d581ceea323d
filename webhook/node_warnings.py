"""Warnings on pods that no node matches: they would stay Pending."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from harbourmaster.api.decoding import MalformedError
from harbourmaster.policies.admission_warning import AdmissionWarning
from harbourmaster.policies.affinity import required_terms
from harbourmaster.policies.merge import DEFAULT_SCHEDULER, merged_fields
from harbourmaster.policies.requirements import SCOPES, constraints_of
from harbourmaster.rescheduling.decoding import decode_pending
from harbourmaster.rescheduling.unmet import unmet

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harbourmaster.policies.compiled import CompiledPolicy
    from harbourmaster.policies.merge import MergeOptions
    from harbourmaster.policies.pods import Kind, PodView
    from harbourmaster.rescheduling.model import NodeRequirement
    from harbourmaster.rescheduling.unmet import KnownNodes

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
    asks = policies or (pod.spec and pod.spec.node_selector) or required_terms(pod.affinity)
    if not asks and (kind.is_template or not nodes.are_tainted):
        return ()
    fields = merged_fields(pod, policies, options) | (_TOLERATES_ALL if kind.is_template else {})
    try:
        pending = decode_pending(msgspec.json.encode({"spec": fields}))
    except MalformedError:
        # The API server says what is wrong.
        return ()
    if (
        # Nobody here knows what other schedulers go by.
        pending.node_name
        or pending.scheduler != DEFAULT_SCHEDULER
        # A DaemonSet's pod is made for a node, which is perhaps not known here yet.
        or (not kind.is_template and any(term.fields for term in pending.node_terms or ()))
        # Where an API server allows these, they may tolerate what has the key.
        or any(toleration.operator in {"Gt", "Lt"} for toleration in pending.tolerations)
        or (reason := unmet(pending, nodes)) is None
    ):
        return ()
    text, requirements = reason
    names = dict.fromkeys(_writer(requirement, kind, pod, policies) for requirement in requirements)
    by = f" ({', '.join(names)})" if names else ""
    return (
        AdmissionWarning("no-node-matches", f"{text}{by}: pods stay Pending until a node matches"),
    )


def _writer(
    requirement: NodeRequirement, kind: Kind, pod: PodView, policies: Sequence[CompiledPolicy]
) -> str:
    """Return the source of a requirement: the path of the pod spec, or the first policy with it."""
    labels = (pod.spec and pod.spec.node_selector) or {}
    if _is_among(requirement, labels, required_terms(pod.affinity)):
        return kind.pointer[1:].replace("/", ".")
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
