"""The API calls that evict, delete or mark a pod (rescheduler-spec 3.4, 6.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from harbourmaster.api.resources import PODS
from harbourmaster.api.times import format_rfc3339, utc_now
from harbourmaster.kube.errors import ApiError
from harbourmaster.rescheduling.answers import Reply

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from harbourmaster.kube.client import Client
    from harbourmaster.rescheduling.plans import Victim

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
