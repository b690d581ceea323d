"""The dependencies that the parts of the rescheduler share."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from harbourmaster.api.resources import LEASES, PODS
from harbourmaster.controller.rescheduling.volumes import with_volumes
from harbourmaster.kube.errors import NotFoundError
from harbourmaster.kube.lease import decode_lease, encode_lease
from harbourmaster.rescheduling.decoding import decode_pod
from harbourmaster.rescheduling.limits import (
    FAIR_SHARE,
    HOUR,
    MINUTE,
    Attempts,
    Breaker,
    Budgets,
    Recent,
)
from harbourmaster.rescheduling.model import DOMAIN

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from harbourmaster.controller.rescheduling.caches import ReschedulingCaches
    from harbourmaster.controller.rescheduling.notices import Notices
    from harbourmaster.controller.rescheduling.settings import ReschedulingSettings
    from harbourmaster.kube.client import Client
    from harbourmaster.rescheduling.model import Criteria, PendingPod, Pod
    from harbourmaster.rescheduling.plans import PlannerSettings

SPENT: Final = f"{DOMAIN}/spent-budgets"
"""The annotation of the leader's Lease with what is spent of the eviction budgets."""
_AT: Final = "at"
"""The key in this annotation for the time of day, in seconds."""
_decode_spent: Final = msgspec.json.Decoder(dict[str, float]).decode
MANY_BUSY: Final = 10
"""Answers in a minute by which the API server wants to be left alone, after which it is."""


class History:
    """Recent actions; it outlives a term, because the limits count across terms."""

    def __init__(self, settings: ReschedulingSettings) -> None:
        self.budgets = Budgets(settings.limits)
        self.attempts = Attempts(settings.limits, settings.backoff)
        self.breaker = Breaker()
        self.busy = Recent(MINUTE)
        self.of_owners = Recent(HOUR)


@dataclass(frozen=True, kw_only=True, eq=False)
class ReschedulingContext:
    """One per process. ``clock`` is monotonic; ``now`` is the time of day; both in seconds.

    ``lease`` has the name and the namespace of the leader's Lease.
    """

    client: Client
    lease: tuple[str, str]
    settings: ReschedulingSettings
    caches: ReschedulingCaches
    criteria: Criteria
    planning: PlannerSettings
    notices: Notices
    history: History
    clock: Callable[[], float]
    now: Callable[[], float]
    chance: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]

    async def read_pod(self, namespace: str, name: str) -> Pod | PendingPod | None:
        """A pod as the API has it now; None where there is none. Raises ApiError."""
        try:
            raw = await self.client.get(PODS, name, namespace)
        except NotFoundError:
            return None
        return decode_pod(raw, self.criteria)

    async def load_budgets(self) -> None:
        """Take over what an earlier leader has spent of the budgets. Raises ApiError."""
        budgets = self.history.budgets
        try:
            lease = decode_lease(await self.client.get(LEASES, *self.lease))
        except NotFoundError:
            # Where no leader is elected there is none.
            return
        text = lease.annotations.get(SPENT)
        try:
            spent = _decode_spent(text or "{}")
        except (msgspec.DecodeError, TypeError):
            spent = dict.fromkeys(budgets.tokens_left(0.0), math.inf)
        budgets.recall(spent, self.now() - spent.get(_AT, math.inf), self.clock())

    async def save_budgets(self) -> None:
        """Write what is spent before the evictions: a crash leaves too little, never too much.

        What a plan then does not use is written with the next one. Raises ApiError.
        """
        spent = {_AT: self.now(), **self.history.budgets.tokens_spent(self.clock())}
        name, namespace = self.lease
        with contextlib.suppress(NotFoundError):
            lease = decode_lease(await self.client.get(LEASES, name, namespace))
            lease.metadata.setdefault("annotations", {})[SPENT] = msgspec.json.encode(
                spent
            ).decode()
            await self.client.replace(LEASES, name, encode_lease(lease), namespace)

    async def with_volumes(self, pending: PendingPod) -> PendingPod:
        """The pod with the volumes that its claims name. Raises ApiError."""
        return await with_volumes(pending, self.client.get)

    def often_evicted(self) -> frozenset[str]:
        """The owners whose pods have been evicted often enough lately."""
        return self.history.of_owners.at_least(FAIR_SHARE, self.clock())
