"""Which victims find a place elsewhere as the cluster is now (rescheduler-spec 5.7).

Pods on nodes are kept without their tolerations and selectors, so this is an estimate: a tainted
node never counts as a place, one that a selector rules out does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harbourmaster.rescheduling import conflicts
from harbourmaster.rescheduling.fit import static_reasons
from harbourmaster.rescheduling.model import PendingPod, Pod
from harbourmaster.rescheduling.stands import usual

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from harbourmaster.rescheduling.accounting import Cluster
    from harbourmaster.rescheduling.model import Node, Requests
    from harbourmaster.rescheduling.vectors import Scale

_ANYBODY: Final = PendingPod(pod=Pod(uid="", namespace="", name=""))
_SLICE: Final = 200
_ENOUGH: Final = 2
"""Places, one of which may be the pod's own node."""


class Places:
    """The nodes with room for an ordinary pod."""

    def __init__(self, cluster: Cluster, scale: Scale, is_gone: Callable[[Pod], bool]) -> None:
        self._cluster = cluster
        self._scale = scale
        self._is_gone = is_gone
        self._rooms: list[tuple[Node, int]] = []
        self._found: dict[Requests, list[str]] = {}

    def survey(self) -> Generator[None, None, None]:
        """Measure the rooms, yielding between slices."""
        scale = self._scale
        for index, space in enumerate(list(self._cluster.spaces.values()), start=1):
            node = space.node
            if node is not None and not static_reasons(_ANYBODY, node, reserving=False):
                stand = usual(space, node, scale)
                room = stand.capacity - stand.fixed - stand.movable + scale.guard
                self._rooms.append((node, room))
            if not index % _SLICE:
                yield

    def is_stranded(self, pod: Pod) -> bool:
        """Whether the pod fits on no node but its own."""
        against = conflicts.find(self._cluster, pod, self._is_gone)
        if against:
            fitting = self._fitting(pod.requests)
            return not any(
                node.name != pod.node and not against.closing(node) and not against.on(node)
                for node in fitting
            )
        names = self._found.get(pod.requests)
        if names is None:
            names = []
            for node in self._fitting(pod.requests):
                names.append(node.name)
                if len(names) == _ENOUGH:
                    break
            self._found[pod.requests] = names
        return not any(name != pod.node for name in names)

    def _fitting(self, requests: Requests) -> Iterable[Node]:
        weight, guard = self._scale.weigh(requests).packed, self._scale.guard
        return (node for node, room in self._rooms if (room - weight) & guard == guard)


def resources_of(pods: Iterable[Pod]) -> tuple[str, ...]:
    """What they ask for, all together."""
    return tuple(sorted({name for pod in pods for name, _ in pod.requests}))
