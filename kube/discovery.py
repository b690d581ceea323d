"""Discovery: the paths of kinds that are unknown at build time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
from msgspec import Struct

from harbourmaster.api.resources import Resource
from harbourmaster.kube.errors import (
    ApiError,
    BadAnswerError,
    NotFoundError,
    UnreachableError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from harbourmaster.kube.client import Client

T = TypeVar("T")

KNOWN_SECONDS: Final = 600.0
"""Seconds for which an answer is cached; a kind that it lacks is looked up again at once."""
MISSING_SECONDS: Final = 5.0
"""Seconds for which the absence of a kind is cached."""


class UnknownKindError(Exception):
    """The API server does not serve the kind."""


class _Served(Struct, frozen=True, gc=False):
    name: str = ""
    kind: str = ""
    namespaced: bool = False
    verbs: tuple[str, ...] = ()


class _ResourceList(Struct, frozen=True, gc=False):
    resources: tuple[_Served, ...] | None = None


class _Version(Struct, frozen=True, gc=False, rename="camel"):
    group_version: str = ""


class _Group(Struct, frozen=True, gc=False):
    versions: tuple[_Version, ...] = ()


class _GroupList(Struct, frozen=True, gc=False):
    groups: tuple[_Group, ...] | None = None


class _Answer(Struct, frozen=True):
    at: float
    resources: dict[str, Resource]


_decode: Final = msgspec.json.Decoder(_ResourceList).decode
_decode_groups: Final = msgspec.json.Decoder(_GroupList).decode


class Discovery:
    """The kinds of one API server, by the versions of their groups."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._answers: dict[str, _Answer] = {}
        self._turns: dict[str, asyncio.Lock] = {}

    async def resource(self, api_version: str, kind: str) -> Resource:
        """Where objects of a manifest's apiVersion and kind are.

        Raises UnknownKindError, or an ApiError where the API server does not say.
        """
        # Concurrent callers share one request.
        async with self._turns.setdefault(api_version, asyncio.Lock()):
            answer = self._answers.get(api_version)
            if answer is None or self._is_old(answer, kind):
                answer = self._answers[api_version] = await self._ask(api_version)
        found = answer.resources.get(kind)
        if found is None:
            raise UnknownKindError(f"the cluster does not serve kind {kind} in {api_version}")
        return found

    async def listable(self) -> tuple[Resource, ...]:
        """All that can be listed, each in the first version of its group that has it, asked anew.

        Raises an ApiError where the API server does not say all of it.
        """
        found: dict[tuple[str, str], Resource] = {}
        for api_version in ("v1", *await self.versions()):
            group, _, version = api_version.rpartition("/")
            for each in await self._served(api_version):
                if "list" in each.verbs:
                    resource = Resource(group, version, each.name, each.kind, each.namespaced)
                    found.setdefault((group, each.name), resource)
        return tuple(found.values())

    async def versions(self) -> tuple[str, ...]:
        """The versions of all groups but the core. Raises an ApiError."""
        body = await self._client.request("GET", "/apis")
        groups = _read(_decode_groups, body, "/apis").groups or ()
        return tuple(each.group_version for group in groups for each in group.versions)

    async def kinds(self, versions: Iterable[str]) -> tuple[str, ...]:
        """``apiVersion/kind`` of all kinds in these, ``apiVersion/*`` for what it does not say.

        Raises UnreachableError.
        """
        found = set()
        for api_version in versions:
            try:
                kinds = {each.kind for each in await self._served(api_version)}
            except UnreachableError:
                raise
            except ApiError:
                # One of an extension API server that is down.
                kinds = {"*"}
            found |= {f"{api_version}/{kind}" for kind in kinds}
        return tuple(sorted(found))

    def forget(self, api_version: str) -> None:
        """Ask again: what was found is there no more."""
        self._answers.pop(api_version, None)

    def _is_old(self, answer: _Answer, kind: str) -> bool:
        seconds = KNOWN_SECONDS if kind in answer.resources else MISSING_SECONDS
        return _now() - answer.at >= seconds

    async def _ask(self, api_version: str) -> _Answer:
        group, _, version = api_version.rpartition("/")
        return _Answer(
            _now(),
            {
                each.kind: Resource(group, version, each.name, each.kind, each.namespaced)
                for each in await self._served(api_version)
            },
        )

    async def _served(self, api_version: str) -> list[_Served]:
        group, _, version = api_version.rpartition("/")
        try:
            path = _path(group, version)
            body = await self._client.request("GET", path)
        except (ValueError, NotFoundError):
            return []
        found = _read(_decode, body, path).resources or ()
        # The others are parts of one, such as deployments/scale.
        return [each for each in found if each.name and "/" not in each.name]


def _read(decode: Callable[[bytes], T], body: bytes, path: str) -> T:
    try:
        return decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadAnswerError(str(error), status=200, call=f"get {path}") from error


def _path(group: str, version: str) -> str:
    """Where the kinds of a version are listed. Raises ValueError for what can be none."""
    # Quoted as the paths below it are.
    return Resource(group, version, "x", "X").path().removesuffix("/x")


def _now() -> float:
    return asyncio.get_running_loop().time()
