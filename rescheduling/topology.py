"""Hard topology spread and required pod affinity (rescheduler-spec 4.2, items 7 and 8).

Both depend on pods of other nodes, which are counted once for each plan. On the node in question
the pods are given with every question, since some of them may have to move.
"""

from __future__ import annotations

import sys
from heapq import nsmallest
from typing import TYPE_CHECKING, Final

from harbourmaster.api.selectors import EVERYTHING
from harbourmaster.rescheduling import node_affinity, taints
from harbourmaster.rescheduling.anti_affinity import matches

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from harbourmaster.rescheduling.anti_affinity import Namespaces
    from harbourmaster.rescheduling.model import Node, PendingPod, Pod, SpreadConstraint

NO_DOMAIN: Final = "the node lacks a topology label of a spread constraint"
SKEWED: Final = "topology spread: too many matching pods in the domain"
NOT_NEAR: Final = "pod affinity: no matching pod in the domain"
UNLIMITED: Final = sys.maxsize


class Topology:
    """Where the pods are that matter to one pod: ``placed``, and on which of all ``nodes``.

    Pods that terminate are near for no longer than it takes to make room: with ``lasting`` they
    count only against the rule that the first pod of a series needs no other.
    """

    def __init__(
        self,
        pending: PendingPod,
        nodes: Iterable[Node],
        placed: Iterable[tuple[Pod, Node]],
        namespaces: Namespaces,
        *,
        lasting: bool = False,
    ) -> None:
        self._pending = pending
        self._namespaces = namespaces
        self._lasting = lasting
        self._judged: dict[tuple[str, int], tuple[object, tuple[int, ...], bool | None]] = {}
        self._spread = pending.spread
        self._self = [
            int(each.selector is not None and each.selector.matches(pending.pod.labels))
            for each in self._spread
        ]
        self._counts: list[dict[str, int]] = [{} for _ in self._spread]
        self._on_node: dict[str, list[int]] = {}
        """The matching pods of a node by constraint; only of nodes that count for one."""
        self._included: dict[str, list[bool]] = {}
        self._near: dict[tuple[str, str], set[str]] = {}
        """The nodes with matching pods, by domain."""
        self._existing: set[str] = set()
        self._is_doubtful = False
        self._keys = dict.fromkeys(term.topology_key for term in pending.affinity)
        if self._spread:
            for node in nodes:
                self._add_node(node)
        for pod, node in placed:
            self._add_pod(pod, node)
        self._least = [
            nsmallest(2, ((count, value) for value, count in each.items())) for each in self._counts
        ]

    def spread(self, pod: Pod) -> tuple[int, ...]:
        """By constraint, 1 if the pod counts, else 0."""
        found = self._matching(pod)[1]
        return found if pod.deletion is None else (0,) * len(found)

    def is_near(self, pod: Pod) -> bool:
        """Whether the pod is one that the affinity requires, as long as it stays."""
        is_lasting = pod.deletion is None or not self._lasting
        return is_lasting and self._matching(pod)[2] is True

    def rooms(self, node: Node) -> tuple[int, ...] | None:
        """By spread constraint, the most matching pods that may stay on the node beside the pod.

        None if the node lacks a topology label.
        """
        found = []
        own = self._on_node.get(node.name) or [0] * len(self._spread)
        for index, constraint in enumerate(self._spread):
            value = node.labels.get(constraint.topology_key)
            if value is None:
                return None
            counts = self._counts[index]
            others = (count for count, other in self._least[index] if other != value)
            least = min(others, default=UNLIMITED)
            if len(counts) < constraint.min_domains:
                least = 0
            elsewhere = counts.get(value, 0) - own[index]
            found.append(least + constraint.max_skew - self._self[index] - elsewhere)
        return tuple(found)

    def has_affinity(self, node: Node, *, beside: bool) -> bool | None:
        """Whether pod affinity holds on the node; ``beside``: a matching pod stays on it.

        None if the labels of a namespace are unknown.
        """
        domains = [(key, node.labels[key]) for key in self._keys if key in node.labels]
        if len(domains) < len(self._keys):
            return False
        alone = {node.name}
        if beside or all(self._near.get(each, alone) - alone for each in domains):
            return True
        if self._is_doubtful:
            return None
        # The first pod of a series needs no other.
        return self._existing <= alone and self._matching(self._pending.pod)[2] is True

    def reasons(self, node: Node, present: Iterable[Pod]) -> tuple[tuple[str, ...], bool]:
        """Why the pod cannot run beside exactly these pods; and whether that is in doubt."""
        found = list(present)
        rooms = self.rooms(node)
        reasons = [NO_DOMAIN] if rooms is None else []
        counted = [self.spread(pod) for pod in found]
        for index, room in enumerate(rooms or ()):
            if sum(each[index] for each in counted) > room:
                reasons.append(SKEWED)
        holds = self.has_affinity(node, beside=any(map(self.is_near, found)))
        if holds is False:
            reasons.append(NOT_NEAR)
        return tuple(reasons), holds is None

    def _matching(self, pod: Pod) -> tuple[object, tuple[int, ...], bool | None]:
        # Pods that are alike share one object of labels, which is kept here as long as its id.
        key = pod.namespace, id(pod.labels)
        found = self._judged.get(key)
        if found is None:
            is_own = pod.namespace == self._pending.pod.namespace
            spread = tuple(int(is_own and _counts(each, pod.labels)) for each in self._spread)
            verdicts = [matches(term, pod, self._namespaces) for term in self._pending.affinity]
            near = False if False in verdicts or not verdicts else None not in verdicts or None
            found = self._judged[key] = (pod.labels, spread, near)
        return found

    def _add_node(self, node: Node) -> None:
        if any(each.topology_key not in node.labels for each in self._spread):
            return
        is_selected = node_affinity.matches(self._pending, node)
        is_tolerated = not any(taints.untolerated(node.taints, self._pending.tolerations))
        included = self._included[node.name] = [
            (is_selected or not each.honors_affinity) and (is_tolerated or not each.honors_taints)
            for each in self._spread
        ]
        for index, each in enumerate(self._spread):
            if included[index]:
                self._counts[index].setdefault(node.labels[each.topology_key], 0)

    def _add_pod(self, pod: Pod, node: Node) -> None:
        included = self._included.get(node.name)
        if included and any(counted := self.spread(pod)):
            own = self._on_node.setdefault(node.name, [0] * len(counted))
            for index, each in enumerate(self._spread):
                if counted[index] and included[index]:
                    self._counts[index][node.labels[each.topology_key]] += 1
                    own[index] += 1
        is_near = self._matching(pod)[2]
        domains = [(key, node.labels[key]) for key in self._keys if key in node.labels]
        if is_near is None:
            self._is_doubtful = True
        elif is_near and domains:
            self._existing.add(node.name)
            for domain in domains if self.is_near(pod) else ():
                self._near.setdefault(domain, set()).add(node.name)


def _counts(constraint: SpreadConstraint, labels: Mapping[str, str]) -> bool:
    """Whether a pod with these labels counts: for a selector of everything, none does."""
    selector = constraint.selector
    return selector is not None and selector != EVERYTHING and selector.matches(labels)
