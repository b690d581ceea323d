"""Reads a cluster for one command: each object and each list is asked for once."""

from __future__ import annotations

import asyncio
import os
import re
import socket
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from msgspec import Struct

from harbourmaster.api.names import did_you_mean
from harbourmaster.api.times import moment
from harbourmaster.cli.live.cluster import collect, complain, count
from harbourmaster.cli.live.kinds import decode_anything, metadata_in
from harbourmaster.kube.errors import (
    ApiError,
    ForbiddenError,
    NotFoundError,
    UnauthorizedError,
    UnreachableError,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from harbourmaster.api.metadata import Metadata
    from harbourmaster.api.resources import Resource
    from harbourmaster.kube.client import Client

T = TypeVar("T")

_WIDTH: Final = 16
"""Requests that are under way at one time."""
_REVIEWS: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_FORBIDDEN: Final = re.compile(
    r"""cannot (?P<verb>\w+) resource "(?P<resource>[^"]+)" in API group "(?P<group>[^"]*)"""
    r"""(?:.*in the namespace "(?P<namespace>[^"]+)")?"""
)
_NOT_INSTALLED: Final = (
    "the cluster does not know the kind: install its definition (kubectl apply --server-side -k "
    "deploy/crds), unless that part is not wanted"
)
on_unread: ContextVar[Callable[[str], object]] = ContextVar("unread", default=complain)
"""Gets one line for each object of a list that cannot be read."""
on_missing_kind: ContextVar[Callable[[Resource], object]] = ContextVar(
    "absent", default=lambda _: None
)
"""Gets each kind of which ``items`` found nothing because the cluster does not know it."""


async def run_together(*doing: Coroutine[Any, Any, T]) -> list[T]:
    """Return the results of all coroutines in their order; if one fails, cancel the others."""
    tasks = [asyncio.create_task(coroutine) for coroutine in doing]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Caller(Struct, frozen=True):
    """The user that the API server sees; no name, and our own time, where it does not say."""

    name: str
    now: datetime
    is_known: bool = False


async def caller(client: Client) -> Caller:
    """Ask the API server which user calls, and what time it has."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        answer = await client.request(
            "POST", _REVIEWS, body=msgspec.json.encode(body), content_type="application/json"
        )
        anything = decode_anything(answer)
        user, stamp = (
            anything["status"]["userInfo"],
            moment(anything["metadata"]["creationTimestamp"]),
        )
    except (ApiError, msgspec.DecodeError, LookupError, TypeError):
        return Caller("", datetime.now(UTC))
    return Caller(user.get("username", ""), stamp or datetime.now(UTC), stamp is not None)


async def caller_name(client: Client) -> str:
    """The user's name; where the API server doesn't say, that on this machine."""
    name = (await caller(client)).name
    return name or f"unknown ({os.environ.get('USER', '?')} on {socket.gethostname()})"


class ClusterReader:
    """One look at a cluster.

    ``faults`` has one line for each thing that ``attempt`` could not read.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self._known: dict[object, asyncio.Task[Any]] = {}
        self._width = asyncio.Semaphore(_WIDTH)
        self.faults: list[str] = []

    async def close(self) -> None:
        """Leave nothing under way."""
        for task in self._known.values():
            task.cancel()
        await asyncio.gather(*self._known.values(), return_exceptions=True)

    async def once(self, key: object, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the result of the first ``make`` for a key; its error is raised to all callers."""
        if key not in self._known:
            self._known[key] = task = asyncio.create_task(make())
            # It may fail when no caller waits for it any more.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
        result: T = await asyncio.shield(self._known[key])
        return result

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> bytes:
        """One object's JSON. Raises an ApiError; ``is_kind_missing`` tells one NotFoundError."""

        async def ask() -> bytes:
            async with self._width:
                return await self.client.get(resource, name, namespace)

        return await self.once((resource, namespace, name), ask)

    async def find(
        self, resource: Resource, name: str, namespace: str | None = None
    ) -> bytes | None:
        """Return one object's JSON, or None if it does not exist. Raises an ApiError."""
        try:
            return await self.get(resource, name, namespace)
        except NotFoundError:
            return None

    async def read(
        self,
        resource: Resource,
        name: str,
        decode: Callable[[bytes], T],
        namespace: str | None = None,
    ) -> T | None:
        """Return one object, decoded, or None if it does not exist. Raises an ApiError."""
        raw = await self.find(resource, name, namespace)
        return decode(raw) if raw is not None else None

    async def list_all(
        self,
        resource: Resource,
        pick: Callable[[msgspec.Raw], T | None],
        namespace: str | None = None,
        *,
        skipped: Callable[[str], object] | None = None,
        **options: Any,  # noqa: ANN401 - those of ``collect``
    ) -> list[T]:
        """Return the results of ``pick`` for all objects of a kind.

        ``skipped``, by default ``unread``, gets a line for each that it can't read. Raises an
        ApiError.
        """

        async def ask() -> tuple[list[T], list[str]]:
            lines: list[str] = []
            async with self._width:
                objects = await collect(
                    self.client,
                    resource,
                    pick,
                    namespace=namespace,
                    unread=lines.append,
                    **options,
                )
            return objects, lines

        key = ("list", resource, namespace, pick, tuple(sorted(options.items())))
        objects, lines = await self.once(key, ask)
        while lines:
            # Told once, however often the list is asked for.
            (skipped or on_unread.get())(lines.pop(0))
        return objects

    async def items(
        self,
        resource: Resource,
        pick: Callable[[msgspec.Raw], T | None],
        namespace: str | None = None,
        **options: Any,  # noqa: ANN401 - those of ``collect``
    ) -> list[T]:
        """Return the results of ``pick`` for all objects; none for a kind that is not installed."""
        try:
            return await self.list_all(resource, pick, namespace, **options)
        except (ForbiddenError, NotFoundError) as error:
            # Permissions are checked first, and most roles have none for kinds of others.
            if isinstance(error, ForbiddenError) and await self._is_served(resource):
                raise
            on_missing_kind.get()(resource)
            return []

    async def _is_served(self, resource: Resource) -> bool:
        """Whether the version of the kind is among those that the API server has."""
        path = f"/apis/{resource.group}/{resource.version}" if resource.group else "/api/v1"
        try:
            await self.client.request("GET", path)
        except NotFoundError:
            return False
        return True

    async def metadata(
        self,
        resource: Resource,
        namespace: str | None = None,
        **options: Any,  # noqa: ANN401
    ) -> list[Metadata]:
        """The metadata of every object. Raises an ApiError."""
        return await self.list_all(resource, metadata_in, namespace, metadata_only=True, **options)

    async def not_found(
        self, error: NotFoundError, resource: Resource, name: str, namespace: str
    ) -> str:
        """Return the message for a missing object, with a similar name if there is one."""
        if is_kind_missing(error):
            return f"the cluster does not know the kind {resource.kind}"
        try:
            listed = await self.metadata(resource, namespace or None)
            known = [metadata.name for metadata in listed]
        except ApiError:
            known = []
        where, place = (f" -n {namespace}", f"{namespace}/") if namespace else ("", "")
        look = f"kubectl{where} get {resource.command_name} lists those that exist"
        return f"{resource.kind} {place}{name} not found: {did_you_mean(name, known) or look}"

    async def count(self, resource: Resource, namespace: str | None = None) -> int:
        """Count the objects of a kind. Raises an ApiError."""

        async def ask() -> int:
            async with self._width:
                return await count(self.client, resource, namespace)

        return await self.once(("count", resource, namespace), ask)

    async def attempt(self, looking: Awaitable[T], default: T) -> T:
        """The result, or ``default``; unless it is only not there, a line of ``faults`` says why.

        Raises UnreachableError.
        """
        try:
            return await looking
        except UnreachableError:
            raise
        except NotFoundError:
            return default
        except ApiError as error:
            self.faults.append(cause(error))
            return default

    async def caller(self) -> Caller:
        """Return the user of this command, and the API server's time."""
        return await self.once("caller", lambda: caller(self.client))


def is_kind_missing(error: NotFoundError) -> bool:
    """Whether the API server lacks the kind, and not only the object: a Status says the latter."""
    return not error.reason


def raise_unusable(error: ApiError) -> None:
    """Raise what ends every look at a cluster."""
    if isinstance(error, (UnreachableError, UnauthorizedError)):
        raise error


def read_error(error: ApiError, what: str) -> str:
    """Why ``what`` can't be read and what to do, in one line.

    Raises the error where no cluster can be read at all.
    """
    raise_unusable(error)
    if isinstance(error, NotFoundError) and is_kind_missing(error):
        return f"{what}: {_NOT_INSTALLED}"
    return f"{what} could not be read: {cause(error)}"


def cause(error: ApiError) -> str:
    """Why a call failed, in one line; of a missing permission only its verb and resource."""
    if isinstance(error, ForbiddenError):
        return f"missing permission to {permission_of(error) or f'read it ({error.message})'}"
    return str(error)


def permission_of(error: ForbiddenError) -> str:
    """The missing permission: verb, resource and namespace; empty where the text is not usual."""
    match = _FORBIDDEN.search(error.message)
    if match is None:
        return ""
    group = f".{match['group']}" if match["group"] else ""
    where = f" in namespace {match['namespace']}" if match["namespace"] else ""
    return f"{match['verb']} {match['resource']}{group}{where}"
