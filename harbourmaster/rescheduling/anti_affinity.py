"""Required anti-affinity between pods, in both directions (rescheduler-spec 4.2, item 6).

A term speaks of the topology domain that a node belongs to by the label of the topology key; a node
without that label belongs to none. Terminating pods count, finished ones do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

from harbourmaster.api.selectors import EVERYTHING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from harbourmaster.api.selectors import Matcher
    from harbourmaster.rescheduling.model import Node, Pod, PodTerm

Namespaces: TypeAlias = Mapping[str, Mapping[str, str]]
"""The labels of the namespaces that are known, by name."""
_Domain: TypeAlias = tuple[str, str]
"""A topology key and its value."""

NAME_LABEL: Final = "kubernetes.io/metadata.name"


class Rivals(Struct, frozen=True):
    """The pods that a pod must not be near to: names of their nodes by domain.

    ``doubtful`` has those that cannot be judged, because their namespaces are unknown.
    """

    certain: dict[_Domain, set[str]] = {}
    doubtful: dict[_Domain, set[str]] = {}

    def are_elsewhere(self, node: Node) -> bool | None:
        """Whether one is in a domain of the node but on another node: no room helps then."""
        if _has_other(self.certain, node):
            return True
        return None if _has_other(self.doubtful, node) else False


def rivals(pod: Pod, placed: Iterable[tuple[Pod, Node]], namespaces: Namespaces) -> Rivals:
    """Look through pods and their nodes.

    Where ``pod`` has no terms, only the pods that have some need to be among them.
    """
    result = Rivals({}, {})
    for neighbour, node in placed:
        if neighbour.is_finished or pod.is_same(neighbour):
            continue
        for term, verdict in _matching(pod, neighbour, namespaces):
            value = node.labels.get(term.topology_key)
            if value is not None:
                domains = result.certain if verdict else result.doubtful
                domains.setdefault((term.topology_key, value), set()).add(node.name)
    return result


def keeps_apart(pod: Pod, neighbour: Pod, node: Node, namespaces: Namespaces) -> bool | None:
    """Whether both can't be on one node; None where a namespace that matters is not known."""
    is_doubtful = False
    for term, verdict in _matching(pod, neighbour, namespaces):
        if term.topology_key in node.labels:
            if verdict:
                return True
            is_doubtful = True
    return None if is_doubtful else False


def may_select(pod: Pod, neighbour: Pod, namespaces: Namespaces) -> bool:
    """Whether a term of ``pod`` selects the other one, or may do so."""
    return any(matches(term, neighbour, namespaces) is not False for term in pod.anti_affinity)


def _matching(
    pod: Pod, neighbour: Pod, namespaces: Namespaces
) -> Iterator[tuple[PodTerm, bool | None]]:
    """The terms of one that match the other, or may do so (None)."""
    for term in pod.anti_affinity:
        if (verdict := matches(term, neighbour, namespaces)) is not False:
            yield term, verdict
    for term in neighbour.anti_affinity:
        if (verdict := matches(term, pod, namespaces)) is not False:
            yield term, verdict


def matches(term: PodTerm, pod: Pod, namespaces: Namespaces) -> bool | None:
    """Whether the term selects the pod; None where a namespace that matters is not known."""
    is_named, selector = pod.namespace in term.namespaces, term.namespace_selector
    if not is_named and selector is None:
        return False
    if term.selector is None or not term.selector.matches(pod.labels):
        return False
    if is_named or selector is None or selector == EVERYTHING:
        return True
    labels = namespaces.get(pod.namespace)
    if labels is None and _asks_only_for_names(selector):
        labels = {NAME_LABEL: pod.namespace}
    return None if labels is None else selector.matches(labels)


def _asks_only_for_names(selector: Matcher) -> bool:
    """Whether it looks at nothing but the label that the API server gives every namespace."""
    keys = {key for key, _ in (*selector.one_of, *selector.none_of)}
    return keys.union(selector.present, selector.absent) <= {NAME_LABEL}


def _has_other(domains: dict[_Domain, set[str]], node: Node) -> bool:
    return any(item in domains and not domains[item] <= {node.name} for item in node.labels.items())
