"""Checks of bearer tokens: their form, and how often somebody may be wrong."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, Final

from harbourmaster.dashboard.answers import check
from harbourmaster.dashboard.attempts import WRONG_TOKENS, RateLimit
from harbourmaster.dashboard.session import LONGEST_TOKEN

if TYPE_CHECKING:
    from collections.abc import Callable

    from harbourmaster.dashboard.visibility import UserAccess
    from harbourmaster.kube.access import User

_TRIED_AT_ONCE: Final = 4
"""Tokens of which nobody knows yet whether they are good."""
_MOST_GOOD: Final = 4096
"""Tokens, by their digests, that were good once and that nobody can guess by, therefore."""


class TriedTokens:
    """Asks whose a token is; ``clock`` gives seconds that only go forward."""

    def __init__(self, access: UserAccess, clock: Callable[[], float]) -> None:
        self._access = access
        self._wrong = RateLimit(WRONG_TOKENS, clock)
        self._turns = asyncio.Semaphore(_TRIED_AT_ONCE)
        self._good: dict[bytes, None] = {}

    async def tried(self, token: str, address: str) -> User | None:
        """Whose it is; None for nobody's. Raises PageRefused, and as ``UserAccess.user``."""
        digest = hashlib.sha256(token.encode()).digest()
        if digest in self._good:
            # Who has a good token does not wait for those who guess.
            return await self._access.user(token)
        check(self._wrong, address, "Too many failed logins.")
        async with self._turns:
            # Others may have been wrong meanwhile: a bound that many pass at once is none.
            check(self._wrong, address, "Too many failed logins.")
            user = await self._access.user(token)
            if user is None:
                self._wrong.note(address)
                return None
        self._good[digest] = None
        while len(self._good) > _MOST_GOOD:
            del self._good[next(iter(self._good))]
        return user


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
