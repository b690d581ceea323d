"""Access tokens of Dynatrace by OAuth client credentials, cached for each client."""

from __future__ import annotations

import asyncio
import re
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from harbourmaster.providers.errors import BadCredentialsError, UnauthorizedError
from harbourmaster.providers.replies import decode_reply, raise_for_status
from harbourmaster.providers.requests import credential

if TYPE_CHECKING:
    from collections.abc import Callable

    from harbourmaster.providers.http import HttpClient
    from harbourmaster.providers.model import Target

SSO: Final = "https://sso.dynatrace.com/sso/oauth2/token"
SCOPE: Final = "storage:buckets:read storage:metrics:read"
"""The scope unless the Secret has the key ``scope``."""
TOKEN_URL: Final = "tokenUrl"  # noqa: S105
_PLATFORM: Final = "dt0s16"
"""The prefix of tokens that are sent as they are."""
_TOKEN: Final = re.compile(r"(dt0s[0-9]{2})\.[A-Za-z0-9]+\.[A-Za-z0-9]{64}")
_EARLY: Final = 30.0
"""Seconds before its expiry at which a token is renewed."""
_MAX_CLIENTS: Final = 1000


class _Client(Struct, frozen=True, gc=False):
    """The credentials of a client; ``repr`` does not show them."""

    url: str
    secret: str
    scope: str
    resource: str

    def __repr__(self) -> str:
        return "_Client(...)"


class _Token(Struct, frozen=True, gc=False):
    """An access token, which expires in so many seconds."""

    access_token: str
    expires_in: float = 0.0


class _Grant:
    """The cached token of a client, and the lock of its request."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.token = ""
        self.until = 0.0


_BODY: Final = msgspec.json.Decoder(_Token)


class TokenCache:
    """Requests tokens at a fixed URL or that of the Secret, never at one of a provider's object.

    So users that can write providers cannot send the client's secret to their own server, which
    gets only a short-lived token.
    """

    def __init__(self, *, url: str = SSO, now: Callable[[], float] = time.monotonic) -> None:
        self._url = url
        self._now = now
        self._grants: dict[_Client, _Grant] = {}

    async def get(self, http: HttpClient, target: Target, refused: str = "") -> str:
        """Return a token for ``target``, other than the ``refused`` one. Raises ProviderError."""
        client = self._client(target)
        if client.secret.startswith(_PLATFORM):
            return client.secret
        grant = self._grant(client)
        async with grant.lock:
            if self._now() >= grant.until or grant.token == refused:
                # The lifetime counts from the request.
                requested = self._now()
                token = await _request_token(http, client)
                grant.token = token.access_token
                grant.until = requested + token.expires_in - _EARLY
            return grant.token

    def _client(self, target: Target) -> _Client:
        text = credential(target, target.secret_key)
        if not _TOKEN.fullmatch(text):
            raise BadCredentialsError(
                f"the key {target.secret_key} of the secret is not a Dynatrace client secret: "
                "expected dt0s08.<id>.<64 characters>"
            )
        secret = target.secret or {}
        url = credential(target, TOKEN_URL) if TOKEN_URL in secret else self._url
        if TOKEN_URL in secret and not url.startswith("https://"):
            raise BadCredentialsError(f"the key {TOKEN_URL} of the secret is not an https URL")
        return _Client(
            url=url,
            secret=text,
            scope=credential(target, "scope") if "scope" in secret else SCOPE,
            resource=credential(target, "resource") if "resource" in secret else "",
        )

    def _grant(self, client: _Client) -> _Grant:
        grant = self._grants.get(client)
        if grant is None:
            if len(self._grants) >= _MAX_CLIENTS:
                # The oldest one; queries that use it keep it.
                del self._grants[next(iter(self._grants))]
            grant = self._grants[client] = _Grant()
        return grant


async def _request_token(http: HttpClient, client: _Client) -> _Token:
    form = {
        "grant_type": "client_credentials",
        "client_id": client.secret.rpartition(".")[0],
        "client_secret": client.secret,
        "scope": client.scope,
    }
    if client.resource:
        form["resource"] = client.resource
    reply = await http.send(
        "POST",
        client.url,
        headers={
            "Accept": "application/json",
            "Content-Type": "application/x-www-form-urlencoded",
        },
        body=urlencode(form).encode(),
        repeatable=True,
    )
    if reply.status in {HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        raise UnauthorizedError(
            f"Dynatrace issued no access token (HTTP {reply.status}): "
            "look at its secret and its scopes"
        )
    raise_for_status(reply, "")
    token = decode_reply(reply, _BODY)
    if not token.access_token.isascii() or not token.access_token.isprintable():
        raise UnauthorizedError("the access token has invalid characters")
    return token
