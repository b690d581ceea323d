"""Discovery: the paths of kinds that are unknown at build time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeVar
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct

from harbourmaster.api.resources import Resource
from harbourmaster.kube.errors import (
    ApiError,
    BadAnswerError,
    NotFoundError,
    UnreachableError,
)
from harbourmaster.kube.peer_bounds import OBJECT_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from harbourmaster.kube.client import Client
    from harbourmaster.kube.peer_bounds import PeerBounds

T = TypeVar("T")

MAX_VERSIONS: Final = 1000
"""Versions of API groups of a server that is not trusted; large ones have about 200."""
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
    held: int = 0
    """Bytes that count for the limits of a server that is not trusted."""


_decode: Final = msgspec.json.Decoder(_ResourceList).decode
_decode_groups: Final = msgspec.json.Decoder(_GroupList).decode


class Discovery:
    """The kinds of one API server, by the versions of their groups."""

    def __init__(self, client: Client, bounds: PeerBounds | None = None) -> None:
        self._client = client
        self._bounds = bounds
        self._answers: dict[str, _Answer] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def resource(self, api_version: str, kind: str) -> Resource:
        """Return the resource of a manifest's apiVersion and kind.

        Raises UnknownKindError, or an ApiError if the API server does not answer.
        """
        resource = (await self._answer(api_version, kind)).get(kind)
        if resource is None:
            raise UnknownKindError(f"the cluster does not serve kind {kind} in {api_version}")
        return resource

    async def listable(self) -> tuple[Resource, ...]:
        """Return all that can be listed, each in the first version of its group that has it.

        They are requested again. Raises an ApiError if any answer is missing.
        """
        resources: dict[tuple[str, str], Resource] = {}
        for api_version in ("v1", *await self._versions()):
            group, _, version = api_version.rpartition("/")
            for served in await self._list(api_version):
                if "list" in served.verbs:
                    resource = Resource(group, version, served.name, served.kind, served.namespaced)
                    resources.setdefault((group, served.name), resource)
        return tuple(resources.values())

    async def kinds(self) -> tuple[str, ...]:
        """Return ``apiVersion/kind`` of all kinds in groups with a dot, as far as they are cached.

        ``apiVersion/*`` stands for an extension API server that is down. Raises an ApiError if the
        API server itself does not answer.
        """
        served = set()
        for api_version in await self._versions():
            if "." not in api_version.partition("/")[0]:
                continue
            try:
                kinds = iter(await self._answer(api_version))
            except UnreachableError:
                raise
            except ApiError:
                kinds = iter("*")
            served |= {f"{api_version}/{kind}" for kind in kinds}
        return tuple(sorted(served))

    def forget(self, api_version: str = "") -> None:
        """Remove the cached answers of a version, by default of all."""
        for version in [api_version] if api_version else list(self._answers):
            if answer := self._answers.pop(version, None):
                self._hold(-answer.held)

    async def _versions(self) -> list[str]:
        """Return the versions of all groups except the core."""
        body = await self._client.request("GET", "/apis")
        groups = _read(_decode_groups, body, "/apis").groups or ()
        versions = [version.group_version for group in groups for version in group.versions]
        if self._bounds is not None and len(versions) > MAX_VERSIONS:
            text = f"more than {MAX_VERSIONS} versions of API groups"
            raise self._bounds.exceed(text, "get /apis")
        return versions

    async def _answer(self, api_version: str, kind: str | None = None) -> dict[str, Resource]:
        """Return the kinds of a version, requested again if they are old or lack ``kind``."""
        # Concurrent callers share one request.
        async with self._locks.setdefault(api_version, asyncio.Lock()):
            answer = self._answers.get(api_version)
            if answer is None or self._is_old(answer, kind):
                answer = await self._ask(api_version)
                self.forget(api_version)
                self._hold(answer.held)
                self._answers[api_version] = answer
        return answer.resources

    def _is_old(self, answer: _Answer, kind: str | None) -> bool:
        is_known = kind is None or kind in answer.resources
        seconds = KNOWN_SECONDS if is_known else MISSING_SECONDS
        return _now() - answer.at >= seconds

    async def _ask(self, api_version: str) -> _Answer:
        group, _, version = api_version.rpartition("/")
        resources = {
            served.kind: Resource(group, version, served.name, served.kind, served.namespaced)
            for served in await self._list(api_version)
        }
        texts = sum(len(resource.plural + kind) for kind, resource in resources.items())
        # ``kinds`` repeats the version for each; one without any takes memory, too.
        size = OBJECT_BYTES + len(api_version)
        return _Answer(_now(), resources, size * (len(resources) + 1) + texts)

    def _hold(self, change: int) -> None:
        if self._bounds is not None:
            self._bounds.hold(change, "get /apis")

    async def _list(self, api_version: str) -> list[_Served]:
        group, _, version = api_version.rpartition("/")
        try:
            path = _path(group, version)
            body = await self._client.request("GET", path)
        except (ValueError, NotFoundError):
            return []
        resources = _read(_decode, body, path).resources or ()
        # The others are parts of a resource, such as deployments/scale.
        return [served for served in resources if served.name and "/" not in served.name]


def _read(decode: Callable[[bytes], T], body: bytes, path: str) -> T:
    try:
        return decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadAnswerError(str(error), status=200, call=f"get {path}") from error


def _path(group: str, version: str) -> str:
    """Return the path of a version. Raises ValueError for an impossible one."""
    # Quoted as the paths below it are.
    return Resource(group, version, "x", "X").path().removesuffix("/x")


def _now() -> float:
    return asyncio.get_running_loop().time()
