"""TLS handshakes without sockets, and client contexts as strict as real clients'."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def strict_client(authority: bytes | None = None, **options) -> ssl.SSLContext:
    """A client that trusts one authority only (none: verifies nothing), by Python 3.13's rules."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if authority is None:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        context.load_verify_locations(cadata=authority.decode())
    for name, value in options.items():
        setattr(context, name, value)
    return context


def server_tls(authority, *names) -> ssl.SSLContext:
    """A server with a certificate of the authority (of trustme), by default for 127.0.0.1."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*(names or ("127.0.0.1",))).configure_cert(context)
    return context


def with_certificate(context: ssl.SSLContext, pair: bytes, directory: Path) -> ssl.SSLContext:
    """Return the context with a client certificate and key given as one PEM."""
    path = directory / "client.pem"
    path.write_bytes(pair)
    context.load_cert_chain(path)
    return context


def shake_hands(
    server: ssl.SSLContext, client: ssl.SSLContext, name: str | None = None
) -> ssl.SSLObject:
    """Complete a handshake in memory and return the client's side; raises what either side does."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    waiting = list(sides)
    for _ in range(20):
        for side in tuple(waiting):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            waiting.remove(side)
        if not waiting:
            return sides[0]
    raise AssertionError("the handshake did not come to an end")
