"""Why a request had no answer, in words that say what to look at."""

from __future__ import annotations

import os
import ssl
from typing import TYPE_CHECKING

import aiohttp

from harbourmaster.providers.errors import ProviderError, TimedOutError, UnreachableError
from harbourmaster.providers.replies import words
from harbourmaster.telemetry.text import reason

if TYPE_CHECKING:
    from harbourmaster.providers.errors import ProviderError


def error_from(error: Exception, place: str) -> ProviderError:
    """The error of a failed transport. ``place`` is the server's ``host:port``.

    Only words are taken from ``error``: those of aiohttp hold the request with its credentials.
    """
    if isinstance(error, TimeoutError):
        return TimedOutError(f"{place} did not let us connect in time")
    return UnreachableError(_explained(error, place))


def was_cut_off(error: Exception) -> bool:
    """Whether a connection that stood broke, so that a new one may do better at once."""
    return isinstance(
        error, (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError)
    ) and not isinstance(error, (aiohttp.ClientConnectorError, TimeoutError))


def _explained(error: Exception, place: str) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return _untrusted(error.certificate_error, place)
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"the host of {place} has no address"
    if isinstance(error, aiohttp.ClientConnectorError):
        cause = error.os_error
        if isinstance(cause, ssl.SSLCertVerificationError):
            return _untrusted(cause, place)
        if isinstance(cause, ssl.SSLError):
            return f"no TLS with {place}: {words(cause.reason or reason(cause))}"
        return f"{place} can't be connected to: {_reason(cause)}"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return f"{place} closed the connection without an answer"
    if isinstance(error, aiohttp.ClientPayloadError):
        return f"{place} cut its answer off"
    if isinstance(error, aiohttp.ClientResponseError):
        return f"{place} speaks no HTTP that is understood"
    if isinstance(error, OSError):
        return f"the connection to {place} broke: {_reason(error)}"
    return f"{place} can't be asked: {type(error).__name__}"


def _untrusted(error: Exception, place: str) -> str:
    why = error.verify_message if isinstance(error, ssl.SSLCertVerificationError) else str(error)
    return f"the certificate of {place} is not trusted: {words(why)}"


def _reason(error: OSError) -> str:
    if error.errno:
        return os.strerror(error.errno)
    if isinstance(error, ConnectionError):
        return "it closed the connection"
    return words(str(error)) or type(error).__name__
