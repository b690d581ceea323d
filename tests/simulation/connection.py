"""The network between our processes and the simulated API server: slow, lossy, and in one process.

All of the product's client runs; only its HTTP session is replaced.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from urllib.parse import parse_qsl

import aiohttp
import msgspec

from harbourmaster.kube.client import Client
from harbourmaster.kube.connection import Connection
from harbourmaster.kube.transport import Transport
from helpers.api_server import Answer, verb_of
from helpers.fake_faults import Seen
from helpers.fake_store import encode, status
from helpers.fake_watch import CLOSE, TEAR

WRITES = {"create", "update", "patch", "delete"}
CONNECTION = Connection(server="http://simulated", source="the simulation")
REFUSED = aiohttp.ClientConnectorError(
    SimpleNamespace(host="simulated", port=80, ssl=None), ConnectionRefusedError(111, "refused")
)


class SimulatedClient(Client):
    """The product's client in a replica."""

    def __init__(self, network, replica, **options):
        super().__init__(CONNECTION, **options)
        previous = self._transport
        self._transport = _Transport(
            CONNECTION,
            user_agent="simulated",
            timeout=previous._timeout,
            retries=previous._retries,
            observer=previous._observer,
            sleep=previous._sleep,
        )
        self._transport.session = _Session(network, replica)


class _Transport(Transport):
    def open(self):
        self._session = self.session


class _Session:
    def __init__(self, network, replica):
        self._network = network
        self._replica = replica

    async def request(self, method, url, *, data, headers, timeout, **_options):  # noqa: ASYNC109 - aiohttp's
        if data is not None and not isinstance(data, bytes):
            data = data.read()
        query = dict(parse_qsl(url.raw_query_string))
        now = asyncio.get_running_loop().time()
        path = url.raw_path
        seen = Seen(now, verb_of(method, path, query), method, path, query, headers, data or b"")
        return await self._network.request(self._replica, seen, timeout)

    async def close(self):
        """Nothing is open."""


class _Response:
    def __init__(self, answer, chunks=None):
        self.status = answer.status
        self.headers = answer.headers
        self.content = self
        self._body = answer.body
        self._chunks = chunks

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        if self._chunks is not None:
            await self._chunks.aclose()

    async def iter_any(self):
        if self._chunks is None:
            yield self._body
            return
        async for chunk in self._chunks:
            yield chunk


class Network:
    """Carries requests. ``faults`` says what goes wrong with each, ``on_answer`` is told of it."""

    def __init__(self, server, faults, on_answer):
        self._server = server
        self._faults = faults
        self._on_answer = on_answer

    async def request(self, replica, seen, timeouts):
        loop = asyncio.get_running_loop()
        seconds = timeouts.total if timeouts.sock_read is None else None
        try:
            async with asyncio.timeout(seconds):
                return await self._carried(replica, seen, timeouts, loop)
        finally:
            # A process that is dead hears of nothing.
            if replica.is_dead:
                await asyncio.Event().wait()

    async def _carried(self, replica, seen, timeouts, loop):
        fault = self._faults.of(replica, seen)
        await replica.while_alive(asyncio.sleep(self._faults.latency()))
        if self._faults.is_cut_off(replica):
            raise REFUSED
        if fault == "lost before":
            raise aiohttp.ServerDisconnectedError
        if fault == "hangs before":
            await asyncio.Event().wait()
        if fault == "crash before":
            await replica.crash(f"before {seen.verb} {seen.path}")
        if isinstance(fault, int):
            answer = _refusal(fault, self._faults)
            self._on_answer(replica, seen, answer.status, "refused")
            return _Response(answer)
        self._server.actor = replica
        try:
            found = self._server.answer(seen)
        finally:
            self._server.actor = None
        is_watch = not isinstance(found, Answer)
        self._on_answer(replica, seen, 200 if is_watch else found.status, fault or "")
        if fault == "crash after":
            await replica.crash(f"after {seen.verb} {seen.path}")
        if is_watch:
            chunks = self._stream(replica, found, timeouts, loop)
            return _Response(Answer(200, b""), chunks)
        if fault == "hangs after":
            await asyncio.Event().wait()
        await replica.while_alive(asyncio.sleep(self._faults.latency()))
        if fault == "lost after":
            raise aiohttp.ServerDisconnectedError
        return _Response(found)

    async def _stream(self, replica, watch, timeouts, loop):
        end = loop.time() + float(watch.query.get("timeoutSeconds") or 1800)
        try:
            while True:
                wait = min(end - loop.time(), timeouts.sock_read)
                try:
                    async with asyncio.timeout(wait):
                        items = [await watch.queue.get()]
                except TimeoutError:
                    if loop.time() >= end:
                        return
                    raise aiohttp.SocketTimeoutError from None
                # What comes meanwhile comes with it.
                await asyncio.sleep(self._faults.watch_delay(replica, watch.resource))
                items += [watch.queue.get_nowait() for _ in range(watch.queue.qsize())]
                if self._faults.is_cut_off(replica):
                    raise aiohttp.ClientPayloadError
                ends = [number for number, each in enumerate(items) if each in (CLOSE, TEAR)]
                if lines := items[: min(ends, default=None)]:
                    yield b"".join(lines)
                if CLOSE in items:
                    return
                if TEAR in items:
                    yield b'{"type":"MODIFIED","object":{"kind":'
                    raise aiohttp.ClientPayloadError
        finally:
            self._server.end(watch)


def _refusal(code, faults):
    headers = {"Content-Type": "application/json"}
    if code == 429 or faults.says_when():
        headers["Retry-After"] = "1"
    return Answer(code, encode(status(code, "on demand")), headers)


def decoded(body):
    """The JSON of a request's body, or None."""
    return msgspec.json.decode(body) if body else None
