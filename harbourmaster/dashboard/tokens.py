"""Checks bearer tokens: their form, and how many of them are tried."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections import deque
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, TypeVar

from harbourmaster.dashboard.answers import PageRefused
from harbourmaster.dashboard.rate_limit import WRONG_TOKENS, RateLimit
from harbourmaster.dashboard.session import LONGEST_TOKEN
from harbourmaster.kube.access import VALIDITY

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from harbourmaster.dashboard.visibility import UserAccess
    from harbourmaster.kube.access import User

AT_ONCE: Final = 4
"""Turns that are held at the same time."""
MOST_WAITING: Final = 256
"""Maximum waiting requests; then one of the address with most of them is refused."""


class Turns:
    """Admits requests in turns, round robin between addresses.

    ``pause`` returns the seconds until the next turn can begin.
    """

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
        tickets = self._waiting.get(address, deque())
        with contextlib.suppress(ValueError):
            tickets.remove(ticket)
        if not tickets:
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
            address, tickets = next(iter(self._waiting.items()))
            ticket = tickets.popleft()
            # The address goes to the end.
            del self._waiting[address]
            if tickets:
                self._waiting[address] = tickets
            if not ticket.done():
                self._busy += 1
                ticket.set_result(None)

    def _resume(self) -> None:
        self._timer = None
        self._admit()


T = TypeVar("T")

_MOST: Final = 4096
"""Maximum digests of tokens that were valid before, and of tokens that were wrong recently."""


class TokenChecker:
    """Finds the users of tokens; ``clock`` is monotonic, in seconds.

    Wrong tokens of one client do not cause the refusal of others: unknown tokens wait for their
    turn, and after many wrong ones turns are further apart.
    """

    def __init__(self, access: UserAccess, clock: Callable[[], float]) -> None:
        self._access = access
        self._clock = clock
        self._rate = RateLimit(WRONG_TOKENS, clock)
        self._turns = Turns(lambda: self._rate.delay(""))
        self._good: dict[bytes, None] = {}
        self._wrong: dict[bytes, float] = {}

    async def find_user(self, token: str, address: str) -> User | None:
        """Return the user of the token, or None if it is invalid.

        Raises PageRefused, and the errors of ``UserAccess.user``.
        """
        digest = hashlib.sha256(token.encode()).digest()
        if digest in self._good:
            # Users with a valid token do not wait for clients that guess.
            return await self._access.user(token)
        if self._is_wrong(digest):
            return None
        async with self._turns.turn(address):
            # Another request may have tried the same token meanwhile.
            if self._is_wrong(digest):
                return None
            user = await self._access.user(token)
            if user is None:
                self._rate.note("")
                _remember(self._wrong, digest, self._clock() + VALIDITY)
                return None
        _remember(self._good, digest, None)
        return user

    def _is_wrong(self, digest: bytes) -> bool:
        return self._clock() < self._wrong.get(digest, 0.0)


def _remember(memory: dict[bytes, T], digest: bytes, value: T) -> None:
    memory[digest] = value
    while len(memory) > _MOST:
        del memory[next(iter(memory))]


def may_be_token(token: str) -> bool:
    """Whether a token can have these characters."""
    return token.isascii() and token.isprintable() and " " not in token


def fault_of(token: str) -> str:
    """Return why a token cannot be used; empty if it can."""
    if not token:
        return "Give a token."
    if not may_be_token(token):
        return "The token has invalid characters."
    if len(token) > LONGEST_TOKEN:
        return (
            f"This token has {len(token)} characters, and {LONGEST_TOKEN} are as many as a browser "
            "keeps. Use a ServiceAccount's."
        )
    return ""
