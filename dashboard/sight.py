"""What a user may see: the kinds that may be listed, in which namespaces."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from harbourmaster.api.resources import Resource
    from harbourmaster.kube.access import User

MOST_NAMESPACES: Final = 256
"""For which one page asks about a kind; who may list a kind everywhere is asked about once."""
_AT_ONCE: Final = 32


class Access(Protocol):
    """Who somebody is, and what they may list. Both raise ApiError and TimeoutError."""

    async def user(self, token: str) -> User | None:
        """Whose token it is; None for nobody's."""

    async def may_list(self, user: User, resource: Resource, namespace: str) -> bool:
        """Whether the user may list a kind in a namespace; in all of them for an empty one."""


class Scope(Struct, frozen=True):
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


NOWHERE: Final = Scope()
EVERYWHERE: Final = Scope(everywhere=True)


class Sight(Struct, frozen=True):
    """Of each kind that was asked about, where it may be listed."""

    scopes: Mapping[str, Scope] = {}
    """By the plural and the group of the kind."""

    def of(self, resource: Resource) -> Scope:
        """Where a kind may be listed."""
        return self.scopes.get(_key(resource), NOWHERE)

    def sees(self, resource: Resource, namespace: str = "") -> bool:
        """Whether a kind may be listed there."""
        return self.of(resource).sees(namespace)

    @property
    def unasked(self) -> int:
        """Namespaces that were too many to ask about."""
        return max((each.unasked for each in self.scopes.values()), default=0)


async def look(
    access: Access,
    user: User,
    wanted: Mapping[Resource, Collection[str]],
    others: Collection[str] = (),
    only: str = "",
    besides: Mapping[Resource, Collection[str]] | None = None,
) -> Sight:
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
    return Sight(dict(zip(map(_key, wanted), scopes, strict=True)))


class _Asker:
    def __init__(self, access: Access, user: User) -> None:
        self._access = access
        self._user = user
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def scope(
        self,
        resource: Resource,
        namespaces: Collection[str],
        others: Collection[str],
        only: Collection[str],
    ) -> Scope:
        if await self._may(resource, ""):
            return EVERYWHERE
        if not resource.namespaced:
            return NOWHERE
        if only:
            return Scope(namespaces=await self._among(resource, sorted(only)))
        wanted = sorted(namespaces)
        found = await self._among(resource, wanted[:MOST_NAMESPACES])
        unasked = max(len(wanted) - MOST_NAMESPACES, 0)
        if not found and not unasked:
            rest = sorted(set(others).difference(wanted))
            found = await self._first(resource, rest[:MOST_NAMESPACES])
            unasked = 0 if found else max(len(rest) - MOST_NAMESPACES, 0)
        return Scope(namespaces=found, unasked=unasked)

    async def _among(self, resource: Resource, namespaces: Sequence[str]) -> frozenset[str]:
        answers = await asyncio.gather(*(self._may(resource, each) for each in namespaces))
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


def _key(resource: Resource) -> str:
    return f"{resource.plural}.{resource.group}"
