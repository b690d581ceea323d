"""The HTTP client of providers: no redirects, no proxy, no forbidden address, a size limit."""

from __future__ import annotations

import base64
import binascii
import ssl
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import urlencode

import aiohttp
from yarl import URL

from harbourmaster.api.credentials import redact, redact_bytes, secret_forms
from harbourmaster.api.peer_limits import Budget, Share
from harbourmaster.providers.addresses import (
    AddressFilter,
    host_and_port,
    literal_address,
    parse_server_url,
)
from harbourmaster.providers.connector import make_connector
from harbourmaster.providers.errors import (
    BadAnswerError,
    BadCredentialsError,
    RedirectedError,
    TimedOutError,
    TooLargeError,
    UnreachableError,
)
from harbourmaster.providers.requests import Reply, one_line
from harbourmaster.telemetry.peer_protocol import PIECE, PeerLimitError
from harbourmaster.telemetry.transport_errors import explain, was_cut_off

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from harbourmaster.providers.connector import Lookup
    from harbourmaster.providers.errors import ProviderError

MAX_BYTES: Final = 1024 * 1024
"""The default limit of bytes in a response body."""
MAX_TOGETHER: Final = 48 * 1024 * 1024
"""The limit of bytes of all bodies that are received at the same time."""
_SMALL: Final = 64 * 1024
"""Bytes of a body that are received also beyond that limit."""
CONNECT_SECONDS: Final = 5.0
_MAX_HEADER: Final = 8190
"""Bytes of the status line and of each header."""
_MAX_HEADERS: Final = 100
_SAFE_METHODS: Final = frozenset({"GET", "HEAD"})
_PLAIN_HEADERS: Final = frozenset({"accept", "content-type"})
"""The headers that have no credentials."""


class HttpClient:
    """Sends requests to providers within ``async with``; a process has one client.

    A request goes only to the scheme, host and port of its URL, so its credentials reach only that
    server. Connections without verified certificates are never reused for requests that verify.
    """

    def __init__(
        self,
        allowed: Iterable[str] = (),
        denied: Iterable[str] = (),
        *,
        max_bytes: int = MAX_BYTES,
        lookup: Lookup | None = None,
    ) -> None:
        """Take addresses and networks as ``allowed`` and ``denied``. Raises ValueError."""
        self._addresses = AddressFilter(allowed, denied)
        self._max_bytes = max_bytes
        self._budget = Budget(MAX_TOGETHER)
        self._lookup = lookup
        self._session: aiohttp.ClientSession | None = None
        self._tls: ssl.SSLContext | bool = True

    async def __aenter__(self) -> Self:
        # Loaded once, here: SSL_CERT_FILE names the current authorities.
        self._tls = ssl.create_default_context()
        self._session = aiohttp.ClientSession(
            connector=make_connector(self._addresses, self._lookup),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            # The caller limits the time; only connecting has its own limit.
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
            headers={"User-Agent": "harbourmaster", "Accept-Encoding": "identity"},
            skip_auto_headers=("Content-Type",),
            auto_decompress=False,
            max_line_size=_MAX_HEADER,
            max_field_size=_MAX_HEADER,
            max_headers=_MAX_HEADERS,
            read_bufsize=PIECE,
        )
        # ``repeatable`` decides what is repeated, not the method.
        self._session._retry_connection = False  # noqa: SLF001 - there is no other switch
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def send(  # noqa: PLR0913 - what a request has
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        skip_verify: bool = False,
        params: Mapping[str, str] | None = None,
        repeatable: bool | None = None,
    ) -> Reply:
        """Return the response, of any status except redirects. The caller limits the time.

        A ``repeatable`` request (by default a GET) is sent again if the connection breaks before
        the response, which happens if the server has closed an idle connection.
        Raises BadProviderError, BadCredentialsError, ForbiddenAddressError, UnreachableError,
        TimedOutError, RedirectedError, TooLargeError, BadAnswerError.
        """
        base = parse_server_url(url)
        address = literal_address(base)
        if address is not None:
            self._addresses.check(address, host_and_port(base))
        _check_headers(headers or {})
        target = URL(f"{base}?{urlencode(params)}", encoded=True) if params else base
        again = method in _SAFE_METHODS if repeatable is None else repeatable
        while True:
            try:
                return await self._send_once(method, target, headers or {}, body, skip_verify)
            except (aiohttp.ClientError, OSError) as error:
                if not (again and was_cut_off(error)):
                    # Without its cause, which has the request headers.
                    raise _transport_error(error, host_and_port(base)) from None
                again = False

    async def _send_once(
        self,
        method: str,
        url: URL,
        headers: Mapping[str, str],
        body: bytes | None,
        skip_verify: bool,
    ) -> Reply:
        if self._session is None:
            raise RuntimeError("the client is not open: use it in async with")
        response = await self._session.request(
            method,
            url,
            data=body,
            headers=headers,
            ssl=False if skip_verify else self._tls,
            allow_redirects=False,
        )
        secrets = _secrets(headers)
        try:
            reply = await self._read(response, url, secrets)
        except aiohttp.ClientPayloadError:
            raise UnreachableError(f"{host_and_port(url)} sent an incomplete answer") from None
        finally:
            # Closes the connection if the response was not read completely.
            response.release()
        return _redact(reply, secrets)

    async def _read(
        self, response: aiohttp.ClientResponse, url: URL, secrets: Sequence[str]
    ) -> Reply:
        status = response.status
        if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
            location = _location(response, url, secrets)
            raise RedirectedError(
                f"{host_and_port(url)} redirects to {location}, and redirects are not followed"
            )
        headers = {name.lower(): value for name, value in response.headers.items()}
        encoding = headers.get("content-encoding", "identity")
        if encoding.strip().lower() not in {"", "identity"}:
            if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
                raise BadAnswerError(
                    f"{host_and_port(url)} compressed its answer ({one_line(encoding)}), unasked"
                )
            return Reply(status, headers, b"")
        return Reply(status, headers, await self._read_body(response, url))

    async def _read_body(self, response: aiohttp.ClientResponse, url: URL) -> bytes:
        length = response.content_length
        if length is not None and length > self._max_bytes:
            raise _too_large(url, f"more than {self._max_bytes} bytes")
        chunks, share = [], Share(self._budget, limit=self._max_bytes, floor=_SMALL)
        try:
            async for chunk in response.content.iter_any():
                if limit := share.take(len(chunk)):
                    raise _too_large(url, limit)
                chunks.append(chunk)
        finally:
            share.give(share.size)
        return b"".join(chunks)


def _too_large(url: URL, limit: str) -> TooLargeError:
    return TooLargeError(f"the answer of {host_and_port(url)} has {limit}")


def _transport_error(error: Exception, server: str) -> ProviderError:
    if isinstance(error, PeerLimitError):
        return TooLargeError(f"{explain(error, server)}: correct the server or spec.targetServer")
    kind = TimedOutError if isinstance(error, TimeoutError) else UnreachableError
    to_do = ": check spec.targetServer" if isinstance(error, aiohttp.ClientConnectorError) else ""
    return kind(one_line(explain(error, server)) + to_do)


def _location(response: aiohttp.ClientResponse, url: URL, secrets: Sequence[str]) -> str:
    """Return the host of a redirect, unless it contains a credential."""
    try:
        target = url.join(URL(response.headers.get("Location", "")))
    except ValueError:
        return "an invalid URL"
    host = target.raw_host or "nowhere"
    # Hosts are in lower case.
    is_secret = any(secret.lower() in host for secret in secrets)
    return "a host that contains a credential" if is_secret else one_line(host)


def _check_headers(headers: Mapping[str, str]) -> None:
    for name, value in headers.items():
        if not value.isprintable() or not value.isascii():
            raise BadCredentialsError(
                f"the value for the header {name} has a line end or a character that is not ASCII: "
                "remove it from the Secret"
            )


def _secrets(headers: Mapping[str, str]) -> list[str]:
    """Return the credentials of headers, in the forms in which a server may repeat them."""
    secrets = set()
    for name, value in headers.items():
        if name.lower() in _PLAIN_HEADERS:
            continue
        scheme, _, rest = value.partition(" ")
        secrets |= {value, rest}
        if scheme == "Basic":
            secrets.add(_password(rest))
    return secret_forms(secrets)


def _password(encoded: str) -> str:
    try:
        return base64.b64decode(encoded).decode("utf-8", "replace").partition(":")[2]
    except binascii.Error:
        return ""


def _redact(reply: Reply, forms: Sequence[str]) -> Reply:
    """Remove the credentials that the server repeats."""
    headers = {name: redact(value, forms) for name, value in reply.headers.items()}
    return Reply(reply.status, headers, redact_bytes(reply.body, forms))
