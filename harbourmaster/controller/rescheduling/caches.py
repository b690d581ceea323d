"""The caches of the rescheduler, which feed one ``Cluster``.

Every event goes into it as it is applied, so a plan sees all that the watches have delivered.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
from msgspec import Struct

from harbourmaster.api.resources import CONFIG_MAPS, DISRUPTION_BUDGETS, NAMESPACES, NODES, PODS
from harbourmaster.kube.caches import Caches
from harbourmaster.kube.store import Store
from harbourmaster.rescheduling.cluster import Cluster
from harbourmaster.rescheduling.decoding import (
    decode_budget,
    decode_namespace,
    decode_node,
    decode_pod,
)
from harbourmaster.rescheduling.flow_model import observe
from harbourmaster.rescheduling.model import PendingPod

if TYPE_CHECKING:
    from collections.abc import Callable

    from harbourmaster.kube.client import Client
    from harbourmaster.kube.faults import WatchMetrics
    from harbourmaster.rescheduling.flow_model import Observation
    from harbourmaster.rescheduling.model import Criteria, Pod

T = TypeVar("T")

UNFINISHED: Final = "status.phase!=Succeeded,status.phase!=Failed"
_ENABLED: Final = "enabled"
_YES: Final = frozenset(("true", "yes", "on", "1"))


class Switch(Struct, frozen=True):
    """The ConfigMap that stops everything."""

    data: dict[str, str] | None = None

    @property
    def is_on(self) -> bool:
        """Whether rescheduling may go on: anything but a plain yes stops it."""
        text = (self.data or {}).get(_ENABLED)
        return text is None or text.strip().lower() in _YES


class ReschedulingCaches(Caches):
    """The caches, and the account that they feed."""

    def __init__(
        self,
        client: Client,
        criteria: Criteria,
        metrics: WatchMetrics | None = None,
        *,
        namespace: str,
        switch: str,
    ) -> None:
        super().__init__(client, metrics)
        cluster = self.cluster = Cluster()
        self._beside = 0
        self.pods = self.cache(
            PODS,
            partial(decode_pod, criteria=criteria),
            store=_ClusterStore(
                cluster.put_pod, lambda pod: cluster.remove_pod(bare(pod).uid), _uid
            ),
            name="all-pods",
            field_selector=UNFINISHED,
        )
        self.nodes = self.cache(
            NODES,
            decode_node,
            store=_ClusterStore(cluster.put_node, lambda node: cluster.remove_node(node.name)),
        )
        self.budgets = self.cache(
            DISRUPTION_BUDGETS,
            decode_budget,
            store=_ClusterStore(
                cluster.put_budget, lambda budget: cluster.remove_budget(budget.key)
            ),
        )
        self.namespaces = self.cache(
            NAMESPACES,
            decode_namespace,
            store=_ClusterStore(
                lambda namespace: cluster.put_namespace(*namespace),
                lambda namespace: cluster.remove_namespace(namespace[0]),
            ),
            name="labels-of-namespaces",
        )
        self._switch_key = f"{namespace}/{switch}"
        self.switch = self.cache(
            CONFIG_MAPS,
            msgspec.json.Decoder(Switch).decode,
            name="kill-switch",
            namespace=namespace,
            field_selector=f"metadata.name={switch}",
        )
        for cache in (self.budgets, self.namespaces):
            cache.subscribe(self._note_change)

    @property
    def stamp(self) -> tuple[int, int]:
        """Another one when anything has changed that a plan depends on."""
        return self.cluster.stamp, self._beside

    @property
    def is_on(self) -> bool:
        """Whether the kill switch lets us work."""
        switch = self.switch.store.get(self._switch_key)
        return switch is None or switch.is_on

    def pod(self, key: str) -> Pod | None:
        """A pod that is not finished, wherever it is."""
        stored = self.pods.store.get(key)
        return None if stored is None else bare(stored)

    def pending(self, key: str) -> PendingPod | None:
        """A pod that waits for a node."""
        stored = self.pods.store.get(key)
        return stored if isinstance(stored, PendingPod) else None

    def _note_change(self, _keys: frozenset[str]) -> None:
        """The stamp of the account says nothing of budgets and labels of namespaces."""
        self._beside += 1


def bare(pod: Pod | PendingPod) -> Pod:
    """The pod itself."""
    return pod.pod if isinstance(pod, PendingPod) else pod


def observation_of(uid: str, pod: Pod | PendingPod | None) -> Observation:
    """Return the observation of the pod with this UID; ``pod`` has its name now."""
    pending = pod if isinstance(pod, PendingPod) else None
    return observe(uid, None if pod is None else bare(pod), pending)


def pods_of(node: str) -> str:
    """The field selector of the pods on a node that are not finished."""
    return f"spec.nodeName={node},{UNFINISHED}"


def _uid(pod: Pod | PendingPod) -> str:
    return bare(pod).uid


class _ClusterStore(Store[T]):
    """A store whose changes go into the account at once; another ``identity`` is another object."""

    def __init__(
        self,
        note: Callable[[T], None],
        forget: Callable[[T], None],
        identity: Callable[[T], object] = lambda _found: None,
    ) -> None:
        super().__init__()
        self._note = note
        self._drop = forget
        self._identity = identity

    def put(self, key: str, obj: T) -> bool:
        """Hold ``obj`` under ``key``; tell whether anything changed."""
        before = self.get(key)
        if not super().put(key, obj):
            return False
        if before is not None and self._identity(before) != self._identity(obj):
            self._drop(before)
        self._note(obj)
        return True

    def remove(self, key: str) -> bool:
        """Hold nothing under ``key``; tell whether anything changed."""
        before = self.get(key)
        if before is not None:
            self._drop(before)
        return super().remove(key)
