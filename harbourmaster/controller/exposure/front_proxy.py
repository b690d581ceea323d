"""The user on whose behalf the API server asks: its aggregator names it, and has a certificate.

The API server publishes the authority of that certificate, the names that it may have, and the
headers by which it names the user. Who comes without such a certificate is nobody.
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
    """What the API server says of its aggregator. ``authority`` is PEM, empty for none."""

    authority: bytes = b""
    names: frozenset[str] = frozenset()
    """Common names that the certificate may have; none for any."""
    user_headers: tuple[str, ...] = ()
    uid_headers: tuple[str, ...] = ()
    group_headers: tuple[str, ...] = ()
    extra_prefixes: tuple[str, ...] = ()

    def user(self, request: web.BaseRequest) -> User:
        """For whom this is asked. Raises StatusError (401)."""
        protocol = request.protocol
        transport = request.transport
        # The handshake has verified it, where there is one.
        if transport is None or not transport.get_extra_info("peercert"):
            raise _unauthorized(
                "no client certificate: send the request to the API server, not to this address"
            )
        if not isinstance(protocol, HttpConnection) or (
            self.names and protocol.client_name not in self.names
        ):
            raise _unauthorized("the client certificate is not the API server's")
        name = next(iter(_values(request, self.user_headers)), "")
        if not name:
            raise _unauthorized("the request has no user")
        return User(
            name,
            tuple(_values(request, self.group_headers)),
            next(iter(_values(request, self.uid_headers)), ""),
            self._extra(request),
        )

    def _extra(self, request: web.BaseRequest) -> tuple[tuple[str, tuple[str, ...]], ...]:
        found: dict[str, list[str]] = {}
        for header, value in request.headers.items():
            for prefix in self.extra_prefixes:
                if header.lower().startswith(prefix.lower()):
                    key = unquote(header[len(prefix) :].lower())
                    found.setdefault(key, []).append(value)
                    break
        return tuple((key, tuple(values)) for key, values in sorted(found.items()))


class _Published(Struct, frozen=True):
    data: dict[str, str] = {}


_decode: Final = msgspec.json.Decoder(_Published).decode
_decode_names: Final = msgspec.json.Decoder(tuple[str, ...]).decode


def decode_front_proxy(raw: msgspec.Raw | bytes) -> FrontProxy:
    """Read the ConfigMap. Raises msgspec.DecodeError for anything but a list of names."""
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
    """The values of the first of the headers that is there."""
    for header in headers:
        found = request.headers.getall(header, [])
        if found:
            return list(found)
    return []


def _unauthorized(text: str) -> StatusError:
    return StatusError(HTTPStatus.UNAUTHORIZED, text)
