"""Limits how often users may do something: by a token bucket for each user, and one for all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from harbourmaster.kube.event_series import Allowance, Limiter

if TYPE_CHECKING:
    from collections.abc import Callable

_MAX_USERS: Final = 1024
"""Maximum number of buckets that are remembered."""


class Rate(Struct, frozen=True):
    """The allowance of one user, and that of all users together."""

    single: Allowance
    all: Allowance


WRONG_TOKENS: Final = Rate(Allowance(100, 0.02), Allowance(100, 0.02))
"""Wrong tokens of all clients, each of which is a request to the API server."""
PAGES: Final = Rate(Allowance(200, 0.1), Allowance(400, 0.05))
"""Pages of a user, which the process renders that also leads."""


class RateLimit:
    """Counts actions; ``clock`` is monotonic, in seconds."""

    def __init__(self, rate: Rate, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._all = Limiter(rate.all, 1)
        self._single = Limiter(rate.single, _MAX_USERS)

    def delay(self, user: str) -> float:
        """Return the seconds until ``user`` may act again; 0 if it may act now."""
        now = self._clock()
        return max(self._all.wait("", now), self._single.wait(user, now))

    def note(self, user: str) -> None:
        """Count an action of ``user``."""
        now = self._clock()
        self._all.take("", now)
        self._single.take(user, now)
