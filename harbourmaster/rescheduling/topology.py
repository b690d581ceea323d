"""Hard topology spread and required pod affinity (rescheduler-spec 4.2, items 7 and 8).

Both depend on pods of other nodes, which are counted once for each plan. On the node in question
the pods are given with every question, since some of them may have to move.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from heapq import nsmallest
from typing import TYPE_CHECKING, Final, NamedTuple

from harbourmaster.api.selectors import EVERYTHING
from harbourmaster.rescheduling import node_affinity, taints
from harbourmaster.rescheduling.anti_affinity import matches
from harbourmaster.rescheduling.requests import without

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from harbourmaster.rescheduling.anti_affinity import Namespaces
    from harbourmaster.rescheduling.model import Node, PendingPod, Pod

ROOM: Final = "room for topology spread"
"""Named as a resource: matching pods use it."""
NOT_NEAR: Final = "pod affinity requires other pods in its domain"


class _PodRole(NamedTuple):
    """The part that a pod plays; ``labels`` keeps the identity of its labels unique."""

    labels: object
    spread: tuple[int, ...]
    """1 for each constraint for which the pod counts, else 0."""
    is_near: bool | None
    """Whether the affinity selects the pod; None if the labels of a namespace are unknown."""


class Topology:
    """The domains of the pods that matter to one pod: ``placed`` on ``nodes``.

    Pods that terminate are near for no longer than it takes to make room, so for pod affinity they
    count only against the rule that the first pod of a series needs no other.
    """

    def __init__(
        self,
        pending: PendingPod,
        nodes: Iterable[Node],
        placed: Iterable[tuple[Pod, Node]],
        namespaces: Namespaces,
    ) -> None:
        self._pending = pending
        self._namespaces = namespaces
        self._roles: dict[tuple[str, int], _PodRole] = {}
        self._counts: list[dict[str, int]] = [{} for _ in pending.spread]
        self._own = Counter[tuple[str, int]]()
        """The matching pods of a node, by its name and the constraint."""
        self._near = defaultdict[tuple[str, str], set[str]](set)
        """The nodes with pods that the affinity requires, by domain."""
        self._existing: set[str] = set()
        self._keys = dict.fromkeys(term.topology_key for term in pending.affinity)
        included = {node.name: dict(self._find_domains(node)) for node in nodes}
        for domains in included.values():
            for index, value in domains.items():
                self._counts[index].setdefault(value, 0)
        for pod, node in placed:
            counted = self.spread(pod)
            for index, value in included.get(node.name, {}).items():
                self._counts[index][value] += counted[index]
                self._own[node.name, index] += counted[index]
            near = [(key, node.labels[key]) for key in self._keys if key in node.labels]
            if near and self._role(pod).is_near is not False:
                self._existing.add(node.name)
            for domain in near if self.is_near(pod) else ():
                self._near[domain].add(node.name)
        self._least = [
            nsmallest(2, ((count, value) for value, count in counts.items()))
            for counts in self._counts
        ]

    def spread(self, pod: Pod) -> tuple[int, ...]:
        """Return for each constraint 1 if the pod counts, else 0."""
        counted = self._role(pod).spread
        return counted if pod.deletion is None else (0,) * len(counted)

    def is_near(self, pod: Pod) -> bool:
        """Whether the pod is one that the affinity requires, as long as it stays."""
        return pod.deletion is None and self._role(pod).is_near is True

    def rooms(self, node: Node) -> tuple[int, ...]:
        """Return for each spread constraint how many matching pods may stay beside the pod.

        Less than none if the node lacks the topology label.
        """
        rooms = []
        for index, constraint in enumerate(self._pending.spread):
            value, counts = node.labels.get(constraint.topology_key), self._counts[index]
            others = (count for count, domain in self._least[index] if domain != value)
            least = 0 if len(counts) < constraint.min_domains else min(others, default=sys.maxsize)
            matches_itself = bool(
                constraint.selector and constraint.selector.matches(self._pending.pod.labels)
            )
            elsewhere = counts.get(value or "", 0) - self._own[node.name, index]
            room = least + constraint.max_skew - matches_itself - elsewhere
            rooms.append(-1 if value is None else room)
        return tuple(rooms)

    def has_affinity(self, node: Node, *, beside: bool) -> bool:
        """Whether pod affinity holds on the node; ``beside``: a matching pod stays on it."""
        if not self._keys.keys() <= node.labels.keys():
            return False
        alone = {node.name}
        if beside or all(self._near[key, node.labels[key]] - alone for key in self._keys):
            return True
        # The first pod of a series needs no other.
        return self._existing <= alone and self._role(self._pending.pod).is_near is True

    def reasons(self, node: Node, present: Collection[Pod]) -> Iterator[str]:
        """Why the pod cannot run beside exactly these pods."""
        rooms = without(self.rooms(node), [self.spread(pod) for pod in present])
        if min(rooms, default=0) < 0:
            yield f"too little {ROOM}"
        if not self.has_affinity(node, beside=any(map(self.is_near, present))):
            yield NOT_NEAR

    def _role(self, pod: Pod) -> _PodRole:
        # Pods that are alike share one object of labels, which is kept here as long as its id.
        key = pod.namespace, id(pod.labels)
        if key not in self._roles:
            pending = self._pending
            selectors = [constraint.selector for constraint in pending.spread]
            is_own = pod.namespace == pending.pod.namespace
            spread = tuple(
                # A selector of everything counts nothing.
                int(
                    is_own
                    and bool(selector and selector != EVERYTHING and selector.matches(pod.labels))
                )
                for selector in selectors
            )
            verdicts = {matches(term, pod, self._namespaces) for term in pending.affinity}
            near = None if None in verdicts else bool(verdicts)
            self._roles[key] = _PodRole(pod.labels, spread, False not in verdicts and near)
        return self._roles[key]

    def _find_domains(self, node: Node) -> Iterator[tuple[int, str]]:
        """The constraints for which the node counts, and its domain."""
        pending, labels = self._pending, node.labels
        if any(constraint.topology_key not in labels for constraint in pending.spread):
            return
        for index, constraint in enumerate(pending.spread):
            if constraint.honors_affinity and not node_affinity.matches(pending, node):
                continue
            if constraint.honors_taints and any(
                taints.find_untolerated(node.taints, pending.tolerations)
            ):
                continue
            yield index, labels[constraint.topology_key]
