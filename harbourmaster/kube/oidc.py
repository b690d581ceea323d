"""ID tokens of a kubeconfig's OpenID Connect user, renewed at the identity provider.

The library's own renewal checks no certificate of the provider where none is configured, so it is
not used. A renewed token is kept in memory only; the user's files are not changed.
"""

from __future__ import annotations

import asyncio
import base64
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import quote_plus, urlsplit

import aiohttp
import msgspec
from msgspec import Struct

from harbourmaster.kube.connection import check_token, claims_of
from harbourmaster.kube.errors import ConnectionSettingsError
from harbourmaster.telemetry.transport_errors import explain

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

PROVIDER_SECONDS: Final = 10.0
MARGIN: Final = 10.0
"""Seconds before its end at which a token is renewed."""
_MAX_BYTES: Final = 1024 * 1024


class Provider(Struct, frozen=True, gc=False, rename="kebab"):
    """An ``auth-provider`` section's ``config``."""

    idp_issuer_url: str
    client_id: str
    client_secret: str = ""
    id_token: str = ""
    refresh_token: str = ""
    idp_certificate_authority: str = ""
    idp_certificate_authority_data: str = ""


class _Discovery(Struct, frozen=True, gc=False):
    token_endpoint: str


class _Tokens(Struct, frozen=True, gc=False):
    id_token: str
    refresh_token: str = ""


class OidcToken:
    """The ID token of a user while it is valid, then new ones."""

    def __init__(
        self,
        provider: Provider,
        context: ssl.SSLContext,
        source: str,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        """``context`` is for the identity provider; ``source`` names the kubeconfig in errors."""
        self._provider = provider
        self._context = context
        self._source = source
        self._now = now
        self._id_token = provider.id_token
        self._refresh_token = provider.refresh_token
        self._renewing = asyncio.Lock()

    async def get(self) -> str:
        """Return the ID token. Raises ConnectionSettingsError."""
        async with self._renewing:
            if not self._id_token or self._has_ended():
                await self._renew()
        return self._id_token

    def expire(self) -> None:
        """Renew the token at the next call."""
        self._id_token = ""

    def _has_ended(self) -> bool:
        end = claims_of(self._id_token).exp
        return end is not None and self._now() >= end - MARGIN

    async def _renew(self) -> None:
        if not self._refresh_token:
            raise ConnectionSettingsError(
                f"{self._source}: the id-token has expired and there is no refresh-token: "
                "log in again"
            )
        issuer = self._provider.idp_issuer_url.rstrip("/")
        try:
            async with aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=self._context),
                timeout=aiohttp.ClientTimeout(total=PROVIDER_SECONDS),
                trust_env=False,
            ) as session:
                discovery = await self._ask(session, f"{issuer}/.well-known/openid-configuration")
                endpoint = msgspec.json.decode(discovery, type=_Discovery).token_endpoint
                form = {"grant_type": "refresh_token", "refresh_token": self._refresh_token}
                if not self._provider.client_secret:
                    form["client_id"] = self._provider.client_id
                tokens = msgspec.json.decode(await self._ask(session, endpoint, form), type=_Tokens)
        except msgspec.DecodeError as error:
            raise self._fault(f"sent an invalid answer: {error}") from None
        except (aiohttp.ClientError, OSError) as error:
            text = explain(error, issuer)
            raise ConnectionSettingsError(
                f"{self._source}: renewing the id-token failed: {text}"
            ) from error
        self._id_token = check_token(tokens.id_token, f"{self._source}: the answer of {issuer}")
        self._refresh_token = tokens.refresh_token or self._refresh_token

    async def _ask(
        self, session: aiohttp.ClientSession, url: str, form: dict[str, str] | None = None
    ) -> bytes:
        if urlsplit(url).scheme != "https":
            raise self._fault("has no https URL")
        async with session.request(
            "GET" if form is None else "POST",
            url,
            data=form,
            headers={} if form is None else self._login(),
            allow_redirects=False,
        ) as response:
            body = await response.content.read(_MAX_BYTES)
            if response.status != HTTPStatus.OK:
                raise self._fault(
                    f"rejected the renewal of the id-token: HTTP {response.status}: log in again"
                )
            return body

    def _login(self) -> dict[str, str]:
        """Return the client's header (RFC 6749, 2.3.1); none for a client without a secret."""
        if not self._provider.client_secret:
            return {}
        pair = f"{quote_plus(self._provider.client_id)}:{quote_plus(self._provider.client_secret)}"
        return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}

    def _fault(self, text: str) -> ConnectionSettingsError:
        return ConnectionSettingsError(
            f"{self._source}: the identity provider {self._provider.idp_issuer_url} {text}"
        )
