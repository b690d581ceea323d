"""Which victims fit on another node of the current cluster (rescheduler-spec 5.7).

An estimate, as bound pods are stored without their tolerations and node selectors: tainted nodes
never count, nodes that a selector excludes do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harbourmaster.rescheduling import conflicts
from harbourmaster.rescheduling.fit import static_reasons
from harbourmaster.rescheduling.model import PendingPod, Pod
from harbourmaster.rescheduling.resources import Scale, is_enough, minus

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from harbourmaster.rescheduling.cluster import Cluster
    from harbourmaster.rescheduling.model import Node
    from harbourmaster.rescheduling.resources import Amounts

_ANYBODY: Final = PendingPod(pod=Pod(uid="", namespace="", name=""))
_SLICE: Final = 200
"""Nodes that are measured between two turns of the event loop."""


class RelocationNodes:
    """The nodes with room for ordinary pods, in the resources that ``victims`` request."""

    def __init__(
        self, cluster: Cluster, victims: Iterable[Pod], is_gone: Callable[[Pod], bool]
    ) -> None:
        self._cluster = cluster
        self._scale = Scale(sorted({name for pod in victims for name, _ in pod.requests}))
        self._is_gone = is_gone
        self._rooms: list[tuple[Node, Amounts]] = []

    def survey(self) -> Generator[None, None, None]:
        """Measure the rooms, yielding between slices."""
        for index, node in enumerate(self._cluster.nodes(), start=1):
            if not static_reasons(_ANYBODY, node, reserving=False):
                present = [pod.requests for pod in self._cluster.pods_on(node.name)]
                self._rooms.append((node, self._scale.left(node, present)))
            if not index % _SLICE:
                yield

    def is_stranded(self, pod: Pod) -> bool:
        """Whether the pod fits on no node but its own."""
        amounts = self._scale.of(pod.requests)
        fitting = [
            node
            for node, room in self._rooms
            if node.name != pod.node and is_enough(minus(room, amounts))
        ]
        if not fitting:
            return True
        against = conflicts.find(self._cluster, pod, self._is_gone)
        return all(against.closing(node) or against.on(node) for node in fitting)
