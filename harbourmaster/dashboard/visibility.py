"""Finds what a user may see: the kinds that it may list, and in which namespaces."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Protocol

import msgspec
from msgspec import Struct

from harbourmaster.api.resources import TOKEN_REVIEWS
from harbourmaster.kube.access import Attributes, Decisions, Memo, User

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from harbourmaster.api.resources import Resource
    from harbourmaster.kube.client import Client


MOST_DECISIONS: Final = 16384
"""Maximum cached decisions: a page can need one for each namespace."""
AT_ONCE: Final = 64
"""Maximum concurrent access reviews, because the API server also answers the leader."""


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
    """Checks access by reviews of the API server; ``clock`` is monotonic, in seconds."""

    def __init__(self, client: Client, clock: Callable[[], float]) -> None:
        self._client = client
        self._decisions = Decisions(client, clock, limit=MOST_DECISIONS)
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._users: Memo[bytes, User | None] = Memo(clock)

    async def user(self, token: str) -> User | None:
        """Return the user of the token, or None if it is invalid. Raises ApiError, TimeoutError."""
        # Tokens are not kept in memory longer than necessary.
        digest = hashlib.sha256(token.encode()).digest()
        return await self._users.get(digest, lambda: self._ask(token))

    async def may_list(self, user: User, resource: Resource, namespace: str) -> bool:
        """Whether the user may list a kind in a namespace. Raises ApiError, TimeoutError."""
        attributes = Attributes(
            verb="list",
            group=resource.group,
            version=resource.version,
            resource=resource.plural,
            namespace=namespace,
        )
        async with self._turns:
            return await self._decisions.is_allowed(user, attributes)

    async def _ask(self, token: str) -> User | None:
        review = {
            "apiVersion": TOKEN_REVIEWS.api_version,
            "kind": TOKEN_REVIEWS.kind,
            "spec": {"token": token},
        }
        status = _decode(await self._client.create(TOKEN_REVIEWS, review)).status
        reviewed = status.user
        if not status.authenticated or not reviewed.username:
            return None
        extra = tuple(sorted((reviewed.extra or {}).items()))
        return User(reviewed.username, reviewed.groups or (), reviewed.uid, extra)


MOST_NAMESPACES: Final = 256
"""Maximum namespaces for which a page asks about a kind; everywhere is one question."""
_AT_ONCE: Final = 32


class UserAccess(Protocol):
    """Checks access; both methods raise ApiError and TimeoutError."""

    async def user(self, token: str) -> User | None:
        """Return the user of the token, or None if it is invalid."""

    async def may_list(self, user: User, resource: Resource, namespace: str) -> bool:
        """Whether the user may list a kind in a namespace; in all of them for an empty one."""


class ListScope(Struct, frozen=True):
    """The namespaces in which the user may list a kind."""

    everywhere: bool = False
    namespaces: frozenset[str] = frozenset()
    unchecked_namespaces: int = 0
    """The number of namespaces that were not asked about, because they were too many."""

    @property
    def is_empty(self) -> bool:
        """Whether the user may list the kind nowhere."""
        return not self.everywhere and not self.namespaces

    def sees(self, namespace: str) -> bool:
        """Whether the user may list the kind in ``namespace``."""
        return self.everywhere or namespace in self.namespaces


NOWHERE: Final = ListScope()
EVERYWHERE: Final = ListScope(everywhere=True)


class Visibility(Struct, frozen=True):
    """The scopes of all kinds that were asked about."""

    scopes: Mapping[str, ListScope] = {}
    """The scopes by the name of the kind, its plural and group."""

    def of(self, resource: Resource) -> ListScope:
        """Return the scope of a kind."""
        return self.scopes.get(resource.name, NOWHERE)

    def sees(self, resource: Resource, namespace: str = "") -> bool:
        """Whether the user may list a kind in ``namespace``."""
        return self.of(resource).sees(namespace)

    def is_refused(self, needed: Iterable[Iterable[Resource]]) -> bool:
        """Whether each group has a kind that the user may list nowhere."""
        return all(any(self.of(kind).is_empty for kind in group) for group in needed)

    @property
    def unchecked_namespaces(self) -> int:
        """The number of namespaces that were not asked about, because they were too many."""
        return max((scope.unchecked_namespaces for scope in self.scopes.values()), default=0)


async def find_visibility(
    access: UserAccess,
    user: User,
    wanted: Mapping[Resource, Collection[str]],
    others: Collection[str] = (),
    only: str = "",
    besides: Mapping[Resource, Collection[str]] | None = None,
) -> Visibility:
    """Find in which of the ``wanted`` namespaces the user may list each kind.

    If there are none, enough of ``others`` are checked to know whether it may list the kind at all.
    With ``only``, just this namespace and those of ``besides`` are checked.
    """
    asker = _Asker(access, user)
    extra = besides or {}
    scopes = await asyncio.gather(
        *(
            asker.scope(
                kind, namespaces, others, frozenset((only, *extra.get(kind, ()))) if only else ()
            )
            for kind, namespaces in wanted.items()
        )
    )
    return Visibility(dict(zip((kind.name for kind in wanted), scopes, strict=True)))


class _Asker:
    def __init__(self, access: UserAccess, user: User) -> None:
        self._access = access
        self._user = user
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def scope(
        self,
        resource: Resource,
        namespaces: Collection[str],
        others: Collection[str],
        only: Collection[str],
    ) -> ListScope:
        if await self._may(resource, ""):
            return EVERYWHERE
        if not resource.namespaced:
            return NOWHERE
        if only:
            return ListScope(namespaces=await self._among(resource, sorted(only)))
        wanted = sorted(namespaces)
        allowed = await self._among(resource, wanted[:MOST_NAMESPACES])
        unchecked_namespaces = max(len(wanted) - MOST_NAMESPACES, 0)
        if not allowed and not unchecked_namespaces:
            rest = sorted(set(others).difference(wanted))
            allowed = await self._first(resource, rest[:MOST_NAMESPACES])
            unchecked_namespaces = 0 if allowed else max(len(rest) - MOST_NAMESPACES, 0)
        return ListScope(namespaces=allowed, unchecked_namespaces=unchecked_namespaces)

    async def _among(self, resource: Resource, namespaces: Sequence[str]) -> frozenset[str]:
        answers = await asyncio.gather(
            *(self._may(resource, namespace) for namespace in namespaces)
        )
        return frozenset(
            namespace for namespace, may in zip(namespaces, answers, strict=True) if may
        )

    async def _first(self, resource: Resource, namespaces: Sequence[str]) -> frozenset[str]:
        for start in range(0, len(namespaces), _AT_ONCE):
            allowed = await self._among(resource, namespaces[start : start + _AT_ONCE])
            if allowed:
                return allowed
        return frozenset()

    async def _may(self, resource: Resource, namespace: str) -> bool:
        async with self._turns:
            return await self._access.may_list(self._user, resource, namespace)


def namespaces_of(keys: Iterable[str]) -> frozenset[str]:
    """Return the namespaces of keys of a store, with "" for objects without one."""
    return frozenset(key.partition("/")[0] if "/" in key else "" for key in keys)
