"""The slow and lossy network between our processes and the simulated API server.

The product's client runs completely (``helpers.in_process``).
"""

from __future__ import annotations

import asyncio
from functools import partial
from types import SimpleNamespace

import aiohttp
import msgspec

from helpers.api_server import CLOSE, TEAR, Answer
from helpers.fake_store import encode, status
from helpers.in_process import InProcessClient, Response

WRITES = {"create", "update", "patch", "delete"}
REFUSED = aiohttp.ClientConnectorError(
    SimpleNamespace(host="simulated", port=80, ssl=None), ConnectionRefusedError(111, "refused")
)


class SimulatedClient(InProcessClient):
    """The product's client in a simulated process."""

    def __init__(self, network, replica, **options):
        super().__init__(partial(network.request, replica), **options)


class Network:
    """Carries requests, with a fault of ``faults`` each; ``on_answer`` gets each answer."""

    def __init__(self, server, faults, on_answer):
        self._server = server
        self._faults = faults
        self._on_answer = on_answer

    async def request(self, replica, seen, timeouts):
        loop = asyncio.get_running_loop()
        seconds = timeouts.total if timeouts.sock_read is None else None
        try:
            async with asyncio.timeout(seconds):
                return await self._carry(replica, seen, timeouts, loop)
        finally:
            # A dead process gets no answer.
            if replica.is_dead:
                await asyncio.Event().wait()

    async def _carry(self, replica, seen, timeouts, loop):
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
            return Response(answer)
        self._server.actor = replica
        try:
            result = self._server.answer(seen)
        finally:
            self._server.actor = None
        is_watch = not isinstance(result, Answer)
        self._on_answer(replica, seen, 200 if is_watch else result.status, fault or "")
        if fault == "crash after":
            await replica.crash(f"after {seen.verb} {seen.path}")
        if is_watch:
            chunks = self._stream(replica, result, timeouts, loop)
            return Response(Answer(200, b""), chunks)
        if fault == "hangs after":
            await asyncio.Event().wait()
        await replica.while_alive(asyncio.sleep(self._faults.latency()))
        if fault == "lost after":
            raise aiohttp.ServerDisconnectedError
        return Response(result)

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
                # Later events of the meantime come together.
                await asyncio.sleep(self._faults.watch_delay(replica, watch.resource))
                items += [watch.queue.get_nowait() for _ in range(watch.queue.qsize())]
                if self._faults.is_cut_off(replica):
                    raise aiohttp.ClientPayloadError
                ends = [number for number, item in enumerate(items) if item in (CLOSE, TEAR)]
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
    if code == 429 or faults.sends_retry_after():
        headers["Retry-After"] = "1"
    return Answer(code, encode(status(code, "on demand")), headers)


def decode_body(body):
    """Decode the JSON of a request's body; None if it is empty."""
    return msgspec.json.decode(body) if body else None
