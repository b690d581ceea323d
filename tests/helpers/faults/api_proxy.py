"""A proxy before a real API server that passes everything through, and misbehaves on demand.

It ends TLS with the API server's own certificate, in a thread and event loop of its own, so that
nothing a test does holds it up.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import ssl
import struct
import threading
import time
from collections import defaultdict
from enum import Enum
from itertools import count
from typing import NamedTuple

import aiohttp
from aiohttp import web
from yarl import URL

from helpers.fake_store import status

HOST = "127.0.0.1"
_HTML = b"<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>nginx</body></html>\r\n"
# Headers that belong to one connection, or are rewritten.
_OF_A_HOP = {"connection", "content-length", "host", "keep-alive", "transfer-encoding", "date"}


class Fault(Enum):
    """Faults of the proxy. All but HANG, HOLD and TEAR break the open streams at once."""

    HANG = "nothing is answered and no stream goes on until it is over; then they do"
    AWAY = "nothing is answered until it is over; then it is"
    REFUSE = "429 with Retry-After"
    TEAR = "watches end within a line, at the first event; every other one with its connection"
    HTML = "502 with a page of a proxy"
    RESET = "connections are reset"
    HOLD = "requests are carried out, and their answers kept until it is over"
    LOSE = "requests are carried out, and their connections reset instead of an answer"


class Asked(NamedTuple):
    """A request. ``time`` is time.monotonic(), ``verb`` list, watch or the method."""

    time: float
    verb: str
    path: str
    selector: str


class ApiProxy:
    """``with ApiProxy(plane) as proxy``; ``port`` takes the API server's place."""

    def __init__(self, plane, *, retry_after=1):
        """``retry_after`` is what a refusal asks for, in seconds."""
        self.asked: list[Asked] = []
        self.torn = 0
        """Streams that ended within a line."""
        self._plane = plane
        self._retry_after = retry_after
        self._fault = None
        self._concerned = re.compile("")
        self._over = asyncio.Event()
        self._streams = {}
        self._tears = count()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="api-proxy")

    def __enter__(self):
        self._thread.start()
        self._stack = contextlib.AsyncExitStack()
        self.port = self._do(self._start())
        return self

    def __exit__(self, *_):
        self._do(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @contextlib.contextmanager
    def failing(self, fault, concerned=""):
        """Let requests fail whose path matches ``concerned``, while the block runs."""
        self._do(self._begin(fault, re.compile(concerned)))
        try:
            yield
        finally:
            self._do(self._end())

    def _do(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)

    async def _start(self):
        pki = self._plane.layout.pki
        trust = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        self._session = await self._stack.enter_async_context(
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=trust, limit=0),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
                auto_decompress=False,
            )
        )
        app = web.Application(client_max_size=0)
        app.router.add_route("*", "/{path:.*}", self._answer)
        # A client that goes away takes its request with it, before it reaches the API server.
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0, access_log=None)
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        identity = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        identity.load_cert_chain(pki / "serving.crt", pki / "serving.key")
        site = web.TCPSite(runner, HOST, 0, ssl_context=identity)
        await site.start()
        return runner.addresses[0][1]

    async def _stop(self):
        await self._end()
        self._break_streams()
        await self._stack.aclose()
        # TLS transports close a turn of the loop after their sessions.
        await asyncio.sleep(0.1)

    async def _begin(self, fault, concerned):
        self._over = asyncio.Event()
        self._fault, self._concerned = fault, concerned
        if fault not in {Fault.HANG, Fault.HOLD, Fault.TEAR}:
            self._break_streams()

    async def _end(self):
        self._fault = None
        self._over.set()

    def _break_streams(self):
        for request in list(self._streams.values()):
            if self._concerned.search(request.path):
                _break(request, reset=True)

    def _fault_of(self, request):
        return self._fault if self._concerned.search(request.path) else None

    async def _answer(self, request):
        self._note(request)
        while self._fault_of(request) in {Fault.HANG, Fault.AWAY}:
            await self._over.wait()
        fault = self._fault_of(request)
        if fault is Fault.REFUSE:
            return self._refusal()
        if fault is Fault.HTML:
            return web.Response(status=502, body=_HTML, content_type="text/html")
        if fault is Fault.RESET:
            _break(request, reset=True)
            return web.Response()
        return await self._pass_on(request)

    def _note(self, request):
        verb = request.method.lower()
        if verb == "get" and "limit" in request.query:
            verb = "list"
        if request.query.get("watch") == "true":
            verb = "watch"
        selector = request.query.get("fieldSelector", "")
        self.asked.append(Asked(time.monotonic(), verb, request.path, selector))

    def _refusal(self):
        details = {"retryAfterSeconds": self._retry_after}
        body = status(429, "too many requests, please try again later", details=details)
        headers = {"Retry-After": str(self._retry_after)}
        return web.json_response(body, status=429, headers=headers)

    async def _pass_on(self, request):
        url = URL(f"https://{HOST}:{self._plane.port}{request.raw_path}", encoded=True)
        try:
            async with self._session.request(
                request.method,
                url,
                data=await request.read() or None,
                headers=_carried_headers(request.headers),
                allow_redirects=False,
            ) as answer:
                headers = _carried_headers(answer.headers)
                if request.query.get("watch") == "true" and answer.status == 200:
                    return await self._stream(request, answer, headers)
                body = await answer.read()
        except (OSError, aiohttp.ClientError):
            _break(request)
            return web.Response()
        while self._fault_of(request) in {Fault.HANG, Fault.HOLD}:
            await self._over.wait()
        if self._fault_of(request) is Fault.LOSE:
            _break(request, reset=True)
        return web.Response(status=answer.status, body=body, headers=headers)

    async def _stream(self, request, answer, headers):
        response = web.StreamResponse(status=answer.status, headers=headers)
        self._streams[id(request)] = request
        try:
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                while self._fault_of(request) is Fault.HANG:
                    await self._over.wait()
                if self._fault_of(request) is Fault.TEAR:
                    await response.write(chunk[: -len(chunk.splitlines()[-1]) // 2 - 1])
                    self.torn += 1
                    if next(self._tears) % 2:
                        _break(request)
                    return response
                await response.write(chunk)
        finally:
            del self._streams[id(request)]
        return response


def busiest(asked, seconds=1.0):
    """The most requests of each kind within any ``seconds``; a watch and its lists are one."""
    times = defaultdict(list)
    for request in asked:
        verb = "watch" if request.verb in {"list", "watch"} else request.verb
        times[verb, request.path, request.selector].append(request.time)
    return {
        kind: max(sum(begin <= instant < begin + seconds for instant in time) for begin in time)
        for kind, time in times.items()
    }


def _carried_headers(headers):
    return {name: value for name, value in headers.items() if name.lower() not in _OF_A_HOP}


def _break(request, *, reset=False):
    """End the connection of a request in the middle of whatever it is about."""
    transport = request.transport
    if transport is None:
        return
    if reset:
        # Nothing is sent any more, not even an end: the other side gets a RST.
        linger = struct.pack("ii", 1, 0)
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    transport.abort()
