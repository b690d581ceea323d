from __future__ import annotations

import errno
import ssl

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey

from harbourmaster.telemetry.transport_errors import is_denied

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
