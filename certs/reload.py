"""The certificate of new connections: each gets its context during the handshake.

A certificate is never loaded into a context in use: if that fails half-way, every new handshake
fails until the next good load (platform-spec 5.3).
"""

from __future__ import annotations

import os
import ssl
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from msgspec import Struct

from harbourmaster.certs.errors import UnreadableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from harbourmaster.certs.model import Bundle

_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_TLS12_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Forward secrecy and authenticated encryption only; TLS 1.3 has nothing else."""


class TlsOptions(Struct, frozen=True):
    """Requirements of the server on its clients."""

    minimum_version: Literal["1.2", "1.3"] = "1.2"
    client_ca: bytes | None = None
    """PEM of the authorities that may have signed a client's certificate, which is then required;
    None asks for no certificate."""
    client_required: bool = True
    """False requests a certificate but accepts clients without one. A certificate that no trusted
    authority signed still ends the handshake."""


_DEFAULTS: Final = TlsOptions()


class _ListeningContext(ssl.SSLContext):
    """Gives each connection a context of its own: OpenSSL keeps sessions of TLS 1.2 in it.

    A resumed session would have a client certificate that is no longer accepted.
    """

    create: Callable[[], ssl.SSLContext]

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:  # noqa: ANN401 - as its base
        """Wrap a connection in a new context."""
        return self.create().wrap_bio(*args, **options)


class CertificateHolder:
    """The bundle served now. ``context`` is the one to listen with; it stays the same."""

    def __init__(self, bundle: Bundle, options: TlsOptions = _DEFAULTS) -> None:
        """Raises UnreadableError if OpenSSL rejects the pair or the client authorities."""
        self._options = options
        self._current = _serving_context(bundle, options)
        self.bundle = bundle
        # The base holds no certificate, but OpenSSL takes versions, options and the demand for a
        # client certificate from it and not from the context that is swapped in.
        self.context = _ListeningContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.create = self._create_base

    def offer(self, bundle: Bundle) -> bool:
        """Serve another bundle from the next handshake on; False if it is the same pair.

        Raises UnreadableError if OpenSSL rejects it; the current one is then kept.
        """
        if bundle.files == self.bundle.files:
            return False
        self._current = _serving_context(bundle, self._options)
        self.bundle = bundle
        return True

    def trust(self, client_ca: bytes | None) -> None:
        """Request client certificates of other authorities, from the next handshake on.

        Only for a holder that accepts clients without one. Raises UnreadableError; the current
        authorities are then kept.
        """
        options = msgspec.structs.replace(self._options, client_ca=client_ca)
        self._current = _serving_context(self.bundle, options)
        self._options = options

    def _create_base(self) -> ssl.SSLContext:
        context = _context(self._options)
        context.sni_callback = self._choose
        return context

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _base: ssl.SSLContext) -> None:
        # Called for every handshake, with or without a server name.
        connection.context = self._current


def _context(options: TlsOptions) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[options.minimum_version]
    context.set_ciphers(_TLS12_CIPHERS)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
    # No resumption: API servers don't, and a ticket would outlive the certificate.
    context.num_tickets = 0
    context.set_alpn_protocols(["http/1.1"])
    if not options.client_required:
        context.verify_mode = ssl.CERT_OPTIONAL
    elif options.client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
    if options.client_ca is not None:
        try:
            context.load_verify_locations(cadata=options.client_ca.decode("ascii"))
        except (ssl.SSLError, ValueError):
            raise UnreadableError(
                "the client authority's file holds no certificate in PEM form"
            ) from None
    return context


def _serving_context(bundle: Bundle, options: TlsOptions) -> ssl.SSLContext:
    context = _context(options)
    # OpenSSL reads files only; one in memory has exactly the bytes that were checked.
    descriptor = os.memfd_create("pair", os.MFD_CLOEXEC)
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(bundle.pair)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    except ssl.SSLError as error:
        raise UnreadableError(f"OpenSSL rejects tls.crt and tls.key: {error.reason}") from None
    finally:
        os.close(descriptor)
    return context
