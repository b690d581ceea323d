"""Connections to providers, only to addresses that were checked.

A name may resolve to other addresses the second time (DNS rebinding). So it is resolved once, and
the connection goes to the addresses that were checked.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import aiohttp
from aiohttp.abc import AbstractResolver

from harbourmaster.api.turns import Turns
from harbourmaster.providers.errors import ForbiddenAddressError
from harbourmaster.telemetry.peer_protocol import limit_peers

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp.abc import ResolveResult

    from harbourmaster.providers.addresses import AddressFilter

KEEP_SECONDS: Final = 75.0
"""Seconds that a connection stays idle, so that the query of the next minute reuses it."""
NAME_SECONDS: Final = 10
"""Seconds that the addresses of a name are cached."""
MAX_LOOKUPS: Final = 64
"""Concurrent lookups: the resolver of the system may block, and cannot be interrupted."""

NAMESPACE: Final = ContextVar("namespace", default="")
"""The namespace for which a request is sent: one leaves lookups to others."""

Lookup: TypeAlias = "Callable[[str, int, int], list[Any]]"
"""A function of host, port and family with the result of ``socket.getaddrinfo``."""


class CheckedResolver(AbstractResolver):
    """Resolves names, and rejects a name if any of its addresses is forbidden."""

    def __init__(self, addresses: AddressFilter, lookup: Lookup) -> None:
        self._addresses = addresses
        self._lookup = lookup
        self._running: dict[tuple[str, int], asyncio.Future[list[Any]]] = {}
        self._turns: Turns[None] = Turns(MAX_LOOKUPS)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return all addresses of a name. Raises ForbiddenAddressError, OSError."""
        results = await self._look_up(host, port, family)
        if not results:
            raise OSError(None, "no address")
        addresses: list[ResolveResult] = []
        for kind, _, proto, _, sockaddr in results:
            address = str(sockaddr[0])
            self._addresses.check(address, host)
            addresses.append(
                {
                    "hostname": host,
                    "host": address,
                    "port": port,
                    "family": kind,
                    "proto": proto,
                    "flags": socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
                }
            )
        return addresses

    async def close(self) -> None:
        """Do nothing: lookups that hang are left alone."""

    async def _look_up(self, host: str, port: int, family: int) -> list[Any]:
        """Look a name up once for all callers and ports, so that it counts once for the limit."""
        key = (host, family)
        running = self._running.get(key)
        if running is None:
            namespace = NAMESPACE.get()
            if not self._turns.has_room(namespace):
                raise OSError(None, "too many other names are being looked up")
            self._turns.take(namespace)
            running = self._running[key] = self._start_lookup(host, port, family)
            running.add_done_callback(lambda done: self._end(key, namespace, done))
        return await asyncio.shield(running)

    def _end(self, key: tuple[str, int], namespace: str, done: asyncio.Future[list[Any]]) -> None:
        self._running.pop(key, None)
        self._turns.leave(namespace)
        if not done.cancelled():
            # All callers may be cancelled; asyncio logs exceptions that are not retrieved.
            done.exception()

    def _start_lookup(self, host: str, port: int, family: int) -> asyncio.Future[list[Any]]:
        """Look up in a new thread: a process waits for the threads of a pool when it exits."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[Any]] = loop.create_future()

        def finish(result: list[Any] | Exception) -> None:
            if future.done():
                return
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)

        def work() -> None:
            result: list[Any] | Exception
            try:
                result = self._lookup(host, port, family)
            except Exception as error:  # noqa: BLE001 - the caller that waits on the future gets it
                result = error
            try:
                loop.call_soon_threadsafe(finish, result)
            except RuntimeError:
                # The loop is closed.
                return

        threading.Thread(target=work, name="lookup", daemon=True).start()
        return future


def look_up(host: str, port: int, family: int) -> list[Any]:
    """Ask the resolver of the system, for address families that this machine has."""
    return socket.getaddrinfo(
        host, port, family=family, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
    )


def make_connector(addresses: AddressFilter, lookup: Lookup | None = None) -> aiohttp.TCPConnector:
    """Return a connector for allowed addresses only, which limits what is received.

    Needs a running loop.
    It does not limit connections: a server that hangs would delay queries to others. QueryClient
    limits them for each target.
    """

    def checked_socket(info: tuple[Any, ...]) -> socket.socket:
        # Also checks addresses in URLs, which need no resolver.
        family, kind, proto, _, sockaddr = info
        try:
            addresses.check(str(sockaddr[0]), str(sockaddr[0]))
        except ForbiddenAddressError as error:
            raise PermissionError(str(error)) from None
        return socket.socket(family=family, type=kind, proto=proto)

    connector = aiohttp.TCPConnector(
        resolver=CheckedResolver(addresses, lookup or look_up),
        socket_factory=checked_socket,
        limit=0,
        ttl_dns_cache=NAME_SECONDS,
        keepalive_timeout=KEEP_SECONDS,
    )
    limit_peers(connector, asyncio.get_running_loop())
    return connector
