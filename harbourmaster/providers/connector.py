"""Connections to providers: a name is resolved once, and only checked addresses are connected to.

A name may resolve to other addresses the second time (DNS rebinding), so there is no second time:
the connection goes to the addresses that were checked.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import aiohttp
from aiohttp.abc import AbstractResolver

from harbourmaster.providers.errors import ForbiddenAddressError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp.abc import ResolveResult

    from harbourmaster.providers.addresses import AddressFilter

KEEP_SECONDS: Final = 75.0
"""Longer than the usual interval, so that the next query reuses the connection."""
NAME_SECONDS: Final = 10
"""Seconds that the addresses of a name are cached."""
MAX_LOOKUPS: Final = 64
"""Concurrent lookups; the resolver of the system may block for long and cannot be
interrupted."""

Lookup: TypeAlias = "Callable[[str, int, int], list[Any]]"
"""Takes host, port and family; returns the result of ``socket.getaddrinfo``."""


class CheckedResolver(AbstractResolver):
    """Resolves names, and rejects a name if any of its addresses is forbidden."""

    def __init__(self, addresses: AddressFilter, lookup: Lookup) -> None:
        self._addresses = addresses
        self._lookup = lookup
        self._running: dict[tuple[str, int], asyncio.Future[list[Any]]] = {}

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """All addresses. Raises ForbiddenAddressError, OSError."""
        found = await self._looked_up(host, port, family)
        if not found:
            raise OSError(None, "no address")
        results: list[ResolveResult] = []
        for kind, _, proto, _, place in found:
            address = str(place[0])
            self._addresses.check(address, host)
            results.append(
                {
                    "hostname": host,
                    "host": address,
                    "port": port,
                    "family": kind,
                    "proto": proto,
                    "flags": socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
                }
            )
        return results

    async def close(self) -> None:
        """Do nothing: lookups that hang are left alone."""

    async def _looked_up(self, host: str, port: int, family: int) -> list[Any]:
        """One lookup for all callers: the addresses of a name are the same on every port.

        So a name that hangs counts once towards the limit.
        """
        key = (host, family)
        running = self._running.get(key)
        if running is None:
            if len(self._running) >= MAX_LOOKUPS:
                raise OSError(None, "too many other names are being looked up")
            running = self._running[key] = self._begun(host, port, family)
            running.add_done_callback(lambda done: self._end(key, done))
        return await asyncio.shield(running)

    def _end(self, key: tuple[str, int], done: asyncio.Future[list[Any]]) -> None:
        self._running.pop(key, None)
        if not done.cancelled():
            # Nobody may be waiting for it.
            done.exception()

    def _begun(self, host: str, port: int, family: int) -> asyncio.Future[list[Any]]:
        """Look up in a new thread, so that a name that hangs delays neither others nor the exit.

        A pool has few threads, and a process waits for them when it exits.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[Any]] = loop.create_future()

        def finish(found: list[Any] | Exception) -> None:
            if future.done():
                return
            if isinstance(found, Exception):
                future.set_exception(found)
            else:
                future.set_result(found)

        def work() -> None:
            found: list[Any] | Exception
            try:
                found = self._lookup(host, port, family)
            except Exception as error:  # noqa: BLE001 - the caller that waits on the future gets it
                found = error
            try:
                loop.call_soon_threadsafe(finish, found)
            except RuntimeError:
                # The loop is closed.
                return

        threading.Thread(target=work, name="lookup", daemon=True).start()
        return future


def look_up(host: str, port: int, family: int) -> list[Any]:
    """Ask the system, only for address families that this machine has."""
    return socket.getaddrinfo(
        host, port, family=family, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
    )


def create_connector(
    addresses: AddressFilter, lookup: Lookup | None = None
) -> aiohttp.TCPConnector:
    """A connector for allowed addresses only. Needs a running loop.

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

    return aiohttp.TCPConnector(
        resolver=CheckedResolver(addresses, lookup or look_up),
        socket_factory=checked_socket,
        limit=0,
        ttl_dns_cache=NAME_SECONDS,
        keepalive_timeout=KEEP_SECONDS,
    )
