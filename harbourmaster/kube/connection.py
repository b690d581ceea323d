"""An API server and the credentials for it, of which tokens change under a running process."""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Awaitable, Callable
from ssl import SSLContext
from typing import TYPE_CHECKING, Final

import msgspec
from aiohttp import BaseConnector
from msgspec import Struct
from yarl import URL

from harbourmaster.kube.errors import ConnectionSettingsError, one_line
from harbourmaster.telemetry.text import reason

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

FALLBACK_NAMESPACE: Final = "default"
TOKEN_SECONDS: Final = 60.0
"""Seconds for which a token from a file is used before the file is read again."""
_MAX_BYTES: Final = 1024 * 1024
_JWT_PARTS: Final = 3
_LONGEST: Final = 1024
"""Characters of the URL of a server."""


class Connection(Struct, frozen=True, kw_only=True):
    """An API server and our credentials for it."""

    server: str
    """Scheme, host and port, and a path where the API is below one; no slash at the end."""
    ssl: SSLContext | None = None
    """None for plain HTTP."""
    token: Callable[[], Awaitable[str | None]] | None = None
    """Called before each request. Raises ConnectionSettingsError if there is no token."""
    refused: Callable[[], None] | None = None
    """Called when the server rejected the token, so that it is renewed."""
    user: str = ""
    """The user name, for messages."""
    source: str = ""
    """The source of the settings, for messages."""
    server_name: str | None = None
    """The name in the server's certificate, where it is not the host."""
    connector: Callable[[], BaseConnector] | None = None
    """Creates the connector, if only some addresses are allowed."""
    namespace: str = FALLBACK_NAMESPACE
    """The namespace of objects whose namespace is not given."""


def server_url(text: str, schemes: Collection[str], source: str) -> URL:
    """Parse the URL of a ``server`` field. Raises ConnectionSettingsError."""
    try:
        url = URL(text)
        is_valid = url.scheme in schemes and bool(url.host and url.port) and len(text) <= _LONGEST
    except ValueError:
        url, is_valid = URL(), False
    if not is_valid or url.query_string or url.fragment or url.user or url.password:
        shown = one_line(text, 100)
        raise ConnectionSettingsError(f'{source}: server "{shown}" is not like https://host:port')
    return url


def canonical_server(text: str, source: str) -> str:
    """Return the URL of an HTTPS server as it is compared. Raises ConnectionSettingsError."""
    return str(server_url(text, {"https"}, source)).rstrip("/")


class Claims(Struct, frozen=True, gc=False):
    """The claims of a token, which are not verified."""

    sub: str = ""
    exp: float | None = None


class TokenFile:
    """A token in a file that is renewed; the kubelet renews it at 80 % of its lifetime."""

    def __init__(
        self,
        path: Path,
        *,
        clock: Callable[[], float] = time.monotonic,
        on_read: Callable[[], None] | None = None,
    ) -> None:
        """``on_read`` is called each time the file was read again."""
        self._path = path
        self._clock = clock
        self._on_read = on_read
        self._token = ""
        self._read_at = -TOKEN_SECONDS

    async def get(self) -> str:
        """Return the token, at most a minute old. Raises ConnectionSettingsError."""
        return self.read()

    def read(self) -> str:
        """Return the token synchronously. Raises ConnectionSettingsError."""
        now = self._clock()
        if self._token and now - self._read_at < TOKEN_SECONDS:
            return self._token
        try:
            token = check_token(read_text(self._path), str(self._path))
        except ConnectionSettingsError:
            # The old token is valid for some more minutes, if the file is just being replaced.
            if self._token:
                return self._token
            raise
        self._token, self._read_at = token, now
        if self._on_read is not None:
            self._on_read()
        return token

    def expire(self) -> None:
        """Read the file again at the next call."""
        self._read_at = -TOKEN_SECONDS


def fixed_token(text: str, source: str) -> Callable[[], Awaitable[str]]:
    """Return a function for the token in ``text``, as a Connection needs it.

    Raises ConnectionSettingsError.
    """
    token = check_token(text, source)

    async def get() -> str:
        return token

    return get


def check_token(text: str, source: str) -> str:
    """Return the token in ``text``. Raises ConnectionSettingsError if it is not valid."""
    token = text.strip()
    if not token:
        raise ConnectionSettingsError(f"{source} is not a token: it is empty")
    # Anything else could end the header that it is sent in.
    if not (token.isascii() and token.isprintable() and " " not in token):
        raise ConnectionSettingsError(
            f"{source} is not a token: it has spaces or control characters"
        )
    return token


def read_text(path: Path) -> str:
    """Read a small file. Raises ConnectionSettingsError."""
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ConnectionSettingsError(f"{path} can't be read: {reason(error)}") from error
    if len(content) > _MAX_BYTES:
        raise ConnectionSettingsError(f"{path} is larger than {_MAX_BYTES} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ConnectionSettingsError(f"{path} is not text") from error


def claims_of(token: str) -> Claims:
    """Return the claims of a JWT; empty ones for any other token."""
    parts = token.split(".")
    if len(parts) != _JWT_PARTS:
        return Claims()
    try:
        return msgspec.json.decode(
            base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)), type=Claims
        )
    except (binascii.Error, msgspec.DecodeError, ValueError):
        return Claims()


def subject_of(token: str) -> str:
    """Return the user of a JWT, such as ``system:serviceaccount:default:app``; "" if unknown."""
    return claims_of(token).sub
