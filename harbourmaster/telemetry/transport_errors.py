"""Transport errors of aiohttp as one line that says what to check."""

from __future__ import annotations

import os
import ssl
from typing import Final, TypeVar

import aiohttp

from harbourmaster.telemetry.peer_protocol import PeerLimitError
from harbourmaster.telemetry.text import reason

T = TypeVar("T")

_TEXTS: Final[tuple[tuple[type[Exception], str], ...]] = (
    (aiohttp.SocketTimeoutError, "sent nothing for too long"),
    (TimeoutError, "did not answer in time"),
    (aiohttp.ServerDisconnectedError, "closed the connection without an answer"),
    (aiohttp.ClientPayloadError, "sent an incomplete answer"),
    (aiohttp.ClientResponseError, "sent an invalid HTTP response"),
)


def explain(error: Exception, where: str) -> str:
    """Return why a request to ``where`` failed.

    The texts of aiohttp's own errors are not used: they contain the request with its credentials.
    """
    cause = _cause(error)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"the certificate of {where} is not trusted: {cause.verify_message}"
    if isinstance(cause, ssl.SSLError):
        return f"TLS handshake with {where} failed: {cause.reason or cause}"
    # A PermissionError of the resolver names the rule that forbids the address.
    is_forbidden = isinstance(cause, PermissionError)
    if isinstance(error, aiohttp.ClientConnectorDNSError) and not is_forbidden:
        return f"the host of {where} has no address"
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"cannot connect to {where}: {_reason(cause)}"
    if isinstance(error, PeerLimitError):
        return f"{where} sent {error}"
    for kind, text in _TEXTS:
        if isinstance(error, kind):
            return f"{where} {text}"
    if isinstance(error, OSError):
        return f"connection to {where} lost: {_reason(error)}"
    return f"request to {where} failed: {type(error).__name__}"


def was_cut_off(error: BaseException | None) -> bool:
    """Whether an established connection was lost, so that a retry may succeed at once."""
    if isinstance(error, (aiohttp.ClientConnectorError, TimeoutError)):
        return False
    return isinstance(
        error, (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError, aiohttp.ClientPayloadError)
    )


def is_denied(error: BaseException | None) -> bool:
    """Whether a certificate or a setting is the cause, not the server's health."""
    cause = _cause(error)
    # A handshake that ends without a reason may come from a server that is shutting down.
    is_cut = isinstance(cause, (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError))
    return isinstance(cause, (ssl.SSLError, PermissionError)) and not is_cut


def _cause(error: T) -> T | Exception:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return error.certificate_error
    return error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno:
        # Shorter than asyncio's text, and never empty.
        return os.strerror(error.errno)
    if isinstance(error, ConnectionError):
        # asyncio raises one without a text if the server ends the handshake.
        return "it closed the connection"
    return reason(error)
