"""The nodes with room for pods that are evicted (rescheduler-spec 5.7, 5.9)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harbourmaster.rescheduling.fit import find_conflicts, static_reasons
from harbourmaster.rescheduling.model import PendingPod, Pod
from harbourmaster.rescheduling.requests import Scale, is_enough, minus

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from harbourmaster.rescheduling.cluster import Cluster
    from harbourmaster.rescheduling.model import Node
    from harbourmaster.rescheduling.requests import Amounts

_ANYBODY: Final = PendingPod(pod=Pod(uid="", namespace="", name=""))
_SLICE: Final = 200
"""Nodes that are measured between two turns of the event loop."""


class RelocationNodes:
    """The nodes with room for ordinary pods, in the resources that ``victims`` request.

    An estimate, as bound pods are stored without their tolerations and node selectors: tainted
    nodes and the ``reserved`` ones never count, nodes that a selector excludes do.
    """

    def __init__(
        self,
        cluster: Cluster,
        victims: Iterable[Pod],
        is_gone: Callable[[Pod], bool],
        reserved: Collection[str] = (),
    ) -> None:
        self._cluster = cluster
        self._scale = Scale(sorted({name for pod in victims for name, _ in pod.requests}))
        self._is_gone = is_gone
        self._reserved = reserved
        self._rooms: list[tuple[Node, Amounts]] = []

    def survey(self) -> Iterator[None]:
        """Measure the rooms, yielding between slices."""
        for index, node in enumerate(self._cluster.nodes(), start=1):
            if node.name not in self._reserved and not static_reasons(
                _ANYBODY, node, reserving=False
            ):
                present = [pod.requests for pod in self._cluster.pods_on(node.name)]
                room = self._scale.free_amounts(node, present)
                if is_enough(room):
                    self._rooms.append((node, room))
            if not index % _SLICE:
                yield

    def place(self, pods: Iterable[Pod]) -> frozenset[str]:
        """The UIDs of the pods that fit together on other nodes, the most important ones first."""
        placed: set[str] = set()
        left: dict[str, Amounts] = {}
        for pod in sorted(pods, key=lambda pod: -pod.priority):
            amounts = self._scale.of(pod.requests)
            fitting = [
                (node, rest)
                for node, room in self._rooms
                if node.name != pod.node
                and is_enough(rest := minus(left.get(node.name, room), amounts))
            ]
            against = find_conflicts(self._cluster, pod, self._is_gone) if fitting else None
            for node, rest in fitting:
                if against and not (against.closing(node) or against.on(node)):
                    placed.add(pod.uid)
                    left[node.name] = rest
                    break
        return frozenset(placed)
