"""The cluster as the watches report it: nodes, pods, disruption budgets and namespaces."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec.structs import replace

from harbourmaster.rescheduling.model import PendingPod

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from harbourmaster.rescheduling.model import Budget, Node, Pod


_ANY_NAMESPACE: Final = ""
_Key = TypeVar("_Key")


class Cluster:
    """The nodes, pods, budgets and namespaces that plans are made from.

    Changes may come in any order: a pod before its node, the removal of an unknown object.
    ``stamp`` grows with every change of a node or a bound pod; ``stamps`` has the latest stamp by
    node name, for nodes that exist and for those that only have pods.
    """

    def __init__(self) -> None:
        self.pending: dict[str, PendingPod] = {}
        self.budgets: dict[str, Budget] = {}
        self.namespaces: dict[str, Mapping[str, str]] = {}
        self.stamps: dict[str, int] = {}
        self.stamp = 0
        self._ticks = count(1)
        self._nodes: dict[str, Node] = {}
        self._bound: dict[str, Pod] = {}
        self._on_node: dict[str, dict[str, Pod]] = {}
        self._exclusive: dict[str | int, dict[str, Pod]] = {}

    def node(self, name: str) -> Node | None:
        """The node of that name, if it exists."""
        return self._nodes.get(name)

    def nodes(self) -> list[Node]:
        """All nodes."""
        return list(self._nodes.values())

    def pod(self, uid: str) -> Pod | None:
        """The pod with that UID, if it is bound and not finished."""
        return self._bound.get(uid)

    def pods(self) -> Collection[Pod]:
        """All bound pods that are not finished."""
        return self._bound.values()

    def pods_on(self, name: str) -> list[Pod]:
        """The pods on the node that are not finished."""
        return list(self._on_node.get(name, {}).values())

    def in_the_way_of(self, pod: Pod) -> dict[str, Pod]:
        """Return by UID the bound pods whose host ports or anti-affinity may keep ``pod`` away."""
        suspects: dict[str, Pod] = {}
        keys: list[str | int] = [port.number for port in pod.ports]
        for key in (*keys, pod.namespace, _ANY_NAMESPACE):
            suspects |= self._exclusive.get(key, {})
        return suspects

    def put_node(self, node: Node) -> None:
        """Add or replace a node."""
        before = self._nodes.get(node.name)
        self._nodes[node.name] = node
        if before is None or not _plans_alike(before, node):
            self._touch(node.name)

    def remove_node(self, name: str) -> None:
        """Remove a node; its pods stay until they are removed, too."""
        if self._nodes.pop(name, None) is not None:
            self._touch(name)

    def put_pod(self, given: Pod | PendingPod) -> None:
        """Add or replace a pod; one that is finished is removed."""
        pod = given.pod if isinstance(given, PendingPod) else given
        if not pod.node and not pod.is_finished and isinstance(given, PendingPod):
            self.remove_pod(pod.uid)
            self.pending[pod.uid] = given
        elif self._bound.get(pod.uid) != pod:
            self.remove_pod(pod.uid)
            if pod.node and not pod.is_finished:
                self._bind(pod)

    def remove_pod(self, uid: str) -> None:
        """Remove a pod."""
        self.pending.pop(uid, None)
        pod = self._bound.pop(uid, None)
        if pod is None:
            return
        _take_out(self._on_node, pod.node, uid)
        for key in _claims(pod):
            _take_out(self._exclusive, key, uid)
        self._touch(pod.node)

    def put_budget(self, budget: Budget) -> None:
        """Add or replace a disruption budget."""
        self.budgets[budget.key] = budget

    def remove_budget(self, key: str) -> None:
        """Remove a disruption budget."""
        self.budgets.pop(key, None)

    def put_namespace(self, name: str, labels: Mapping[str, str]) -> None:
        """Add or replace a namespace."""
        self.namespaces[name] = labels

    def remove_namespace(self, name: str) -> None:
        """Remove a namespace."""
        self.namespaces.pop(name, None)

    def _bind(self, pod: Pod) -> None:
        self._bound[pod.uid] = pod
        self._on_node.setdefault(pod.node, {})[pod.uid] = pod
        for key in _claims(pod):
            self._exclusive.setdefault(key, {})[pod.uid] = pod
        self._touch(pod.node)

    def _touch(self, name: str) -> None:
        self.stamp = self.stamps[name] = next(self._ticks)
        if name not in self._nodes and name not in self._on_node:
            del self.stamps[name]


def _claims(pod: Pod) -> set[str | int]:
    """Return the host ports and the namespaces from which a pod may keep other pods away."""
    claims: set[str | int] = {port.number for port in pod.ports}
    for term in pod.anti_affinity:
        claims |= term.namespaces
        if term.namespace_selector is not None:
            claims.add(_ANY_NAMESPACE)
    return claims


def _take_out(pods: dict[_Key, dict[str, Pod]], key: _Key, uid: str) -> None:
    del pods[key][uid]
    if not pods[key]:
        del pods[key]


def _plans_alike(before: Node, after: Node) -> bool:
    """Whether nodes differ at most in fields that no plan reads."""
    return before == replace(
        after, resource_version=before.resource_version, reservations=before.reservations
    )
