"""A TCP balancer on loopback that follows readiness, as a Service and its endpoints do.

A new connection goes to the next ready backend; one that is open stays where it is, also when its
backend is not ready any more.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import NamedTuple

import aiohttp

PROBE_SECONDS = 0.2
# The default of 100 is full after a moment without a turn, and then a dial takes seconds.
BACKLOG = 4096


class Backend(NamedTuple):
    """The ports of a replica on the loopback, for reviews and for its readiness."""

    port: int
    health_port: int


class Balancer:
    """``async with Balancer() as balancer``; ``port`` is where it listens."""

    def __init__(self):
        self.backends: list[Backend] = []
        self.ready: list[Backend] = []
        self.refused = 0
        """Connections that found no ready backend."""
        self._turn = 0
        self.tasks = set()
        self.sides = set()
        self._changed = asyncio.Condition()

    async def __aenter__(self):
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Side(self), "127.0.0.1", 0, backlog=BACKLOG
        )
        self.port = self._server.sockets[0].getsockname()[1]
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=1))
        self._probing = asyncio.create_task(self._probe())
        return self

    async def __aexit__(self, *_):
        self._server.close()
        for task in (self._probing, *self.tasks):
            task.cancel()
        await asyncio.gather(self._probing, *self.tasks, return_exceptions=True)
        for side in self.sides:
            side.transport.abort()
        # Sockets are closed a turn of the loop after their connections are given up.
        await asyncio.sleep(0.1)
        await self._session.close()

    async def await_ready(self, *backends):
        """Wait until exactly these are ready."""
        async with self._changed:
            await self._changed.wait_for(lambda: set(self.ready) == set(backends))

    async def _probe(self):
        # The kubelet asks at intervals too; nothing tells it.
        while True:
            answers = await asyncio.gather(*(self._is_ready(backend) for backend in self.backends))
            async with self._changed:
                asked = zip(self.backends, answers, strict=False)
                self.ready = [backend for backend, is_ready in asked if is_ready]
                self._changed.notify_all()
            await asyncio.sleep(PROBE_SECONDS)

    async def _is_ready(self, backend):
        try:
            async with self._session.get(
                f"http://127.0.0.1:{backend.health_port}/readyz"
            ) as response:
                return response.status == 200
        except (OSError, aiohttp.ClientError, TimeoutError):
            return False

    def _next(self):
        """The ready backends, the one whose turn it is first."""
        self._turn += 1
        start = self._turn % max(len(self.ready), 1)
        return self.ready[start:] + self.ready[:start]


class _Side(asyncio.Protocol):
    """One of the two connections of a client; what comes in goes out on the other."""

    def __init__(self, balancer, peer=None):
        self.balancer = balancer
        self.peer = peer
        self.transport = None
        self.waiting = []
        self.ended = False

    def connection_made(self, transport):
        self.transport = transport
        self.balancer.sides.add(self)
        if self.peer is None:
            task = asyncio.ensure_future(self._dial())
            self.balancer.tasks.add(task)
            task.add_done_callback(self.balancer.tasks.discard)

    def data_received(self, data):
        if self.peer is None:
            self.waiting.append(data)
        else:
            self.peer.transport.write(data)

    def eof_received(self):
        self.ended = True
        if self.peer is not None and self.peer.transport.can_write_eof():
            self.peer.transport.write_eof()
        # Half of a connection may go on.
        return True

    def connection_lost(self, _error):
        self.balancer.sides.discard(self)
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.abort()

    async def _dial(self):
        loop = asyncio.get_running_loop()
        for backend in self.balancer._next():
            with contextlib.suppress(ConnectionRefusedError):
                _, backend_protocol = await loop.create_connection(
                    lambda: _Side(self.balancer, self), "127.0.0.1", backend.port
                )
                break
        else:
            self.balancer.refused += 1
            self.transport.abort()
            return
        if self.transport.is_closing():
            backend_protocol.transport.abort()
            return
        for data in self.waiting:
            backend_protocol.transport.write(data)
        self.peer = backend_protocol
        if self.ended:
            backend_protocol.transport.write_eof()
