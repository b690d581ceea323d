"""Finds requirements of a pod that no node meets, whatever runs there: labels, names, taints.

The matcher is that of ``fit``. Cordons and taints that come and go do not count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from harbourmaster.policies.requirements import EXPRESSIONS, describe
from harbourmaster.rescheduling import taints
from harbourmaster.rescheduling.decoding import decode_node
from harbourmaster.rescheduling.fit import NOT_SELECTED, static_reasons
from harbourmaster.rescheduling.model import Node, NodeRequirement, NodeTerm, Taint, Toleration
from harbourmaster.rescheduling.reservation import is_ours

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

    from msgspec import Raw

    from harbourmaster.rescheduling.model import PendingPod

HOST: Final = "kubernetes.io/hostname"
_OWN: Final = (HOST, "metadata.name")
"""Keys whose values differ between nodes that are alike."""
_PASSING: Final = (*taints.EXCLUDING, "node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
_STARTING: Final = ("startup-taint.", "ignore-taint.", "karpenter.sh/unregistered")
"""Prefixes of taints that autoscalers set on nodes that are not ready yet."""
_SHOWN: Final = 3
_MAX_COMPARISONS: Final = 20_000
"""Maximum comparisons of a pod with nodes, some 50 ms; a pod that needs more is not judged."""


class KnownNode(Node, frozen=True, gc=False, kw_only=True):
    """The name, labels and lasting taints of a node; ``likeness`` is equal for those alike."""

    likeness: Hashable


class PoolTaint(Taint, frozen=True, gc=False, forbid_unknown_fields=True):
    """A taint that all nodes of a pool have."""

    effect: Literal["NoSchedule", "NoExecute", "PreferNoSchedule"] = "NoSchedule"


class Pool(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """Nodes that may be added: their labels, and the taints that each of them has.

    A label may have every value if that is ``*``, or if it is one of ``kubernetes.io`` or of its
    subdomains and is not named.
    """

    labels: dict[str, str] = {}
    taints: tuple[PoolTaint, ...] = ()

    def is_open(self, key: str) -> bool:
        """Whether a label of a node may have every value, or be absent."""
        is_common = f".{key.partition('/')[0]}".endswith(".kubernetes.io")
        return self.labels.get(key, "*" if is_common else "") == "*"


class KnownNodes(Struct, frozen=True, eq=False):
    """All nodes, one of each that differ in more than their names, and the pools."""

    nodes: tuple[KnownNode, ...]
    kinds: tuple[KnownNode, ...]
    pools: tuple[Pool, ...]
    are_tainted: bool
    """Whether each node has a taint that keeps pods away."""

    def reasons(self, pending: PendingPod, term: NodeTerm) -> Iterator[tuple[str, ...]]:
        """Why each kind and pool is excluded for a pod with just that term; empty if it is not."""
        pod = _asking(pending, term)
        for node in self.kinds:
            yield static_reasons(pod, node, reserving=False)
        for pool in self.pools:
            labels = tuple(label for label in pending.node_selector if not pool.is_open(label[0]))
            known = tuple(
                expression for expression in term.expressions if not pool.is_open(expression.key)
            )
            pod = _asking(replace(pending, node_selector=labels), NodeTerm(known, term.fields))
            added = Node(name="", labels=pool.labels, taints=pool.taints)
            yield static_reasons(pod, added, reserving=False)


def decode_known(raw: bytes | Raw) -> KnownNode:
    """Read a node. Raises MalformedError."""
    node = decode_node(raw)
    lasting = tuple(taint for taint in node.taints if not _passes(taint))
    likeness = frozenset(label for label in node.labels.items() if label[0] != HOST), lasting
    return KnownNode(name=node.name, labels=node.labels, taints=lasting, likeness=likeness)


def known_nodes(nodes: Iterable[KnownNode], pools: Iterable[Pool]) -> KnownNodes:
    """All of them at one time."""
    known = tuple(nodes)
    kinds = tuple({node.likeness: node for node in known}.values())
    are_tainted = all(any(taints.find_untolerated(kind.taints, ())) for kind in kinds)
    return KnownNodes(known, kinds, tuple(pools), are_tainted)


def unmet(pending: PendingPod, nodes: KnownNodes) -> tuple[str, list[NodeRequirement]] | None:
    """Return what no node has, as a text and as requirements (none for a toleration).

    None if a node matches, none is known, or there is too much to compare.
    """
    terms = (NodeTerm(),) if pending.node_terms is None else pending.node_terms
    asked = [requirement for term in terms for requirement in _requirements(term)]
    keys = {*dict(pending.node_selector), *(requirement.key for requirement in asked)}
    nodes = nodes if keys.isdisjoint(_OWN) else replace(nodes, kinds=nodes.nodes)
    each_time = 1 + len(pending.node_selector) + len(pending.tolerations)
    count = len(terms) * each_time + sum(1 + len(requirement.values) for requirement in asked)
    if not nodes.kinds or count * (len(nodes.kinds) + len(nodes.pools)) > _MAX_COMPARISONS:
        return None
    kept: dict[str, None] = {}
    for reasons in (reason for term in terms for reason in nodes.reasons(pending, term)):
        if not reasons:
            return None
        if NOT_SELECTED not in reasons:
            kept |= dict.fromkeys(reasons)
    if kept:
        return f"every node that matches is excluded: {', '.join([*kept][:_SHOWN])}", []
    # What follows is about labels, one requirement at a time.
    bare = replace(pending, node_selector=(), tolerations=(Toleration(operator="Exists"),))
    selected = tuple(NodeRequirement(key, "In", (value,)) for key, value in pending.node_selector)
    missing: list[NodeTerm] = []
    for term in terms[:_SHOWN]:
        whole = NodeTerm(selected + term.expressions, term.fields)
        alone = (part for part in parts(whole) if all(nodes.reasons(bare, part)))
        missing.append(next(alone, whole))
    shown = " or ".join(dict.fromkeys(map(_join_first, missing)))
    text = f"no node has {shown or 'what the required node affinity asks for'}"
    return text, [requirement for term in missing for requirement in _requirements(term)[:_SHOWN]]


def _asking(pending: PendingPod, term: NodeTerm) -> PendingPod:
    return replace(pending, node_terms=(term,) if _requirements(term) else None)


def _requirements(term: NodeTerm) -> tuple[NodeRequirement, ...]:
    return term.expressions + term.fields


def parts(term: NodeTerm) -> Iterator[NodeTerm]:
    """Each of its requirements, as a term of its own."""
    yield from (NodeTerm((expression,)) for expression in term.expressions)
    yield from (NodeTerm(fields=(field,)) for field in term.fields)


def _passes(taint: Taint) -> bool:
    is_passing = taint.key.startswith((*_PASSING, *_STARTING))
    return is_passing or taint.key.endswith("/agent-not-ready") or is_ours(taint.value)


def _join_first(term: NodeTerm) -> str:
    return " and ".join(
        f"{requirement.key}={requirement.values[0]}"
        if requirement.operator == "In" and len(requirement.values) == 1
        else describe(
            (EXPRESSIONS, requirement.key), [(requirement.operator, frozenset(requirement.values))]
        )
        for requirement in _requirements(term)[:_SHOWN]
    )
