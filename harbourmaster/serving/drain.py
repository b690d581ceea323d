"""Stopping without losing a request (platform-spec 5.4).

A request that meets the close of its idle connection is lost, and clients do not repeat a POST. So
while the endpoint is taken out of service, each connection ends with the answer to its next
request; only those still open then are closed.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from harbourmaster.serving.readiness import Readiness
    from harbourmaster.serving.site import Site

_LAST_ACCEPTED: Final = 0.1
"""Seconds for connections taken just before the end to send their request."""
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_KILLED: Final = 128


class StopSignals:
    """Inside ``with``, SIGTERM and SIGINT end ``wait``; a second one ends the process at once."""

    def __init__(self) -> None:
        self._name = ""
        self._came = asyncio.Event()

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._receive, number)
        return self

    def __exit__(self, *_: object) -> None:
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.remove_signal_handler(number)

    async def wait(self) -> str:
        """Wait for a signal, and return its name."""
        await self._came.wait()
        return self._name

    def _receive(self, received: signal.Signals) -> None:
        if self._came.is_set():
            # Whoever asks twice does not want to wait for anything, cleanup included.
            os._exit(_KILLED + received)
        self._name = received.name
        self._came.set()


async def drain(site: Site, readiness: Readiness, *, wait: float, cap: float) -> int:
    """Go out of service: unready, every answer the last of its connection, then the end.

    New connections are taken for ``wait`` seconds, and on until no connection is left or ``cap``
    seconds are over. Then nothing is accepted, running requests get the site's shutdown time-out.
    Returns how many connections were still open at the end, and closed by us.
    """
    end = asyncio.get_running_loop().time() + cap
    readiness.set("draining", "the server is stopping")
    site.close_connections_after_response()
    await asyncio.sleep(wait)
    with suppress(TimeoutError):
        async with asyncio.timeout_at(end):
            await site.wait_until_unused()
    site.stop_listening()
    await asyncio.sleep(_LAST_ACCEPTED)
    cut = site.connections
    await site.stop()
    return cut
