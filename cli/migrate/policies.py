"""What becomes of each stored policy when kupid's work passes to Harbourmaster. Pure.

kupid leaves alone the namespaces labelled ``role=kube-system``, Harbourmaster some by their names
(kupid-spec 6.6, decision D6): a policy may reach other namespaces than before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.decoding import MalformedError, decode
from harbourmaster.api.field_errors import reason
from harbourmaster.cli.migrate.legacy import KUPID_EXCLUDED
from harbourmaster.cli.migrate.model import Policy, Ref
from harbourmaster.policies.compiled import compile_policy
from harbourmaster.policies.model import CLUSTER_POLICY, POLICY
from harbourmaster.policies.model import Policy as StoredPolicy
from harbourmaster.policies.validation import validate
from harbourmaster.registration.settings import EXCLUDED_NAMESPACES

if TYPE_CHECKING:
    from harbourmaster.policies.compiled import CompiledPolicy

_PLURALS: Final = {CLUSTER_POLICY: "clusterpodschedulingpolicy", POLICY: "podschedulingpolicy"}
_decoder: Final = msgspec.json.Decoder(StoredPolicy)


class Reach(Struct, frozen=True):
    """The namespaces that either of the two leaves alone, with their labels."""

    only_ours: Mapping[str, Mapping[str, str]] = {}
    """Excluded by Harbourmaster and not by kupid."""
    only_kupid: Mapping[str, Mapping[str, str]] = {}
    """Excluded by kupid and not by Harbourmaster."""


def reach_of(namespaces: Mapping[str, Mapping[str, str]], own: str) -> Reach:
    """Sort the namespaces; those of which nothing is to be said may be missing."""
    key, value = KUPID_EXCLUDED
    excluded = {*EXCLUDED_NAMESPACES, own}
    ours = {
        name: labels
        for name, labels in namespaces.items()
        if name in excluded and labels.get(key) != value
    }
    kupid = {
        name: labels
        for name, labels in namespaces.items()
        if name not in excluded and labels.get(key) == value
    }
    return Reach(ours, kupid)


def judge(raw: bytes | msgspec.Raw, kind: str, ref: Ref, reach: Reach) -> Policy | None:
    """What is to be said about a policy; None for nothing."""
    try:
        policy = decode(_decoder, raw, "")
    except MalformedError as error:
        return Policy(ref, faults=(str(error),))
    # Validation asks the object for its kind, and lists need not carry it.
    policy = msgspec.structs.replace(policy, kind=kind)
    compiled = compile_policy(policy)
    errors = validate(policy)
    judged = Policy(
        ref,
        faults=(reason(errors),) if errors else (),
        lost=_reached(compiled, reach.only_ours),
        gained=_reached(compiled, reach.only_kupid),
    )
    return judged if judged.faults or judged.lost or judged.gained else None


def policy_ref(kind: str, namespace: str, name: str) -> Ref:
    """How kubectl calls a policy."""
    return Ref(_PLURALS[kind], name, "" if kind == CLUSTER_POLICY else namespace)


def _reached(
    policy: CompiledPolicy, namespaces: Mapping[str, Mapping[str, str]]
) -> tuple[str, ...]:
    if policy.pods is None:
        return ()
    if policy.namespace is not None:
        return (policy.namespace,) if policy.namespace in namespaces else ()
    if policy.namespaces is None:
        return ()
    return tuple(
        name
        for name, labels in sorted(namespaces.items())
        if policy.namespaces.matches({"kubernetes.io/metadata.name": name, **labels})
    )
