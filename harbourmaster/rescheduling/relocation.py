"""The nodes with room for pods that are evicted (rescheduler-spec 5.7, 5.9)."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from harbourmaster.rescheduling.fit import find_conflicts, static_reasons
from harbourmaster.rescheduling.model import PendingPod, Pod
from harbourmaster.rescheduling.requests import Scale, is_enough, minus

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from harbourmaster.rescheduling.cluster import Cluster
    from harbourmaster.rescheduling.fit import Conflicts
    from harbourmaster.rescheduling.model import Node
    from harbourmaster.rescheduling.requests import Amounts

_ANYBODY: Final = PendingPod(pod=Pod(uid="", namespace="", name=""))
_SLICE: Final = 200
"""Nodes that are measured between two turns of the event loop."""


class RelocationNodes:
    """The nodes with room for ordinary pods, in the resources that ``victims`` request.

    Rather too few, as bound pods are stored without their tolerations and node selectors: tainted
    nodes and the ``reserved`` ones never count.
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
        self._largest: Amounts = ()
        """The largest amount of each resource that any node has left."""
        self._first: dict[Amounts, int] = {}
        """The index of the first node with room for these amounts."""
        self._conflicts: dict[object, tuple[Conflicts, dict[str, str]]] = {}
        """Conflicts by what is equal of pods; the labels are kept so that their identity stays."""

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
        self._largest = tuple(map(max, zip(*(room for _, room in self._rooms), strict=True)))

    def place(self, pods: Iterable[Pod]) -> frozenset[str]:
        """The UIDs of the pods that fit together on other nodes, the most important ones first.

        A pod with a claim, or with constraints of its own, fits nowhere.
        """
        placed: set[str] = set()
        left: dict[str, Amounts] = {}
        for pod in sorted(pods, key=lambda pod: -pod.priority):
            if pod.is_restricted or pod.has_claim or pod.anti_affinity:
                continue
            amounts = self._scale.of(pod.requests)
            for node, room in islice(self._rooms, self._find_first(amounts), None):
                rest = minus(left.get(node.name, room), amounts)
                if node.name == pod.node or not is_enough(rest):
                    continue
                against = self._find_conflicts(pod)
                if not (against.closing(node) or against.on(node)):
                    placed.add(pod.uid)
                    left[node.name] = rest
                    break
        return frozenset(placed)

    def _find_conflicts(self, pod: Pod) -> Conflicts:
        """The conflicts of all pods that are alike, which is one too many: the pod itself."""
        key = pod.namespace, id(pod.labels), pod.ports
        known = self._conflicts.get(key)
        if known is None:
            any_pod = replace(pod, uid="")
            known = find_conflicts(self._cluster, any_pod, self._is_gone), pod.labels
            self._conflicts[key] = known
        return known[0]

    def _find_first(self, amounts: Amounts) -> int:
        first = self._first.get(amounts)
        if first is None:
            first = len(self._rooms)
            if self._rooms and is_enough(minus(self._largest, amounts)):
                fitting = (is_enough(minus(room, amounts)) for _, room in self._rooms)
                first = next((index for index, fits in enumerate(fitting) if fits), first)
            self._first[amounts] = first
        return first
