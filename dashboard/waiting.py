"""Requests that wait for a turn: one after another of an address, and one address after another."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from harbourmaster.dashboard.answers import PageRefused

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

AT_ONCE: Final = 4
"""Turns at the same time."""
MOST_WAITING: Final = 256
"""Requests that wait; if there are more, one of the address that has most of them is refused."""


class Turns:
    """Gives turns; ``pause`` gives the seconds until the next turn can begin."""

    def __init__(self, pause: Callable[[], float]) -> None:
        self._pause = pause
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._busy = 0
        self._timer: asyncio.TimerHandle | None = None

    @contextlib.asynccontextmanager
    async def turn(self, address: str) -> AsyncIterator[None]:
        """Wait for a turn and hold it. Raises PageRefused if too many wait."""
        if sum(map(len, self._waiting.values())) >= MOST_WAITING:
            self._make_room(address)
        ticket = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(address, deque()).append(ticket)
        self._admit()
        try:
            await ticket
            yield
        finally:
            if ticket.cancelled():
                self._remove(address, ticket)
            elif ticket.exception() is None:
                self._busy -= 1
            self._admit()

    def _remove(self, address: str, ticket: asyncio.Future[None]) -> None:
        """Keep no place for a client that has gone."""
        line = self._waiting.get(address, deque())
        with contextlib.suppress(ValueError):
            line.remove(ticket)
        if not line:
            self._waiting.pop(address, None)

    def _make_room(self, address: str) -> None:
        refused = PageRefused(
            HTTPStatus.TOO_MANY_REQUESTS,
            "Too many failed logins.",
            "Try again in a moment.",
            retry_after=1,
        )
        longest = max(self._waiting.values(), key=len)
        if len(longest) <= len(self._waiting.get(address, ())):
            raise refused
        ticket = longest.pop()
        if not ticket.done():
            ticket.set_exception(refused)

    def _admit(self) -> None:
        while self._waiting and self._busy < AT_ONCE:
            if pause := self._pause():
                if self._timer is None:
                    loop = asyncio.get_running_loop()
                    self._timer = loop.call_later(pause, self._resume)
                return
            address, line = next(iter(self._waiting.items()))
            ticket = line.popleft()
            # The address goes to the end.
            del self._waiting[address]
            if line:
                self._waiting[address] = line
            if not ticket.done():
                self._busy += 1
                ticket.set_result(None)

    def _resume(self) -> None:
        self._timer = None
        self._admit()
