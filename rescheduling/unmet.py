"""What no node offers that a pod requires, whatever runs on the nodes: labels, names, tolerations.

The matcher is that of ``fit``. Cordons and taints that come and go do not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from harbourmaster.api.decoding import decode
from harbourmaster.policies.requirements import EXPRESSIONS, FIELDS, describe
from harbourmaster.rescheduling import node_affinity, taints
from harbourmaster.rescheduling.fit import static_reasons
from harbourmaster.rescheduling.interning import shared_labels
from harbourmaster.rescheduling.model import (
    Node,
    NodeRequirement,
    NodeTerm,
    PendingPod,
    Pod,
    Taint,
    Toleration,
)
from harbourmaster.rescheduling.projections import NodeSpec, ObjectMeta
from harbourmaster.rescheduling.reservation import is_ours

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

HOST: Final = "kubernetes.io/hostname"
ANY: Final = "*"
"""A pool's label with this value may have every value."""
_PASSING: Final = taints.EXCLUDING | {
    "node.cloudprovider.kubernetes.io/uninitialized",
    "karpenter.sh/unregistered",
}
_PASSING_PREFIXES: Final = (
    "node.kubernetes.io/",
    "startup-taint.cluster-autoscaler.kubernetes.io/",
    "ignore-taint.cluster-autoscaler.kubernetes.io/",
)
_PASSING_SUFFIX: Final = "/agent-not-ready"
_SHOWN: Final = 3
_ANYBODY: Final = Pod(uid="", namespace="", name="")
_EVERYTHING: Final = (Toleration(operator="Exists"),)


class _GivenNode(Struct, frozen=True, gc=False):
    metadata: ObjectMeta | None = None
    spec: NodeSpec | None = None


_nodes: Final = msgspec.json.Decoder(_GivenNode)


class KnownNode(Struct, frozen=True, gc=False):
    """What of a node decides which pods may go there.

    ``labels`` are without the host name, so that many nodes share them; ``taints`` stay for long.
    """

    name: str
    host: str | None = None
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()

    @property
    def kind(self) -> Hashable:
        """Equal for nodes that differ in their names only."""
        return frozenset(self.labels.items()), self.taints

    @property
    def node(self) -> Node:
        """The node as the matcher takes it."""
        own = {} if self.host is None else {HOST: self.host}
        return Node(name=self.name, labels={**self.labels, **own}, taints=self.taints)


class PoolTaint(Taint, frozen=True, gc=False, forbid_unknown_fields=True):
    """A taint that all nodes of a pool have."""

    effect: Literal["NoSchedule", "NoExecute", "PreferNoSchedule"] = "NoSchedule"


class Pool(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """Nodes that may be added: their labels, and the taints that each of them has.

    Labels of ``kubernetes.io`` and its subdomains that it does not name may have every value.
    """

    labels: dict[str, str] = {}
    taints: tuple[PoolTaint, ...] = ()

    def is_open(self, key: str) -> bool:
        """Whether a label of a node may have every value, or be absent."""
        domain = key.partition("/")[0]
        is_common = domain == "kubernetes.io" or domain.endswith(".kubernetes.io")
        return self.labels.get(key, ANY if is_common else "") == ANY


class KnownNodes(Struct, frozen=True, eq=False):
    """All nodes by name, one of each kind, and the pools; ``version`` differs if they do."""

    version: int
    by_name: Mapping[str, KnownNode]
    kinds: tuple[Node, ...]
    pools: tuple[Pool, ...] = ()

    def candidates(self, pending: PendingPod) -> Iterator[tuple[PendingPod, Node]]:
        """Nodes of which one is a match if any is, each with what a match must meet."""
        for node in self._nodes(pending):
            yield pending, node
        for pool in self.pools:
            yield _without(pending, pool), Node(name="", labels=pool.labels, taints=pool.taints)

    def _nodes(self, pending: PendingPod) -> Iterable[Node]:
        terms = pending.node_terms or ()
        if any(term.fields for term in terms):
            named = [[*_names(term)] for term in terms]
            if not all(named):
                return (each.node for each in self.by_name.values())
            known = map(self.by_name.get, {name for names in named for name in names})
            return (each.node for each in known if each is not None)
        keys = {key for key, _ in pending.node_selector}
        if HOST in keys.union(each.key for term in terms for each in term.expressions):
            return (each.node for each in self.by_name.values())
        return self.kinds

    def knows_names(self, pending: PendingPod) -> bool:
        """Whether all nodes are known that the pod names."""
        names = (name for term in pending.node_terms or () for name in _names(term))
        return all(name in self.by_name for name in names)

    def match(self, pending: PendingPod) -> bool:
        """Whether a node matches all that the pod requires."""
        return any(
            not static_reasons(each, node, reserving=False)
            for each, node in self.candidates(pending)
        )


class Unmet(Struct, frozen=True, gc=False):
    """What no node meets: requirements of which each alone, or all at once, match none; or taints.

    ``taints`` are those of all nodes that match everything else.
    """

    text: str
    requirements: tuple[NodeRequirement, ...] = ()
    taints: bool = False


def decode_known(raw: bytes | msgspec.Raw) -> KnownNode:
    """Read a node. Raises MalformedError."""
    given = decode(_nodes, raw, "")
    metadata, spec = given.metadata or ObjectMeta(), given.spec or NodeSpec()
    labels = dict(metadata.labels or {})
    host = labels.pop(HOST, None)
    found = (
        Taint(each.key or "", each.value or "", each.effect or "") for each in spec.taints or ()
    )
    lasting = tuple(each for each in found if not _passes(each))
    return KnownNode(metadata.name or "", host, shared_labels(labels), lasting)


def known_nodes(version: int, nodes: Iterable[KnownNode], pools: Iterable[Pool]) -> KnownNodes:
    """All of them at one time."""
    by_name = {each.name: each for each in nodes}
    kinds = {each.kind: each for each in by_name.values()}
    return KnownNodes(version, by_name, tuple(each.node for each in kinds.values()), tuple(pools))


def unmet(pending: PendingPod, nodes: KnownNodes) -> Unmet | None:
    """What no node meets; None if one matches, or none is known."""
    # Where the API server allows the operators, they may tolerate whatever has the key.
    pending = replace(pending, tolerations=tuple(map(_lenient, pending.tolerations)))
    if not nodes.by_name or nodes.match(pending):
        return None
    selected = tuple(NodeRequirement(key, "In", (value,)) for key, value in pending.node_selector)
    found: list[NodeTerm] = []
    for term in (NodeTerm(),) if pending.node_terms is None else pending.node_terms:
        whole = NodeTerm(selected + term.expressions, term.fields)
        alone = next((each for each in _parts(whole) if not nodes.match(_asking(each))), None)
        if alone is None and nodes.match(_asking(whole)):
            return _untolerated(pending, nodes)
        found.append(alone or whole)
    if not found:
        return Unmet("no node matches the required node affinity: none of its terms can be met")
    shown = " or ".join(dict.fromkeys(map(_shown, found[:_SHOWN])))
    asked = tuple(each for term in found for each in (*term.expressions, *term.fields))
    verb = "has" if all(map(_is_plain, asked)) else "matches"
    return Unmet(f"no node {verb} {shown}", asked)


def _untolerated(pending: PendingPod, nodes: KnownNodes) -> Unmet:
    found = {
        str(taint): None
        for each, node in nodes.candidates(pending)
        if node_affinity.matches(each, node)
        for taint in taints.untolerated(node.taints, each.tolerations)
    }
    is_free = not pending.node_selector and pending.node_terms is None
    which = "every node" if is_free else "every node that matches"
    shown = ", ".join([*found][:_SHOWN])
    return Unmet(f"{which} has a taint that the pod does not tolerate: {shown}", taints=True)


def _without(pending: PendingPod, pool: Pool) -> PendingPod:
    """What a pod requires of a node of the pool, of those labels that are known."""
    terms = pending.node_terms
    if terms is not None:
        left = tuple(
            NodeTerm(
                tuple(one for one in each.expressions if not pool.is_open(one.key)), each.fields
            )
            for each in terms
        )
        terms = left if all(each.expressions or each.fields for each in left) else None
    selector = tuple(each for each in pending.node_selector if not pool.is_open(each[0]))
    return replace(pending, node_selector=selector, node_terms=terms)


def _asking(term: NodeTerm) -> PendingPod:
    """A pod that requires a term and nothing else."""
    terms = (term,) if term.expressions or term.fields else None
    return PendingPod(pod=_ANYBODY, node_terms=terms, tolerations=_EVERYTHING)


def _parts(term: NodeTerm) -> Iterator[NodeTerm]:
    yield from (NodeTerm((each,)) for each in term.expressions)
    yield from (NodeTerm(fields=(each,)) for each in term.fields)


def _names(term: NodeTerm) -> Iterator[str]:
    yield from (each.values[0] for each in term.fields if each.operator == "In")


def _passes(taint: Taint) -> bool:
    return (
        taint.key in _PASSING
        or taint.key.startswith(_PASSING_PREFIXES)
        or taint.key.endswith(_PASSING_SUFFIX)
        or is_ours(taint.value)
    )


def _lenient(toleration: Toleration) -> Toleration:
    is_comparing = toleration.operator in {"Gt", "Lt"}
    return replace(toleration, operator="Exists") if is_comparing else toleration


def _is_plain(requirement: NodeRequirement) -> bool:
    return requirement.operator == "In" and len(requirement.values) == 1


def _shown(term: NodeTerm) -> str:
    parts = [(EXPRESSIONS, each) for each in term.expressions]
    parts += [(FIELDS, each) for each in term.fields]
    return " and ".join(
        f"{each.key}={each.values[0]}"
        if _is_plain(each)
        else describe((scope, each.key), [(each.operator, frozenset(each.values))])
        for scope, each in parts[:_SHOWN]
    )
