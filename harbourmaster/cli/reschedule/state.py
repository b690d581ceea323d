"""Reads what a plan needs from a live cluster, or from the output of kubectl."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harbourmaster.api.resources import DISRUPTION_BUDGETS, NAMESPACES, NODES, PODS
from harbourmaster.cli.live.files import Dump
from harbourmaster.controller.rescheduling.volumes import with_volumes
from harbourmaster.rescheduling import reservation
from harbourmaster.rescheduling.cluster import Cluster
from harbourmaster.rescheduling.decoding import (
    decode_budget,
    decode_namespace,
    decode_node,
    decode_pod,
)
from harbourmaster.rescheduling.model import PendingPod
from harbourmaster.rescheduling.plans import Circumstances

if TYPE_CHECKING:
    from collections.abc import Callable

    from msgspec import Raw

    from harbourmaster.api.resources import Resource
    from harbourmaster.cli.live.reader import ClusterReader
    from harbourmaster.rescheduling.model import Criteria, Pod


class ObservedCluster:
    """A cluster as it was read; ``asked`` is the pod that was asked about, if it is there."""

    def __init__(self, criteria: Criteria, namespace: str, name: str) -> None:
        self.cluster = Cluster()
        self.asked: Pod | PendingPod | None = None
        self._criteria = criteria
        self.key = f"{namespace}/{name}"
        self.readers: Final[dict[Resource, Callable[[Raw], None]]] = {
            NODES: lambda raw: self.cluster.put_node(decode_node(raw)),
            NAMESPACES: lambda raw: self.cluster.put_namespace(*decode_namespace(raw)),
            DISRUPTION_BUDGETS: lambda raw: self.cluster.put_budget(decode_budget(raw)),
            PODS: self._pod,
        }
        """Each adds an object of its kind. Raises MalformedError."""

    def around(self) -> Circumstances:
        """The reservations for other pods, as the annotations of nodes say."""
        reserved: dict[str, list[Pod]] = {}
        departing: set[str] = set()
        asked = self.asked.pod.uid if isinstance(self.asked, PendingPod) else ""
        for node in self.cluster.nodes():
            for reserved_for in reservation.parse(node.reservations):
                waiting = self.cluster.pending.get(reserved_for.uid)
                if reserved_for.uid == asked or waiting is None:
                    continue
                reserved.setdefault(node.name, []).append(waiting.pod)
                departing.update(victim.uid for victim in reserved_for.victims)
        return Circumstances(reserved=reserved, departing=frozenset(departing))

    def _pod(self, raw: Raw) -> None:
        pod = decode_pod(raw, self._criteria)
        key = pod.pod.key if isinstance(pod, PendingPod) else pod.key
        if key == self.key:
            self.asked = pod
        self.cluster.put_pod(pod)


async def survey(source: ClusterReader | Dump, state: ObservedCluster) -> None:
    """Read a cluster with the volumes of the pod, or a dump. Raises ApiError or UnreadableError."""
    for resource, read in state.readers.items():
        await source.list_all(resource, read)
    if isinstance(state.asked, PendingPod) and not isinstance(source, Dump):
        state.asked = await with_volumes(state.asked, source.get)
