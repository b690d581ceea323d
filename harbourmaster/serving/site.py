"""A listening address that serves one aiohttp application or handler, over TLS or plain."""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import TYPE_CHECKING, Final, TypeAlias

from aiohttp import hdrs, web

from harbourmaster.serving.connections import Connections
from harbourmaster.serving.http_connection import HttpConnection, Timeouts, remove_server_header
from harbourmaster.serving.limits import Limits
from harbourmaster.serving.responses import Refusal
from harbourmaster.serving.tls import TlsConnection
from harbourmaster.telemetry.text import reason

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Mapping

    from harbourmaster.serving.direct import Direct

BACKLOG: Final = 1024
"""Connections that may wait for their handshake, as after a rollout."""
_DEFAULTS: Final = Timeouts()
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
    except OSError:
        raise AddressError(f'"{host}" is not a local address; give an IP address') from None
    family, kind, protocol, _, address = addresses[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setblocking(False)
        # A restart must not wait for the last process's connections to be forgotten.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        cause = _CAUSES.get(error.errno or 0, reason(error))
        raise AddressError(f"{host} port {port}: {cause}") from None
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
