"""A listening address that serves one aiohttp application or handler, over TLS or plain."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from aiohttp import hdrs, web

from harbourmaster.serving.connections import Connections
from harbourmaster.serving.http_connection import HttpConnection, Timeouts, remove_server_header
from harbourmaster.serving.limits import Limits
from harbourmaster.serving.responses import Refusal
from harbourmaster.telemetry.text import reason

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from harbourmaster.serving.direct import Direct


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


BACKLOG: Final = 1024
"""Connections that may wait for their handshake, as after a rollout."""
_DEFAULTS: Final = Timeouts()
_EVERY_IPV4: Final = "0.0.0.0"  # noqa: S104 - what users ask for
_EVERY_ADDRESS: Final = "::"
"""All addresses of both families, or of IPv4 on a machine without IPv6."""
_NO_IPV6: Final = frozenset((errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL))
_CAUSES: Final = {
    errno.EADDRINUSE: "the port is in use; stop the process that has it, or choose another port",
    errno.EACCES: "this user is not allowed to listen there; choose a port above 1023",
    errno.EADDRNOTAVAIL: "this machine has no such address; choose one that it has",
}
Handler: TypeAlias = "Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]"


class AddressError(Exception):
    """An address that can't be listened on; the text is one line for the user."""


class Site:
    """One listener. ``port`` and ``url`` are true after ``start``."""

    def __init__(
        self,
        served: web.Application | Handler,
        *,
        host: str,
        port: int,
        tls: ssl.SSLContext | None = None,
        timeouts: Timeouts = _DEFAULTS,
        limits: Limits | None = None,
    ) -> None:
        """Serve an application, or a handler alone, which spares what an application adds.

        ``port`` 0 picks a free one. ``tls`` is a holder's context; None serves plain HTTP.
        ``limits`` are those that the handlers keep as well.
        """
        self.host = host
        self.port = port
        self._tls = tls
        self._timeouts = timeouts
        self._listener: asyncio.Server | None = None
        self._direct = served.direct if isinstance(served, Routes) else None
        if limits is None:
            limits = self._direct.limits if self._direct is not None else Limits()
        self._connections = Connections(limits)
        self._runner = _runner(served, timeouts)

    @property
    def url(self) -> str:
        """Scheme, address and port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self._tls is None else 'https'}://{host}:{self.port}"

    @property
    def loopback(self) -> str:
        """An address by which this process reaches it."""
        # A pod with an interface for IPv6 may still lack ::1, but every pod has 127.0.0.1.
        return "127.0.0.1" if self.host in {_EVERY_IPV4, _EVERY_ADDRESS} else self.host

    @property
    def connections(self) -> int:
        """Connections open now, handshakes not counted."""
        return self._connections.count

    async def start(self) -> None:
        """Start the application, then listen. Raises AddressError, and leaves nothing running."""
        bound = await _bind(self.host, self.port)
        try:
            await self._runner.setup()
            self._listener = await self._listen(bound)
        except BaseException:
            bound.close()
            await self._runner.cleanup()
            raise
        self.port = bound.getsockname()[1]
        if bound.getsockname()[0] in {_EVERY_IPV4, _EVERY_ADDRESS}:
            self.host = bound.getsockname()[0]

    def close_connections_after_response(self) -> None:
        """From now on each answer is the last one of its connection; new ones are still taken."""
        self._connections.is_draining = True

    async def wait_until_unused(self) -> None:
        """Wait for all connections to be gone."""
        await self._connections.unused.wait()

    def stop_listening(self) -> None:
        """Take no new connections; those that are open go on."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    async def stop(self) -> None:
        """Stop listening, let running requests end within the time-out, and clean up."""
        self.stop_listening()
        await self._runner.cleanup()

    async def _listen(self, bound: socket.socket) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        server = self._runner.server
        if server is None:
            raise RuntimeError("the runner is set up before it listens")

        def connect() -> asyncio.Protocol:
            protocol = HttpConnection(server, self._connections, self._timeouts, loop, self._direct)
            if self._tls is None:
                return protocol
            return TlsConnection(protocol, self._tls, self._timeouts, loop)

        return await loop.create_server(connect, sock=bound, backlog=BACKLOG)


def _runner(
    served: web.Application | Handler, timeouts: Timeouts
) -> web.AppRunner | web.ServerRunner:
    if isinstance(served, web.Application):
        served.on_response_prepare.append(remove_server_header)
        return web.AppRunner(
            served,
            handle_signals=False,
            handler_cancellation=True,
            shutdown_timeout=timeouts.shutdown,
        )
    server = web.Server(served, handler_cancellation=True)
    return web.ServerRunner(server, handle_signals=False, shutdown_timeout=timeouts.shutdown)


async def _bind(host: str, port: int) -> socket.socket:
    try:
        addresses = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError):
        raise AddressError(f'"{host}" is not a local address; give an IP address') from None
    family, _, _, _, address = addresses[0]
    try:
        return _bind_address(family, address)
    except OSError as error:
        if address[0] == _EVERY_ADDRESS and error.errno in _NO_IPV6:
            return await _bind(_EVERY_IPV4, port)
        cause = _CAUSES.get(error.errno or 0, reason(error))
        raise AddressError(f"{host} port {port}: {cause}") from None


def _bind_address(family: socket.AddressFamily, address: tuple[Any, ...]) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setblocking(False)
        # A restart must not wait for the last process's connections to be forgotten.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if address[0] == _EVERY_ADDRESS:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound


class Routes:
    """A handler that dispatches POST requests by path, and what is answered directly of them."""

    def __init__(self, routes: Mapping[str, Handler], direct: Direct | None = None) -> None:
        self._routes = routes
        self.direct = direct

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer. Raises Refusal: 404 for another path, 405 for a method."""
        handler = self._routes.get(request.path)
        if handler is None:
            raise Refusal(404, f"404: not found; POST to {' or '.join(self._routes)}")
        if request.method != hdrs.METH_POST:
            raise Refusal(405, "405: only POST is allowed", allow=hdrs.METH_POST)
        return await handler(request)
