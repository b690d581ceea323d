"""What a user may see: the kinds that may be listed, in which namespaces."""

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
"""That are kept: a page asks about each namespace of a user that is not allowed to list all."""
AT_ONCE: Final = 64
"""Questions about rights: the API server has to answer the leader, too."""


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


MOST_NAMESPACES: Final = 256
"""For which one page asks about a kind; who may list a kind everywhere is asked about once."""
_AT_ONCE: Final = 32


class UserAccess(Protocol):
    """Who a user is, and what they may list. Both methods raise ApiError and TimeoutError."""

    async def user(self, token: str) -> User | None:
        """Whose token it is; None for nobody's."""

    async def may_list(self, user: User, resource: Resource, namespace: str) -> bool:
        """Whether the user may list a kind in a namespace; in all of them for an empty one."""


class ListScope(Struct, frozen=True):
    """Where one kind may be listed."""

    everywhere: bool = False
    namespaces: frozenset[str] = frozenset()
    unasked: int = 0
    """Namespaces that were too many to ask about."""

    @property
    def is_empty(self) -> bool:
        """Whether it may be listed nowhere."""
        return not self.everywhere and not self.namespaces

    def sees(self, namespace: str) -> bool:
        """Whether it may be listed there."""
        return self.everywhere or namespace in self.namespaces


NOWHERE: Final = ListScope()
EVERYWHERE: Final = ListScope(everywhere=True)


class Visibility(Struct, frozen=True):
    """Of each kind that was asked about, where it may be listed."""

    scopes: Mapping[str, ListScope] = {}
    """By the plural and the group of the kind."""

    def of(self, resource: Resource) -> ListScope:
        """Where a kind may be listed."""
        return self.scopes.get(resource.name, NOWHERE)

    def sees(self, resource: Resource, namespace: str = "") -> bool:
        """Whether a kind may be listed there."""
        return self.of(resource).sees(namespace)

    def is_refused(self, needed: Iterable[Iterable[Resource]]) -> bool:
        """Whether of each group of kinds one may be listed nowhere."""
        return all(any(self.of(kind).is_empty for kind in group) for group in needed)

    @property
    def unasked(self) -> int:
        """Namespaces that were too many to ask about."""
        return max((scope.unasked for scope in self.scopes.values()), default=0)


async def look(
    access: UserAccess,
    user: User,
    wanted: Mapping[Resource, Collection[str]],
    others: Collection[str] = (),
    only: str = "",
    besides: Mapping[Resource, Collection[str]] | None = None,
) -> Visibility:
    """Ask where each kind may be listed among the namespaces that have objects of it.

    Of ``others`` enough are asked about to know whether it may be listed anywhere at all. ``only``
    asks about one namespace, and about those that ``besides`` has for a kind, and no other.
    """
    asker = _Asker(access, user)
    extra = besides or {}
    scopes = await asyncio.gather(
        *(
            asker.scope(
                each, namespaces, others, frozenset((only, *extra.get(each, ()))) if only else ()
            )
            for each, namespaces in wanted.items()
        )
    )
    return Visibility(dict(zip((each.name for each in wanted), scopes, strict=True)))


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
        found = await self._among(resource, wanted[:MOST_NAMESPACES])
        unasked = max(len(wanted) - MOST_NAMESPACES, 0)
        if not found and not unasked:
            rest = sorted(set(others).difference(wanted))
            found = await self._first(resource, rest[:MOST_NAMESPACES])
            unasked = 0 if found else max(len(rest) - MOST_NAMESPACES, 0)
        return ListScope(namespaces=found, unasked=unasked)

    async def _among(self, resource: Resource, namespaces: Sequence[str]) -> frozenset[str]:
        answers = await asyncio.gather(
            *(self._may(resource, namespace) for namespace in namespaces)
        )
        return frozenset(each for each, may in zip(namespaces, answers, strict=True) if may)

    async def _first(self, resource: Resource, namespaces: Sequence[str]) -> frozenset[str]:
        for start in range(0, len(namespaces), _AT_ONCE):
            found = await self._among(resource, namespaces[start : start + _AT_ONCE])
            if found:
                return found
        return frozenset()

    async def _may(self, resource: Resource, namespace: str) -> bool:
        async with self._turns:
            return await self._access.may_list(self._user, resource, namespace)


def namespaces_of(keys: Iterable[str]) -> frozenset[str]:
    """The namespaces of keys of a store; an empty one for what has none."""
    return frozenset(key.partition("/")[0] if "/" in key else "" for key in keys)
