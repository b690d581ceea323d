"""One request and its answer: authorised, limited in time and size, retried if that is safe."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from http import HTTPStatus
from io import BytesIO
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import urlencode

import aiohttp
from msgspec import Struct
from yarl import URL

from harbourmaster import __version__
from harbourmaster.api.credentials import redact_bytes, secret_forms
from harbourmaster.kube import peer_bounds
from harbourmaster.kube.errors import (
    ApiError,
    ConnectionSettingsError,
    TooLargeError,
    UnauthorizedError,
    UnreachableError,
    error_from,
)
from harbourmaster.telemetry.peer_protocol import PIECE, PeerLimitError
from harbourmaster.telemetry.transport_errors import explain, was_cut_off

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable

    from harbourmaster.kube.connection import Connection
    from harbourmaster.kube.peer_bounds import PeerBounds

Observer: TypeAlias = Callable[[str, int, float], None]
"""Called for each answer: verb, status (0 for none), seconds until its head."""

MAX_ANSWER: Final = 64 * 1024 * 1024
"""Bytes of one answer, where etcd takes up to 1.5 MiB for an object."""
CONNECT_SECONDS: Final = 5.0
MIN_WAIT: Final = 1.0
"""Seconds before a repetition, also where the server says 0."""
JSON: Final = "application/json"
MAX_ERROR: Final = 1024 * 1024
"""Bytes of an answer of a server that is not trusted, if it is an error."""
_BUFFER: Final = 64 * 1024
_PIECE: Final = 1024 * 1024
"""Bytes that are sent at once."""


class Request(Struct, frozen=True, gc=False):
    """One request. ``path`` is quoted already; ``verb`` is the one of permissions."""

    verb: str
    method: str
    path: str
    query: Mapping[str, str] = {}
    body: bytes | None = None
    content_type: str = ""
    accept: str = JSON

    @property
    def call(self) -> str:
        """The name of the request in errors."""
        return f"{self.verb} {self.path}"


class Transport:
    """The connections to one API server; every failure is an ApiError."""

    def __init__(  # noqa: PLR0913 - whom to talk to, and how
        self,
        connection: Connection,
        *,
        user_agent: str,
        timeout: float,
        retries: int,
        observer: Observer | None,
        sleep: Callable[[float], Awaitable[None]],
        write_timeout: float | None = None,
        bounds: PeerBounds | None = None,
    ) -> None:
        self.bounds = bounds
        self.connection = connection
        self._user_agent = f"{user_agent}/{__version__}"
        self._timeout = timeout
        self._write_timeout = timeout if write_timeout is None else write_timeout
        self._retries = retries
        self._observer = observer
        self._sleep = sleep
        self._session: aiohttp.ClientSession | None = None
        self._secret = ""
        """The token that was sent last."""

    def open(self) -> None:
        """Create the session; needs a running loop."""
        self._session = aiohttp.ClientSession(
            connector=(self.connection.connector or _connector)(),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            timeout=_timeouts(self._timeout),
            # Compression costs both sides more than a cluster's network does.
            headers={"User-Agent": self._user_agent, "Accept-Encoding": "identity"},
            auto_decompress=self.bounds is None,
            read_bufsize=_BUFFER if self.bounds is None else PIECE,
        )
        # aiohttp repeats PUT and DELETE where a used connection breaks, though they may be done.
        self._session._retry_connection = False  # noqa: SLF001 - there is no other switch

    async def close(self) -> None:
        """End all connections, those of running requests too."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def answer(
        self,
        request: Request,
        *,
        seconds: float | None = None,
        retries: int | None = None,
        max_bytes: int | None = None,
    ) -> bytes:
        """Return the whole answer, after the retries that are safe.

        ``seconds`` are for each attempt; ``retries`` 0 allows none of any kind. Raises
        TooLargeError for more than ``max_bytes``, by default MAX_ANSWER.
        """
        usual = self._timeout if request.method == "GET" else self._write_timeout
        timeouts = _timeouts(usual if seconds is None else seconds)
        left = self._retries if retries is None else retries
        may_resend = request.method == "GET" and left > 0
        while True:
            try:
                response = await self._send_authorised(request, timeouts)
                async with response:
                    return await self._read(response, request, max_bytes)
            except UnreachableError as error:
                if not may_resend or not was_cut_off(error.__cause__):
                    raise
                may_resend = False
            except ApiError as error:
                if left <= 0 or not _asks_to_repeat(error):
                    raise
                left -= 1
                wait = max(error.retry_after or 0.0, MIN_WAIT)
                # Spread, as all others were sent away for the same time.
                await self._sleep(wait * random.uniform(1.0, 1.2))  # noqa: S311 - no secret

    async def chunks(
        self, request: Request, *, total: float, idle: float
    ) -> AsyncGenerator[bytes, None]:
        """Yield the chunks of a long answer as they come; its head has the usual time limit."""
        timeouts = aiohttp.ClientTimeout(total=total, sock_connect=CONNECT_SECONDS, sock_read=idle)
        response = await self._send_authorised(request, timeouts)
        async with response:
            try:
                async for chunk in response.content.iter_any():
                    yield chunk
            except (aiohttp.ClientError, OSError) as error:
                raise self._unreachable(error, request) from error

    async def _send_authorised(
        self, request: Request, timeouts: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        """Return the head of a good answer; a refused token is renewed once."""
        try:
            return await self._send(request, timeouts)
        except UnauthorizedError as error:
            if error.status != HTTPStatus.UNAUTHORIZED or self.connection.refused is None:
                raise
        self.connection.refused()
        return await self._send(request, timeouts)

    async def _send(
        self, request: Request, timeouts: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        if self._session is None:
            raise RuntimeError("the client is not open: use it in async with")
        headers = await self._headers(request)
        if request.method != "GET":
            # A former leader whose process stood still within this step must not write after it.
            await asyncio.sleep(0)
        loop = asyncio.get_running_loop()
        started, status = loop.time(), 0
        try:
            # A stream may be silent for long, but its head comes at once.
            async with asyncio.timeout(self._timeout if timeouts.sock_read else None):
                response = await self._session.request(
                    request.method,
                    self._url(request),
                    data=_payload(request.body),
                    headers=headers,
                    timeout=timeouts,
                    allow_redirects=False,
                    server_hostname=self.connection.server_name,
                    ssl=self.connection.ssl or True,
                )
            status = response.status
        except (aiohttp.ClientError, OSError) as error:
            raise self._unreachable(error, request) from error
        finally:
            if self._observer is not None:
                self._observer(request.verb, status, loop.time() - started)
        if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
            return response
        async with response:
            most = None if self.bounds is None else MAX_ERROR
            body = self.redact(await self._read(response, request, most))
        raise error_from(status, body, response.headers, call=request.call)

    async def _headers(self, request: Request) -> dict[str, str]:
        headers = {"Accept": request.accept}
        if request.content_type:
            headers["Content-Type"] = request.content_type
        if self.connection.token is not None:
            try:
                token = await self.connection.token()
            except ConnectionSettingsError as error:
                raise UnauthorizedError(f"no credentials: {error}", call=request.call) from error
            if token is not None:
                self._secret = token
                headers["Authorization"] = f"Bearer {token}"
        return headers

    async def _read(
        self, response: aiohttp.ClientResponse, request: Request, max_bytes: int | None = None
    ) -> bytes:
        chunks, size = [], 0
        limit = MAX_ANSWER if self.bounds is None else peer_bounds.MAX_ANSWER
        most = limit if max_bytes is None else min(max_bytes, limit)
        try:
            async for chunk in response.content.iter_any():
                if size + len(chunk) > most:
                    text = f"an answer of more than {most} bytes"
                    if self.bounds is not None and most == limit:
                        raise self.bounds.exceed(text, request.call)
                    raise TooLargeError(text, status=response.status, call=request.call)
                self.hold(len(chunk), request)
                size += len(chunk)
                chunks.append(chunk)
        except (aiohttp.ClientError, OSError) as error:
            raise self._unreachable(error, request) from error
        finally:
            self.hold(-size, request)
        return b"".join(chunks)

    def hold(self, change: int, request: Request) -> None:
        """Hold so many bytes more or less of an answer. Raises ExcessError."""
        if self.bounds is not None:
            self.bounds.hold(change, request.call)

    def redact(self, body: bytes) -> bytes:
        """Remove our credentials from an answer that is quoted: some servers repeat the request."""
        return redact_bytes(body, secret_forms([self._secret]))

    def _url(self, request: Request) -> URL:
        query = f"?{urlencode(request.query)}" if request.query else ""
        return URL(f"{self.connection.server}{request.path}{query}", encoded=True)

    def _unreachable(self, error: Exception, request: Request) -> ApiError:
        server, source = self.connection.server, self.connection.source
        text = explain(error, f"{server} ({source})" if source else server)
        if self.bounds is not None and isinstance(error, PeerLimitError):
            return self.bounds.exceed(text, request.call)
        return UnreachableError(text, call=request.call)


def _connector() -> aiohttp.BaseConnector:
    # Each watch holds a connection for minutes: with a limit it would starve the others.
    return aiohttp.TCPConnector(limit=0)


def _timeouts(seconds: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=seconds, sock_connect=min(CONNECT_SECONDS, seconds))


def _asks_to_repeat(error: ApiError) -> bool:
    """Whether the server wants the request again, so that no verb is too dangerous."""
    refused = (
        error.status == HTTPStatus.TOO_MANY_REQUESTS
        or error.status >= HTTPStatus.INTERNAL_SERVER_ERROR
    )
    return refused and error.retry_after is not None


def _payload(body: bytes | None) -> bytes | BytesIO | None:
    """Return a large body as a stream, because aiohttp warns of one that is sent in a piece."""
    return BytesIO(body) if body is not None and len(body) > _PIECE else body
