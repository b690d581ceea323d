"""Authenticates the API server's aggregator, and reads the user for whom it asks.

The API server publishes the authority of the aggregator's certificate, its possible names, and the
headers that name the user. Requests without such a certificate are refused.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import msgspec
from msgspec import Struct

from harbourmaster.controller.exposure.answers import StatusError
from harbourmaster.kube.access import User
from harbourmaster.serving.http_connection import HttpConnection

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiohttp import web

NAMESPACE: Final = "kube-system"
CONFIG_MAP: Final = "extension-apiserver-authentication"
_PREFIX: Final = "requestheader-"


class FrontProxy(Struct, frozen=True):
    """The published data of the aggregator. ``authority`` is PEM, empty if there is none."""

    authority: bytes = b""
    names: frozenset[str] = frozenset()
    """Accepted common names of the certificate; empty accepts all."""
    user_headers: tuple[str, ...] = ()
    uid_headers: tuple[str, ...] = ()
    group_headers: tuple[str, ...] = ()
    extra_prefixes: tuple[str, ...] = ()

    def user(self, request: web.BaseRequest) -> User:
        """Return the user of a request. Raises StatusError (401)."""
        protocol = request.protocol
        transport = request.transport
        # The handshake has verified the certificate if there is one.
        if transport is None or not transport.get_extra_info("peercert"):
            raise _unauthorized_error(
                "no client certificate: send the request to the API server, not to this address"
            )
        if not isinstance(protocol, HttpConnection) or (
            self.names and protocol.client_name not in self.names
        ):
            raise _unauthorized_error("the client certificate is not the API server's")
        name = next(iter(_values(request, self.user_headers)), "")
        if not name:
            raise _unauthorized_error("the request has no user")
        return User(
            name,
            tuple(_values(request, self.group_headers)),
            next(iter(_values(request, self.uid_headers)), ""),
            self._extra(request),
        )

    def _extra(self, request: web.BaseRequest) -> tuple[tuple[str, tuple[str, ...]], ...]:
        extra: dict[str, list[str]] = {}
        for header, value in request.headers.items():
            for prefix in self.extra_prefixes:
                if header.lower().startswith(prefix.lower()):
                    key = unquote(header[len(prefix) :].lower())
                    extra.setdefault(key, []).append(value)
                    break
        return tuple((key, tuple(values)) for key, values in sorted(extra.items()))


class _Published(Struct, frozen=True):
    data: dict[str, str] = {}


_decode: Final = msgspec.json.Decoder(_Published).decode
_decode_names: Final = msgspec.json.Decoder(tuple[str, ...]).decode


def decode_front_proxy(raw: msgspec.Raw | bytes) -> FrontProxy:
    """Decode the ConfigMap. Raises msgspec.DecodeError."""
    data = _decode(raw).data

    def names(key: str) -> tuple[str, ...]:
        return _decode_names(data.get(f"{_PREFIX}{key}") or "[]")

    return FrontProxy(
        authority=data.get(f"{_PREFIX}client-ca-file", "").encode(),
        names=frozenset(names("allowed-names")),
        user_headers=names("username-headers"),
        uid_headers=names("uid-headers"),
        group_headers=names("group-headers"),
        extra_prefixes=names("extra-headers-prefix"),
    )


def _values(request: web.BaseRequest, headers: Iterable[str]) -> list[str]:
    """Return the values of the first of these headers that the request has."""
    for header in headers:
        values = request.headers.getall(header, [])
        if values:
            return list(values)
    return []


def _unauthorized_error(text: str) -> StatusError:
    return StatusError(HTTPStatus.UNAUTHORIZED, text)
