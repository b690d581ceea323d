"""TLS between a socket and a protocol, with no buffer kept for an idle connection.

The event loops' own TLS keeps a read buffer of 256 KiB for each connection. Here all connections
share the loop's, and OpenSSL gets what was read in pieces, so that its buffers stay small.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from harbourmaster.serving.http_connection import HttpConnection, Timeouts

_PIECE: Final = 16 * 1024
"""Bytes given to OpenSSL at a time: as many as one TLS record carries."""


class TlsConnection(asyncio.Protocol, asyncio.Transport):
    """The protocol of a socket, and the transport of the protocol ``above``."""

    def __init__(
        self,
        above: HttpConnection,
        context: ssl.SSLContext,
        timeouts: Timeouts,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__()
        self._above = above
        self._timeouts = timeouts
        self._loop = loop
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._socket: asyncio.Transport
        self._timer: asyncio.TimerHandle
        self._is_open = False
        """Whether the handshake is over, and ``above`` knows of the connection."""
        self._has_ended = False
        """Whether the client sent its last record."""
        self._is_closing = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Give the client its time for the handshake."""
        self._socket = transport  # type: ignore[assignment] # a stream's, as its server says
        self._timer = self._loop.call_later(self._timeouts.handshake, self._socket.abort)
        self._above.accept(self._socket)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Pass the event on."""
        self._timer.cancel()
        self._is_closing = True
        self._above.end()
        if self._is_open:
            self._above.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Decrypt, and pass on the plain text."""
        if self._is_closing:
            # Read and dropped: a socket closed with unread bytes would take back the last answer.
            return
        try:
            if len(data) <= _PIECE:
                plain = self._decrypt(data)
            else:
                pieces = range(0, len(data), _PIECE)
                plain = b"".join([self._decrypt(data[at : at + _PIECE]) for at in pieces])
        except ssl.SSLError:
            # What is sent last is the alert that says why.
            self._is_closing = True
            self._socket.write(self._outgoing.read())
            self._close_socket()
            return
        if self._outgoing.pending:
            self._socket.write(self._outgoing.read())
        if plain:
            self._above.data_received(plain)
        if self._has_ended:
            self.close()

    def pause_writing(self) -> None:
        """Pass the event on."""
        if self._is_open:
            self._above.pause_writing()

    def resume_writing(self) -> None:
        """Pass the event on."""
        if self._is_open:
            self._above.resume_writing()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt and send."""
        for start in range(0, 0 if self._is_closing else len(data), _PIECE):
            self._tls.write(data if len(data) <= _PIECE else data[start : start + _PIECE])
            self._socket.write(self._outgoing.read())

    def close(self) -> None:
        """End TLS, and the connection when the client does, or has had its time for that."""
        if self._is_closing:
            return
        self._is_closing = True
        if not self._is_open:
            self._socket.abort()
            return
        with suppress(ssl.SSLError):
            self._tls.unwrap()
        self._socket.write(self._outgoing.read())
        if self._has_ended:
            self._close_socket()
        elif self._above.writing_paused:
            # Its own time-out ends it if the client does not read on.
            self._socket.close()
        else:
            self._abort_later()

    def _close_socket(self) -> None:
        """Send what is left, but do not wait for long for a client that does not read it."""
        self._socket.close()
        self._abort_later()

    def _abort_later(self) -> None:
        self._timer.cancel()
        self._timer = self._loop.call_later(self._timeouts.end_of_tls, self._socket.abort)

    def abort(self) -> None:
        """Drop the connection."""
        self._is_closing = True
        self._socket.abort()

    def is_closing(self) -> bool:
        """Whether it is, for the protocol above."""
        return self._is_closing

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ANN401
        """Return ``ssl_object``, ``sslcontext`` or ``peercert``, or a value of the socket."""
        if name == "ssl_object":
            return self._tls
        if name == "sslcontext":
            return self._tls.context
        if name == "peercert":
            return self._tls.getpeercert()
        return self._socket.get_extra_info(name, default)

    def get_write_buffer_size(self) -> int:
        """Bytes that the client has not taken yet."""
        return self._socket.get_write_buffer_size()

    def pause_reading(self) -> None:
        """Leave in the socket what comes."""
        self._socket.pause_reading()

    def resume_reading(self) -> None:
        """Read on."""
        self._socket.resume_reading()

    def _decrypt(self, data: bytes) -> bytes:
        incoming, tls = self._incoming, self._tls
        incoming.write(data)
        plain = b""
        try:
            if not self._is_open:
                tls.do_handshake()
                self._timer.cancel()
                self._is_open = True
                self._above.connection_made(self)
            while incoming.pending or tls.pending():
                piece = tls.read(_PIECE)
                if not piece:
                    self._has_ended = True
                    incoming.read()
                plain = plain + piece if plain else piece
        except ssl.SSLWantReadError:
            # OpenSSL took the part of a record that was there, so the buffer is empty.
            pass
        return plain
