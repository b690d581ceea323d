"""Connections to providers: a name is looked up once, and only checked addresses are connected to.

What a name means may change between two looks at it, so there is no second one: the addresses
that were checked are those that the connection is made to (DNS rebinding).
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

    from harbourmaster.providers.addresses import Addresses

KEEP_SECONDS: Final = 75.0
"""Longer than the usual interval, so that it finds the connection of the one before."""
NAME_SECONDS: Final = 10
"""How long the addresses of a name are used."""
MAX_LOOKUPS: Final = 64
"""Names that are looked up at the same time; the resolver of the system gives no answer sooner
than it gives up, and can't be interrupted."""

Lookup: TypeAlias = "Callable[[str, int, int], list[Any]]"
"""Of host, port and family, as ``socket.getaddrinfo`` answers it."""


class CheckedResolver(AbstractResolver):
    """Looks names up, and refuses a name that has any address that is refused."""

    def __init__(self, addresses: Addresses, lookup: Lookup) -> None:
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
        """Nothing: a lookup that hangs is left to itself."""

    async def _looked_up(self, host: str, port: int, family: int) -> list[Any]:
        """One lookup for all who want the name: its addresses are the same on every port.

        So a name that hangs takes one of the turns, however many servers have it.
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
            # Perhaps nobody waits for it any more.
            done.exception()

    def _begun(self, host: str, port: int, family: int) -> asyncio.Future[list[Any]]:
        """In a thread of its own: one name that hangs delays no other, nor the end of the process.

        The threads of a pool are few, and a process waits for them when it ends.
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
            except Exception as error:  # noqa: BLE001 - who waits for it gets it
                found = error
            try:
                loop.call_soon_threadsafe(finish, found)
            except RuntimeError:
                # The loop is closed: nobody waits.
                return

        threading.Thread(target=work, name="lookup", daemon=True).start()
        return future


def look_up(host: str, port: int, family: int) -> list[Any]:
    """Ask the system; of a family that this machine has no address of, nothing."""
    return socket.getaddrinfo(
        host, port, family=family, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
    )


def connector(addresses: Addresses, lookup: Lookup | None = None) -> aiohttp.TCPConnector:
    """Connects to addresses that may be asked, and to no others. Needs a running loop.

    How many connections there are is for the lanes of those who ask: a limit here would let the
    connections of a server that hangs keep others waiting.
    """

    def checked_socket(info: tuple[Any, ...]) -> socket.socket:
        # Also for an address that stands in a URL, for which no resolver is asked.
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
