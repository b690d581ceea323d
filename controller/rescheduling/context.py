"""What the parts of the rescheduler share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from harbourmaster.api.resources import PODS
from harbourmaster.controller.rescheduling.volumes import with_volumes
from harbourmaster.kube.errors import NotFoundError
from harbourmaster.rescheduling.limits import (
    FAIR_SHARE,
    HOUR,
    MINUTE,
    Attempts,
    Breaker,
    Budgets,
    Recent,
)
from harbourmaster.rescheduling.wire import decode_pod

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from harbourmaster.controller.rescheduling.caches import ReschedulingCaches
    from harbourmaster.controller.rescheduling.notices import Notices
    from harbourmaster.controller.rescheduling.settings import ReschedulingSettings
    from harbourmaster.kube.client import Client
    from harbourmaster.rescheduling.model import Criteria, PendingPod, Pod
    from harbourmaster.rescheduling.plans import PlannerSettings

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
    """One per process. ``clock`` is monotonic; ``now`` is the time of day; both in seconds."""

    client: Client
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

    async def with_volumes(self, pending: PendingPod) -> PendingPod:
        """The pod with the volumes that its claims name. Raises ApiError."""
        return await with_volumes(pending, self.client.get)

    def often_evicted(self) -> frozenset[str]:
        """The owners whose pods have been evicted often enough lately."""
        return self.history.of_owners.at_least(FAIR_SHARE, self.clock())
