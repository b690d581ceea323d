"""Checks of bearer tokens: their form, and how many of them are tried."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final, TypeVar

from harbourmaster.dashboard.attempts import WRONG_TOKENS, RateLimit
from harbourmaster.dashboard.session import LONGEST_TOKEN
from harbourmaster.dashboard.waiting import Turns
from harbourmaster.kube.access import HELD

if TYPE_CHECKING:
    from collections.abc import Callable

    from harbourmaster.dashboard.visibility import UserAccess
    from harbourmaster.kube.access import User

T = TypeVar("T")

_MOST: Final = 4096
"""Digests of tokens that were good once, and of tokens that were wrong a moment ago."""


class TriedTokens:
    """Asks whose a token is; ``clock`` gives seconds that only go forward.

    Nobody is refused because others were wrong: tokens that nobody knows yet wait for their turn,
    and after many wrong ones turns are further apart.
    """

    def __init__(self, access: UserAccess, clock: Callable[[], float]) -> None:
        self._access = access
        self._clock = clock
        self._rate = RateLimit(WRONG_TOKENS, clock)
        self._turns = Turns(lambda: self._rate.wait(""))
        self._good: dict[bytes, None] = {}
        self._wrong: dict[bytes, float] = {}

    async def tried(self, token: str, address: str) -> User | None:
        """Whose it is; None for nobody's. Raises PageRefused, and as ``UserAccess.user``."""
        digest = hashlib.sha256(token.encode()).digest()
        if digest in self._good:
            # Who has a good token does not wait for those who guess.
            return await self._access.user(token)
        if self._is_wrong(digest):
            return None
        async with self._turns.turn(address):
            # Equal tokens that waited are one guess.
            if self._is_wrong(digest):
                return None
            user = await self._access.user(token)
            if user is None:
                self._rate.note("")
                _keep(self._wrong, digest, self._clock() + HELD)
                return None
        _keep(self._good, digest, None)
        return user

    def _is_wrong(self, digest: bytes) -> bool:
        return self._clock() < self._wrong.get(digest, 0.0)


def _keep(kept: dict[bytes, T], digest: bytes, value: T) -> None:
    kept[digest] = value
    while len(kept) > _MOST:
        del kept[next(iter(kept))]


def may_be_token(token: str) -> bool:
    """Whether a token can have these characters."""
    return token.isascii() and token.isprintable() and " " not in token


def fault_of(token: str) -> str:
    """Why a token can't be used; empty where it can."""
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
