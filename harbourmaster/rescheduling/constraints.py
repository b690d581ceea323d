"""Decodes the constraints of a pod from its spec (rescheduler-spec 4.2, 4.3).

Every function takes JSON and its field path, and raises MalformedError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from harbourmaster.api.decoding import MalformedError, decode
from harbourmaster.api.selectors import LabelSelectorRequirement, compile_selector
from harbourmaster.policies.model import REQUIRED, Affinity, PodAffinity, PodAffinityTerm
from harbourmaster.policies.model import Toleration as GivenToleration
from harbourmaster.rescheduling.model import (
    NodeRequirement,
    NodeTerm,
    PodTerm,
    SpreadConstraint,
    Toleration,
)
from harbourmaster.rescheduling.node_affinity import is_readable, is_readable_field

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from harbourmaster.api.selectors import LabelSelector, Matcher
    from harbourmaster.policies.model import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm

NOTHING: Final = Raw(b"")
"""A field that is absent."""
_ABSENT: Final = (b"", b"null")
_OPERATORS: Final = frozenset(("In", "NotIn", "Exists", "DoesNotExist"))
_ALWAYS_FINE: Final = frozenset(
    (
        "emptyDir",
        "configMap",
        "secret",
        "projected",
        "downwardAPI",
        "hostPath",
        "image",
        "csi",
        "gitRepo",
        "nfs",
    )
)
"""Volumes that are to be had on every node."""
_JUDGED: Final = _ALWAYS_FINE | {"name", "persistentVolumeClaim", "ephemeral"}


class _Apart(Struct, frozen=True, gc=False, rename="camel"):
    pod_anti_affinity: PodAffinity | None = None


class _Spread(PodAffinityTerm, frozen=True, gc=False, rename="camel"):
    """A spread constraint, which selects pods as a term of affinity does."""

    when_unsatisfiable: str | None = None
    max_skew: int | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None


class Volume(Struct, frozen=True, gc=False, rename="camel"):
    """A volume as far as it matters to a drain, and its claim."""

    name: str | None = None
    empty_dir: dict[str, Any] | None = None
    host_path: dict[str, Any] | None = None
    persistent_volume_claim: dict[str, Any] | None = None
    ephemeral: dict[str, Any] | None = None

    @property
    def has_claim(self) -> bool:
        """Whether it is a PersistentVolumeClaim, or the pod makes one for it."""
        return self.persistent_volume_claim is not None or self.ephemeral is not None

    def claim_of(self, pod: str) -> str:
        """The name of its claim."""
        given = self.persistent_volume_claim
        return f"{pod}-{self.name}" if given is None else str(given.get("claimName"))

    @property
    def is_local(self) -> bool:
        """Whether the node keeps what is in it."""
        kept = self.empty_dir is not None and self.empty_dir.get("medium") != "Memory"
        return kept or self.host_path is not None


_apart: Final = msgspec.json.Decoder(_Apart)
_affinity: Final = msgspec.json.Decoder(Affinity | None)
_tolerations: Final = msgspec.json.Decoder(tuple[GivenToleration, ...] | None)
_spread: Final = msgspec.json.Decoder(tuple[_Spread, ...] | None)
_volumes: Final = msgspec.json.Decoder(tuple[Volume, ...] | None)
_sources: Final = msgspec.json.Decoder(tuple[dict[str, Raw], ...] | None)
_several: Final = msgspec.json.Decoder(tuple[Raw, ...] | None)


def is_absent(given: Raw) -> bool:
    """Whether there is no value."""
    return bytes(given) in _ABSENT


def matcher(selector: LabelSelector | None, at: str) -> Matcher | None:
    """The label selector, compiled; None where it is absent."""
    for index, requirement in enumerate((selector and selector.match_expressions) or ()):
        if requirement.operator not in _OPERATORS:
            path = f"{at}.matchExpressions[{index}].operator"
            raise MalformedError(f"{path}: must be In, NotIn, Exists or DoesNotExist")
    return compile_selector(selector)


def anti_affinity(given: Raw, namespace: str, labels: Mapping[str, str]) -> tuple[PodTerm, ...]:
    """The terms of a pod in that namespace and with these labels that are required."""
    if is_absent(given):
        return ()
    affinity = decode(_apart, given, "spec.affinity").pod_anti_affinity
    return pod_terms(affinity, "podAntiAffinity", namespace, labels)


def pod_terms(
    affinity: PodAffinity | None, field: str, namespace: str, labels: Mapping[str, str]
) -> tuple[PodTerm, ...]:
    """The required terms of one kind of affinity between pods."""
    at = f"spec.affinity.{field}.{REQUIRED}"
    return tuple(
        _pod_term(_merge_label_keys(term, labels), namespace, f"{at}[{index}]")
        for index, term in enumerate((affinity and affinity.required) or ())
    )


def affinity(given: Raw) -> Affinity:
    """All of it."""
    return (None if is_absent(given) else decode(_affinity, given, "spec.affinity")) or Affinity()


def node_terms(selector: NodeSelector | None) -> tuple[NodeTerm, ...] | None:
    """The terms that the scheduler can read and that may match a node."""
    if selector is None:
        return None
    terms = (
        _node_term(node_selector_term) for node_selector_term in selector.node_selector_terms or ()
    )
    return tuple(term for term in terms if term is not None)


def tolerations(given: Raw) -> tuple[Toleration, ...]:
    """All of them, with empty texts for what is absent."""
    if is_absent(given):
        return ()
    return tuple(
        Toleration(
            toleration.key or "",
            toleration.operator or "",
            toleration.value or "",
            toleration.effect or "",
        )
        for toleration in decode(_tolerations, given, "spec.tolerations") or ()
    )


def spread(given: Raw, labels: Mapping[str, str]) -> tuple[SpreadConstraint, ...]:
    """The topology spread constraints of a pod with these labels that are more than a wish."""
    at = "spec.topologySpreadConstraints"
    constraints = None if is_absent(given) else decode(_spread, given, at)
    return tuple(
        _spread_constraint(constraint, labels, f"{at}[{index}]")
        for index, constraint in enumerate(constraints or ())
        if constraint.when_unsatisfiable != "ScheduleAnyway"
    )


def volumes(given: Raw) -> tuple[Volume, ...]:
    """All of them."""
    return () if is_absent(given) else decode(_volumes, given, "spec.volumes") or ()


def unjudged_volumes(given: Raw) -> Iterator[str]:
    """The kinds of volumes that not every node has, except claims."""
    volumes = None if is_absent(given) else decode(_sources, given, "spec.volumes")
    for volume in volumes or ():
        for key, source in volume.items():
            if key not in _JUDGED and not is_absent(source):
                yield key


def has_any(given: Raw, at: str) -> bool:
    """Whether the list has an element."""
    return not is_absent(given) and bool(decode(_several, given, at))


def _merge_label_keys(term: PodAffinityTerm, labels: Mapping[str, str]) -> PodAffinityTerm:
    """The term with what its keys of labels mean; the API server has done it for what it stores."""
    selector = term.label_selector
    if selector is None or not (term.match_label_keys or term.mismatch_label_keys):
        return term
    expressions = list(selector.match_expressions or ())
    known = {expression.key for expression in expressions}
    for operator, keys in (("In", term.match_label_keys), ("NotIn", term.mismatch_label_keys)):
        expressions.extend(
            LabelSelectorRequirement(key, operator, [labels[key]])
            for key in keys or ()
            if key in labels and key not in known
        )
    return replace(term, label_selector=replace(selector, match_expressions=expressions))


def _spread_constraint(given: _Spread, labels: Mapping[str, str], at: str) -> SpreadConstraint:
    return SpreadConstraint(
        topology_key=given.topology_key or "",
        selector=matcher(_merge_label_keys(given, labels).label_selector, f"{at}.labelSelector"),
        max_skew=given.max_skew or 1,
        min_domains=given.min_domains or 1,
        honors_affinity=given.node_affinity_policy != "Ignore",
        honors_taints=given.node_taints_policy == "Honor",
    )


def _pod_term(term: PodAffinityTerm, namespace: str, at: str) -> PodTerm:
    named = frozenset(term.namespaces or ())
    selector = matcher(term.namespace_selector, f"{at}.namespaceSelector")
    if not named and selector is None:
        named = frozenset((namespace,))
    own = matcher(term.label_selector, f"{at}.labelSelector")
    return PodTerm(own, named, selector, term.topology_key or "")


def _node_term(term: NodeSelectorTerm) -> NodeTerm | None:
    expressions = tuple(_requirement(expression) for expression in term.match_expressions or ())
    fields = tuple(_requirement(field) for field in term.match_fields or ())
    if not expressions and not fields:
        return None
    is_understood = all(map(is_readable, expressions)) and all(map(is_readable_field, fields))
    return NodeTerm(expressions, fields) if is_understood else None


def _requirement(given: NodeSelectorRequirement) -> NodeRequirement:
    return NodeRequirement(given.key or "", given.operator or "", tuple(given.values or ()))
