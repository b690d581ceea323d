"""Checks bearer tokens and how many are tried, and keeps them encrypted in session cookies.

Every replica can read the cookies: nothing is stored on the server, and only processes with the key
of our certificate can decrypt them.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hashlib
import os
import struct
from collections import deque
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, TypeVar

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from msgspec import Struct

from harbourmaster.dashboard.answers import PageRefused
from harbourmaster.kube.access import VALIDITY
from harbourmaster.kube.event_series import Allowance, Limiter

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


LIFETIME: Final = 8 * 3600
"""Seconds after which users must log in again, even if their token is still valid."""
LONGEST_TOKEN: Final = 2800
"""Maximum bytes of a token: encrypted, it must fit into the 4096 bytes of a cookie."""
_PURPOSE: Final = b"harbourmaster dashboard session v1"
_NONCE: Final = 12
_TIME: Final = struct.Struct(">Q")


class Sealer:
    """Encrypts and decrypts tokens; ``now`` returns seconds since the epoch."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._secrets: list[bytes] = []
        self._keys: list[AESGCM] = []
        self.renew(os.urandom(32))

    def renew(self, secret: bytes) -> None:
        """Encrypt with another secret from now on; the last one still decrypts."""
        if secret in self._secrets:
            return
        derived = HKDF(algorithm=SHA256(), length=32, salt=None, info=_PURPOSE).derive(secret)
        self._secrets = [secret, *self._secrets[:1]]
        self._keys = [AESGCM(derived), *self._keys[:1]]

    def seal(self, token: str) -> str:
        """Return the value of the cookie for a token."""
        nonce = os.urandom(_NONCE)
        text = _TIME.pack(int(self._now()) + LIFETIME) + token.encode()
        sealed = self._keys[0].encrypt(nonce, text, _PURPOSE)
        return base64.urlsafe_b64encode(nonce + sealed).decode().rstrip("=")

    def open(self, cookie: str) -> str | None:
        """Return the token, or None if the cookie is not ours or expired."""
        if not cookie.isascii():
            return None
        try:
            decoded = base64.urlsafe_b64decode(cookie + "=" * (-len(cookie) % 4))
        except (binascii.Error, ValueError):
            return None
        nonce, sealed = decoded[:_NONCE], decoded[_NONCE:]
        for key in self._keys:
            try:
                text = key.decrypt(nonce, sealed, _PURPOSE)
            except (InvalidTag, ValueError):
                continue
            (end,) = _TIME.unpack_from(text)
            return text[_TIME.size :].decode() if self._now() < end else None
        return None


_MAX_USERS: Final = 1024
"""Maximum number of buckets that are remembered."""


class Rate(Struct, frozen=True):
    """The allowance of one user, and that of all users together."""

    single: Allowance
    all: Allowance


WRONG_TOKENS: Final = Rate(Allowance(100, 0.02), Allowance(100, 0.02))
"""Wrong tokens of all clients, each of which is a request to the API server."""
PAGE_RATE: Final = Rate(Allowance(200, 0.1), Allowance(400, 0.05))
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
