"""Why a request had no whole answer, in words that say what to look at."""

from __future__ import annotations

import os
import ssl
from typing import TypeVar

import aiohttp

from harbourmaster.telemetry.text import reason

T = TypeVar("T")


def explain(error: Exception, server: str, source: str) -> str:
    """One line for a failure of the transport; ``source`` is where ``server`` was read."""
    where = f"{server} ({source})" if source else server
    cause = _cause(error)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"the certificate of {where} is not trusted: {cause.verify_message}"
    if isinstance(cause, ssl.SSLError):
        return f"no TLS with {where}: {cause.reason or cause}"
    # That it is not allowed is said by whoever looked it up.
    is_refused = isinstance(cause, PermissionError)
    if isinstance(error, aiohttp.ClientConnectorDNSError) and not is_refused:
        return f"the host of {where} has no address"
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"{where} can't be connected to: {_reason(cause)}"
    if isinstance(error, aiohttp.SocketTimeoutError):
        return f"{where} was silent for too long"
    if isinstance(error, TimeoutError):
        return f"{where} did not answer in time"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return f"{where} closed the connection without an answer"
    if isinstance(error, aiohttp.ClientPayloadError):
        return f"{where} cut its answer off"
    return f"the connection to {where} broke: {_reason(cause)}"


def was_cut_off(cause: BaseException | None) -> bool:
    """Whether a connection that stood broke, so that a new one may do better at once."""
    if isinstance(cause, (aiohttp.ClientConnectorError, TimeoutError)):
        return False
    return isinstance(
        cause, (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError, aiohttp.ClientPayloadError)
    )


def is_denied(error: BaseException | None) -> bool:
    """Whether a certificate or a setting is at fault: that tells nothing of the server's health."""
    cause = _cause(error)
    # Who ends a handshake may well be dying; who tells why does not.
    is_cut = isinstance(cause, (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError))
    return isinstance(cause, (ssl.SSLError, PermissionError)) and not is_cut


def _cause(error: T) -> T | Exception:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return error.certificate_error
    return error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno:
        # Shorter than what asyncio says, and never without words.
        return os.strerror(error.errno)
    if isinstance(error, ConnectionError):
        # As asyncio tells of a handshake that the server does not go through with.
        return "it closed the connection"
    return reason(error)
