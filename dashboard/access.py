"""Who somebody is, and what they may list: the API server is asked about both."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.resources import TOKEN_REVIEWS
from harbourmaster.kube.access import Attributes, Decisions, Memo, User

if TYPE_CHECKING:
    from collections.abc import Callable

    from harbourmaster.api.resources import Resource
    from harbourmaster.kube.client import Client

MOST_DECISIONS: Final = 16384
"""That are kept: a page asks about each namespace of whoever may not list all."""
AT_ONCE: Final = 64
"""Questions about rights: the API server answers whoever leads, too."""


class _User(Struct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] | None = None
    extra: dict[str, tuple[str, ...]] | None = None


class _Status(Struct, frozen=True):
    authenticated: bool = False
    user: _User = _User()


class _Review(Struct, frozen=True):
    status: _Status = _Status()


_decode: Final = msgspec.json.Decoder(_Review).decode


class ClusterAccess:
    """By TokenReviews and SubjectAccessReviews; ``clock`` gives seconds that only go forward."""

    def __init__(self, client: Client, clock: Callable[[], float]) -> None:
        self._client = client
        self._decisions = Decisions(client, clock, limit=MOST_DECISIONS)
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._users: Memo[bytes, User | None] = Memo(clock)

    async def user(self, token: str) -> User | None:
        """Whose token it is; None for nobody's. Raises ApiError, and TimeoutError."""
        # Tokens themselves are not kept longer than they are needed.
        digest = hashlib.sha256(token.encode()).digest()
        return await self._users.get(digest, lambda: self._ask(token))

    async def may_list(self, user: User, resource: Resource, namespace: str) -> bool:
        """Whether the user may list a kind in a namespace; raises as ``user``."""
        wish = Attributes(
            verb="list",
            group=resource.group,
            version=resource.version,
            resource=resource.plural,
            namespace=namespace,
        )
        async with self._turns:
            return await self._decisions.is_allowed(user, wish)

    async def _ask(self, token: str) -> User | None:
        review = {
            "apiVersion": TOKEN_REVIEWS.api_version,
            "kind": TOKEN_REVIEWS.kind,
            "spec": {"token": token},
        }
        status = _decode(await self._client.create(TOKEN_REVIEWS, review)).status
        found = status.user
        if not status.authenticated or not found.username:
            return None
        extra = tuple(sorted((found.extra or {}).items()))
        return User(found.username, found.groups or (), found.uid, extra)
