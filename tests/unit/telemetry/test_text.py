"""The text of an exception in one line, whatever it contains."""

from __future__ import annotations

import asyncio
import errno
import ssl

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey

from harbourmaster.telemetry.text import endpoint_url, reason
from harbourmaster.telemetry.transport_errors import is_denied


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "a"), "No such file or"),
        (TimeoutError(), "no answer in time"),
        (TimeoutError("the read timed out"), "the read timed out"),
        (ConnectionResetError(), "the connection was closed"),
        (ConnectionResetError("Connection lost"), "Connection lost"),
        (OSError(), "OSError"),
        (aiohttp.ClientError(), "ClientError"),
        (aiohttp.ServerTimeoutError(), "no answer in time"),
        (asyncio.IncompleteReadError(b"", 5), "0 bytes read on a total of 5 expected bytes"),
        (asyncio.CancelledError(), "CancelledError"),
        (ValueError("  \n"), "ValueError"),
    ],
)
def test_an_exception_is_never_without_words(error, said):
    assert reason(error).startswith(said)


KEY = ConnectionKey("example.com", 443, True, True, None, None, None)


def connecting(cause):
    return aiohttp.ClientConnectorError(KEY, cause)


@pytest.mark.parametrize(
    ("error", "denied"),
    [
        (None, False),
        (TimeoutError(), False),
        (connecting(ConnectionRefusedError(errno.ECONNREFUSED, "refused")), False),
        (connecting(ConnectionResetError(errno.ECONNRESET, "reset")), False),
        (connecting(OSError(errno.EHOSTUNREACH, "no route")), False),
        (connecting(ssl.SSLEOFError()), False),
        (connecting(ssl.SSLZeroReturnError()), False),
        (aiohttp.ServerDisconnectedError(), False),
        (connecting(ssl.SSLError(1, "[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED]")), True),
        (connecting(PermissionError("a loopback address")), True),
        (
            aiohttp.ClientConnectorCertificateError(
                KEY, ssl.SSLCertVerificationError(1, "expired")
            ),
            True,
        ),
    ],
)
def test_who_tells_why_is_not_dead(error, denied):
    assert is_denied(error) is denied


@pytest.mark.parametrize(
    "text",
    [
        "",
        "receiver:8080",
        "receiver.example.com",
        "grpc://receiver:4317",
        "file:///etc/passwd",
        "unix:///run/docker.sock",
        "http://",
        "http:///v1/traces",
        "http://receiver:port/",
        "http://receiver:99999/",
        "http://receiver:0/",
        "http://[::1/",
        "http://re ceiver/",
        "http://receiver/\r\nX:y",
    ],
)
def test_what_cannot_be_connected_to_by_http_is_no_url(text):
    assert endpoint_url(text) is None
