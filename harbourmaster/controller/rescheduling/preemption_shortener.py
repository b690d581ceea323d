"""Speeds up the scheduler's preemption, if the settings say so (rescheduler-spec 3.8, rule 4)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.metadata import Condition, Metadata
from harbourmaster.api.resources import PODS
from harbourmaster.controller.names import RESCHEDULING
from harbourmaster.controller.rescheduling.caches import pods_of, read_all
from harbourmaster.kube.reading import log_skipped
from harbourmaster.rescheduling.plans import Victim
from harbourmaster.telemetry.logging import get_logger

if TYPE_CHECKING:
    from harbourmaster.controller.rescheduling.context import ReschedulingContext
    from harbourmaster.controller.rescheduling.eviction_client import EvictionClient
    from harbourmaster.rescheduling.model import PendingPod, Pod

_CONDITION: Final = "DisruptionTarget"
_REASON: Final = "PreemptionByScheduler"


class _Status(Struct, frozen=True):
    conditions: tuple[Condition, ...] | None = None


class _Pod(Struct, frozen=True):
    metadata: Metadata
    status: _Status = _Status()

    @property
    def is_preempted(self) -> bool:
        """Whether the scheduler preempted the pod, and no other client deleted it."""
        conditions = self.status.conditions or ()
        return any(
            condition.type == _CONDITION and condition.reason == _REASON for condition in conditions
        )


_decode: Final = msgspec.json.Decoder(_Pod).decode


class PreemptionShortener:
    """Gives victims of a preemption less time, by DELETE alone.

    An eviction would change their condition, by which the scheduler knows of its preemption; it
    would take a second victim (0, finding 3).
    """

    def __init__(self, context: ReschedulingContext, evictions: EvictionClient) -> None:
        self._context = context
        self._evictions = evictions
        self._done: set[str] = set()
        """Those that the watch does not show yet."""
        self._skip = partial(log_skipped, get_logger(RESCHEDULING))
        self._limit = context.settings.grace_period_limit_seconds

    async def shorten(self, pending: PendingPod) -> None:
        """Have those go sooner that have long on the nominated node. Raises ApiError."""
        context = self._context
        if self._limit < 0:
            # Every pod has its own grace.
            return
        late = {pod.uid: pod for pod in self._late(pending) if pod.uid not in self._done}
        if not late or context.settings.dry_run:
            return
        for uid in await self._read_preempted(pending.nominated):
            pod = late.get(uid)
            if pod is None:
                continue
            victim = Victim(
                uid=uid,
                namespace=pod.namespace,
                name=pod.name,
                node=pod.node,
                grace=pod.grace,
                new_grace=self._limit,
                is_leaving=True,
            )
            if await self._evictions.delete(victim) is None:
                self._done.add(uid)
                context.notices.count_shortened()

    def sweep(self) -> None:
        """Forget those that are gone."""
        cluster = self._context.caches.cluster
        self._done = {uid for uid in self._done if cluster.pod(uid) is not None}

    def _late(self, pending: PendingPod) -> list[Pod]:
        now = self._context.now()
        return [
            pod
            for pod in self._context.caches.cluster.pods_on(pending.nominated)
            if pod.deletion is not None
            and pod.deletion - now > self._limit
            and pod.priority < pending.pod.priority
        ]

    async def _read_preempted(self, node: str) -> list[str]:
        """The uids of the pods on a node that the scheduler took, as the API has them."""
        pods = await read_all(
            self._context.client, PODS, _decode, self._skip, field_selector=pods_of(node)
        )
        return [pod.metadata.uid for pod in pods if pod.is_preempted]
