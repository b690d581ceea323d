"""The API calls that evict, delete or mark a pod (rescheduler-spec 3.4, 6.5).

With ``shortenPreemption``, they also speed up the scheduler's preemption (3.8, rule 4).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.metadata import Condition, Metadata
from harbourmaster.api.resources import PODS
from harbourmaster.api.times import format_rfc3339, utc_now
from harbourmaster.controller.names import RESCHEDULING
from harbourmaster.controller.rescheduling.caches import pods_of
from harbourmaster.kube.errors import ApiError
from harbourmaster.kube.reading import log_skipped, read_all
from harbourmaster.rescheduling.answers import Reply
from harbourmaster.rescheduling.plans import Victim
from harbourmaster.telemetry.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from harbourmaster.controller.rescheduling.context import ReschedulingContext
    from harbourmaster.kube.client import Client
    from harbourmaster.rescheduling.model import PendingPod, Pod

DELETION: Final = "DeletionByRescheduler"
"""The condition reason of a pod that is deleted against its disruption budget."""
TIMEOUT: Final = 15.0
"""Seconds for an answer: the API server tries for ten to count an eviction in a busy budget."""
LEAST_GRACE: Final = 1
"""With 0 the object goes before its containers, and the kubelet refuses the next pod."""
_EVICTION: Final = "policy/v1"
_MERGE: Final = "application/strategic-merge-patch+json"
_JSON: Final = "application/json"


class EvictionClient:
    """Calls about victims, each with the UID of the chosen pod; no call is repeated."""

    def __init__(self, client: Client, now: Callable[[], datetime] = utc_now) -> None:
        self._client = client
        self._now = now

    async def evict(self, victim: Victim, *, dry_run: bool = False) -> Reply | None:
        """Evict a pod, or try it only; None for a success."""
        options = _options(victim)
        if dry_run:
            options["dryRun"] = ["All"]
        body = {
            "apiVersion": _EVICTION,
            "kind": "Eviction",
            "metadata": {"name": victim.name, "namespace": victim.namespace},
            "deleteOptions": options,
        }
        query = {"dryRun": "All"} if dry_run else {}
        return await self._call("POST", _path(victim, "eviction"), body, _JSON, query)

    async def delete(self, victim: Victim) -> Reply | None:
        """Delete a pod with its new grace. No budget is asked, and no condition is touched."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", **_options(victim)}
        return await self._call("DELETE", _path(victim), body, _JSON)

    async def mark(self, victim: Victim, message: str) -> Reply | None:
        """Say on a pod why it is going to be deleted, as an eviction would."""
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": DELETION,
            "message": message,
            "lastTransitionTime": format_rfc3339(self._now()),
        }
        body = {"metadata": {"uid": victim.uid}, "status": {"conditions": [condition]}}
        return await self._call("PATCH", _path(victim, "status"), body, _MERGE)

    async def _call(
        self,
        method: str,
        path: str,
        body: dict[str, Any],
        content_type: str,
        query: dict[str, str] | None = None,
    ) -> Reply | None:
        try:
            await self._client.request(
                method,
                path,
                query=query,
                body=msgspec.json.encode(body),
                content_type=content_type,
                timeout=TIMEOUT,
                retries=0,
            )
        except ApiError as error:
            return Reply(error.status, error.reason, error.causes, error.message, error.retry_after)
        return None


def _path(victim: Victim, subresource: str | None = None) -> str:
    return PODS.path(victim.namespace, victim.name, subresource)


def _options(victim: Victim) -> dict[str, Any]:
    return {
        "gracePeriodSeconds": max(victim.new_grace, LEAST_GRACE),
        "preconditions": {"uid": victim.uid},
    }


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
