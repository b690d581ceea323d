"""The verbs of the API: raw JSON in and out, errors by class.

Answers are bytes, which the caller decodes. The objects of a page are views into its buffer, so
keeping one keeps the whole page in memory: decode it at once, or copy it.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import msgspec
from msgspec import Struct

from harbourmaster.kube.errors import BadAnswerError, NotFoundError, UnreachableError, error_from
from harbourmaster.kube.peer_bounds import MAX_ANSWER, MAX_BRACKETS, MIN_VALUE
from harbourmaster.kube.streams import LineSplitter, LineTooLongError, WatchEvent, shallow
from harbourmaster.kube.transport import JSON, Request, Transport

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

    from harbourmaster.api.patches import Patch
    from harbourmaster.api.resources import Resource
    from harbourmaster.kube.connection import Connection
    from harbourmaster.kube.peer_bounds import PeerBounds
    from harbourmaster.kube.transport import Observer

T = TypeVar("T")

PAGE_SIZE: Final = 500
_TABLE: Final = "application/json;as=Table;g=meta.k8s.io;v=v1"
_PARTIAL: Final = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1,application/json"


class ListPage(Struct, frozen=True, gc=False):
    """A part of a list. ``continue_token`` is empty on the last one."""

    items: tuple[msgspec.Raw, ...]
    resource_version: str
    continue_token: str


class _ListMetadata(Struct, frozen=True, gc=False, rename="camel"):
    resource_version: str
    continue_token: str | None = msgspec.field(default=None, name="continue")


class _List(Struct, frozen=True, gc=False):
    metadata: _ListMetadata
    items: tuple[msgspec.Raw, ...] | None


class _Column(Struct, frozen=True, gc=False):
    name: str


class _Row(Struct, frozen=True, gc=False):
    cells: tuple[Any, ...]


class _Table(Struct, frozen=True, gc=False, rename="camel"):
    metadata: _ListMetadata
    column_definitions: tuple[_Column, ...]
    rows: tuple[_Row, ...] | None = None


_PART_OF_LISTED: Final = 5
"""Levels of a page down to a value such as metadata.labels of one of its objects."""
_PART_OF_WATCHED: Final = 4
_UNREADABLE: Final = (msgspec.DecodeError, RecursionError)
"""RecursionError: the JSON is nested too deeply."""
_decode_list: Final = msgspec.json.Decoder(_List).decode
_decode_table: Final = msgspec.json.Decoder(_Table).decode
_decode_event: Final = msgspec.json.Decoder(WatchEvent).decode
_decode_any: Final = msgspec.json.Decoder(msgspec.Raw).decode


class Client:
    """A client of one API server: ``async with Client(connection) as client``.

    Every method raises an ApiError of ``harbourmaster.kube.errors``. The environment
    (proxies, netrc) is ignored, and redirects are not followed.
    """

    def __init__(  # noqa: PLR0913 - whom to talk to, and how
        self,
        connection: Connection,
        *,
        user_agent: str = "harbourmaster",
        timeout: float = 10.0,
        write_timeout: float | None = None,
        retries: int = 3,
        observer: Observer | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        bounds: PeerBounds | None = None,
    ) -> None:
        """``timeout`` is for one request and its whole answer, in seconds; repetitions add to it.

        ``write_timeout`` replaces it for requests that change something.
        A request is repeated, up to ``retries`` times, where the server says when (429 or 5xx with
        Retry-After); a GET also once if the connection is lost.
        ``bounds`` limit what a server that is not trusted sends.
        """
        self.bounds = bounds
        self.connection = connection
        self.listing = asyncio.Lock()
        """Held by a cache while it reads a page, so that there is one in memory at a time."""
        self.greeting = b""
        """The answer to GET /version with which a command begins; empty if there is none."""
        self._transport = Transport(
            connection,
            user_agent=user_agent,
            timeout=timeout,
            write_timeout=write_timeout,
            retries=retries,
            observer=observer,
            sleep=sleep,
            bounds=bounds,
        )

    async def __aenter__(self) -> Self:
        self._transport.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._transport.close()

    def renew(self, connection: Connection) -> None:
        """Send further requests with other credentials for the same server."""
        self.connection = self._transport.connection = connection

    async def get(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        metadata_only: bool = False,
    ) -> bytes:
        """Return one object."""
        accept = _PARTIAL.format("") if metadata_only else JSON
        path = resource.path(namespace, name)
        return await self._object(Request("get", "GET", path, accept=accept))

    async def list(  # noqa: PLR0913 - what the API takes
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        limit: int = PAGE_SIZE,
        continue_token: str = "",
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str = "",
        metadata_only: bool = False,
        retries: int | None = None,
        max_bytes: int | None = None,
    ) -> ListPage:
        """Return one page. A ``continue_token`` too old is a GoneError.

        A page of more than ``max_bytes`` is a TooLargeError.
        """
        query = {
            "limit": str(limit),
            "continue": continue_token,
            "labelSelector": label_selector,
            "fieldSelector": field_selector,
            "resourceVersion": resource_version,
        }
        accept = _PARTIAL.format("List") if metadata_only else JSON
        request = Request(
            "list", "GET", resource.path(namespace), _without_empty(query), accept=accept
        )
        body = await self._transport.answer(request, retries=retries, max_bytes=max_bytes)
        if self.bounds is not None and body.count(b",") > len(body) // MIN_VALUE:
            raise self.bounds.exceed("a page of too many values", request.call)
        page = self._read(_decode_list, body, _PART_OF_LISTED, request)
        return ListPage(
            items=page.items or (),
            resource_version=page.metadata.resource_version,
            continue_token=page.metadata.continue_token or "",
        )

    async def table(
        self, resource: Resource, namespace: str, continue_token: str = "", **selectors: str
    ) -> tuple[tuple[dict[str, Any], ...], str]:
        """Return one page of a list as kubectl prints it: 300 bytes for a pod. Raises ApiError.

        Rows have texts or numbers by column; the token is empty after the last page. ``selectors``
        are ``labelSelector`` and ``fieldSelector``.
        """
        query = {"limit": str(PAGE_SIZE), "continue": continue_token, "includeObject": "None"}
        query = _without_empty(query | selectors)
        request = Request("list", "GET", resource.path(namespace), query, accept=_TABLE)
        body = await self._transport.answer(request)
        table = self._read(_decode_table, body, _PART_OF_LISTED, request)
        columns = [column.name for column in table.column_definitions]
        rows = (dict(zip(columns, row.cells, strict=False)) for row in table.rows or ())
        return tuple(rows), table.metadata.continue_token or ""

    async def watch(  # noqa: PLR0913 - what the API takes
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        resource_version: str,
        timeout_seconds: int,
        idle_timeout: float,
        label_selector: str = "",
        field_selector: str = "",
        bookmarks: bool = True,
        send_initial_events: bool = False,
        metadata_only: bool = False,
    ) -> AsyncGenerator[WatchEvent, None]:
        """Yield the events after ``resource_version``; ``send_initial_events`` adds all objects.

        Ends when the server ends it, which it should after ``timeout_seconds``. Raises the error of
        an ERROR event (a GoneError for a version too old), UnreachableError after ``idle_timeout``
        seconds without a byte, BadAnswerError for anything that is not an event. Nothing is
        repeated here. Close the generator (``contextlib.aclosing``) if you leave before its end.
        """
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true" if bookmarks else "",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(timeout_seconds),
            "labelSelector": label_selector,
            "fieldSelector": field_selector,
            "sendInitialEvents": "true" if send_initial_events else "",
            "resourceVersionMatch": "NotOlderThan" if send_initial_events else "",
        }
        accept = _PARTIAL.format("") if metadata_only else JSON
        request = Request(
            "watch", "GET", resource.path(namespace), _without_empty(query), accept=accept
        )
        lines = LineSplitter() if self.bounds is None else LineSplitter(MAX_ANSWER)
        held = 0
        # After that, the connection to a server that never ends its answer is closed.
        chunks = self._transport.chunks(
            request, total=timeout_seconds + idle_timeout, idle=idle_timeout
        )
        try:
            async with aclosing(chunks):
                async for chunk in chunks:
                    whole = lines.feed(chunk)
                    self._transport.hold(lines.size - held, request)
                    held = lines.size
                    for line in whole:
                        yield self._event(line, request)
                    if self.bounds is not None:
                        # Lines without an event take time, too.
                        await self.bounds.pause(chunk.count(b"\n") - len(whole), 0)
        except LineTooLongError as error:
            raise self._too_large(str(error), request) from error
        finally:
            self._transport.hold(-held, request)
        if lines.pending:
            raise UnreachableError("the stream ended within a line", call=request.call)

    async def create(
        self,
        resource: Resource,
        obj: object,
        namespace: str | None = None,
        *,
        dry_run: bool = False,
    ) -> bytes:
        """Create an object, given as JSON or as what msgspec can encode; returns what is stored."""
        request = Request(
            "create", "POST", resource.path(namespace), _dry(dry_run), _encode(obj), JSON
        )
        return await self._object(request)

    async def replace(
        self,
        resource: Resource,
        name: str,
        obj: object,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
    ) -> bytes:
        """Replace an object; raises ConflictError if its resourceVersion is not the current one."""
        path = resource.path(namespace, name, subresource)
        return await self._object(
            Request("update", "PUT", path, body=_encode(obj), content_type=JSON)
        )

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: Patch,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
        dry_run: bool = False,
    ) -> bytes:
        """Patch an object; returns what is stored."""
        request = Request(
            "patch",
            "PATCH",
            resource.path(namespace, name, subresource),
            {**patch.query, **_dry(dry_run)},
            patch.encode(),
            patch.content_type,
        )
        return await self._object(request)

    async def delete(  # noqa: PLR0913 - what the API takes
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: str | None = None,
        missing_ok: bool = False,
    ) -> None:
        """Delete an object; with ``uid`` only that object, else ConflictError.

        With ``resource_version``, it must not have changed either.
        ``propagation`` is Orphan, Background or Foreground.
        """
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        if resource_version is not None:
            options.setdefault("preconditions", {})["resourceVersion"] = resource_version
        if propagation is not None:
            options["propagationPolicy"] = propagation
        path = resource.path(namespace, name)
        try:
            await self._object(
                Request("delete", "DELETE", path, body=_encode(options), content_type=JSON)
            )
        except NotFoundError:
            if not missing_ok:
                raise

    async def request(  # noqa: PLR0913 - what HTTP takes
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - for each attempt
        retries: int | None = None,
    ) -> bytes:
        """Any other request; ``path`` is quoted already. Returns the answer, which is JSON."""
        request = Request(method.lower(), method, path, query or {}, body, content_type or "")
        return await self._object(request, seconds=timeout, retries=retries)

    async def _object(
        self, request: Request, *, seconds: float | None = None, retries: int | None = None
    ) -> bytes:
        body = await self._transport.answer(request, seconds=seconds, retries=retries)
        try:
            _decode_any(body)
        except _UNREADABLE as error:
            raise self._misunderstood(body, request, error) from error
        return body

    def _read(self, decode: Callable[[bytes], T], body: bytes, level: int, request: Request) -> T:
        """Decode an answer; a value that is nested too deeply in an object becomes a text."""
        try:
            try:
                return decode(body)
            except RecursionError:
                if self.bounds and body.count(b"[") + body.count(b"{") > MAX_BRACKETS:
                    raise self._too_large("it is nested too deeply", request) from None
                return decode(shallow(body, level))
        except _UNREADABLE as error:
            raise self._misunderstood(body, request, error) from error

    def _event(self, line: bytes, request: Request) -> WatchEvent:
        event = self._read(_decode_event, line, _PART_OF_WATCHED, request)
        if event.type == "ERROR":
            raise error_from(0, self._transport.redact(bytes(event.object)), call=request.call)
        return event

    def _too_large(self, text: str, request: Request) -> BadAnswerError:
        if self.bounds is not None:
            return self.bounds.exceed(text, request.call)
        return BadAnswerError(text, status=HTTPStatus.OK, call=request.call)

    def _misunderstood(self, body: bytes, request: Request, error: Exception) -> BadAnswerError:
        """Return the error of an answer with a good status and a body of another form."""
        beginning = self._transport.redact(body)[:100].decode(errors="replace")
        return BadAnswerError(f"{error}: {beginning}", status=HTTPStatus.OK, call=request.call)


def _without_empty(query: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in query.items() if value}


def _dry(dry_run: bool) -> dict[str, str]:
    return {"dryRun": "All"} if dry_run else {}


def _encode(obj: object) -> bytes:
    return obj if isinstance(obj, bytes) else msgspec.json.encode(obj)
