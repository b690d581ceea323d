"""The API server in memory over HTTP, which breaks its rules on demand.

``async with FakeApi() as api`` listens on a free port of 127.0.0.1, without TLS by default, and
``api.client()`` talks to it. Faults wait for the requests that they are for; ``api.requests`` tells
what came.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import struct
from typing import Any, NamedTuple

from aiohttp import web

from harbourmaster.kube.client import Client
from harbourmaster.kube.connection import Connection
from helpers.api_server import CLOSE, JSON, TEAR, ApiServer, Watch, verb_of
from helpers.fake_store import encode, status

HTML = b"<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n</html>\r\n"


class Seen(NamedTuple):
    """A request; ``time`` is the loop's."""

    time: float
    verb: str
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


class Fault(NamedTuple):
    """A fault to inject, and the requests that it hits."""

    method: str
    pattern: re.Pattern
    kind: str
    answer: dict[str, Any]

    def fits(self, seen):
        return self.method in {"*", seen.method, seen.verb} and self.pattern.search(seen.path)


class Planned:
    """The requests so far, and the faults that wait for theirs."""

    def __init__(self):
        self.requests: list[Seen] = []
        self._faults: list[Fault] = []
        self._forever: list[Fault] = []
        self._arrived = asyncio.Condition()

    def fail_next(  # noqa: PLR0913 - each fault uses some
        self,
        method="*",
        path_pattern="",
        count=1,
        *,
        status=503,
        headers=None,
        body=None,
        kind="status",
    ):
        """Let the next ``count`` requests fail that fit; None for all until ``heal``.

        ``method`` is GET, POST ... or a verb (get, list, watch, create, update, patch, delete).
        Kinds: ``status`` (a Status, or ``body``), ``html`` (a proxy's page), ``garbage`` (200 and
        no JSON), ``redirect``, ``reset`` (no answer), ``torn`` (half of the right answer), ``hang``
        (no answer before ``release``; then the right one).
        """
        answer = {"status": status, "headers": headers or {}, "body": body}
        fault = Fault(method, re.compile(path_pattern), kind, answer)
        if count is None:
            self._forever.append(fault)
        else:
            self._faults += [fault] * count

    def forbid(self, verb, resource, user="system:serviceaccount:default:app"):
        """Refuse a verb as an API server does without a role for it, until ``heal``."""
        plural, group = resource.plural, resource.group
        message = (
            f'{plural} is forbidden: User "{user}" cannot {verb} resource "{plural}" '
            f'in API group "{group}" at the cluster scope'
        )
        pattern = f"/{re.escape(group or 'api')}/.*{plural}(/[^/]+)?$"
        forbidden = encode(status(403, message))
        self.fail_next(verb, pattern, None, status=403, body=forbidden)

    def forget(self):
        """Let nothing fail any more."""
        self._faults.clear()
        self._forever.clear()

    def fault_for(self, seen):
        """The fault that a request meets, or None."""
        for fault in self._faults:
            if fault.fits(seen):
                self._faults.remove(fault)
                return fault
        return next((fault for fault in self._forever if fault.fits(seen)), None)

    async def note(self, seen):
        self.requests.append(seen)
        async with self._arrived:
            self._arrived.notify_all()

    def seen(self, verb="*", path_pattern=""):
        """The requests so far of a verb or method, by path."""
        fault = Fault(verb, re.compile(path_pattern), "", {})
        return [request for request in self.requests if fault.fits(request)]

    async def until_seen(self, verb="*", path_pattern="", count=1):
        """Wait for the ``count``th such request to arrive; returns it."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: len(self.seen(verb, path_pattern)) >= count)
        return self.seen(verb, path_pattern)[count - 1]


class FakeApi(ApiServer, Planned):
    """The server on a port."""

    def __init__(self, *, tls=None, **options):
        ApiServer.__init__(self, **options)
        Planned.__init__(self)
        self.tls = tls
        self._speaking = asyncio.Event()
        self._speaking.set()
        self._released = asyncio.Event()
        self._changed_watches = asyncio.Condition()
        self._runner = None
        self.port = 0

    async def __aenter__(self):
        await self.start()
        return self

    async def __aexit__(self, *_):
        await self.stop()

    async def start(self):
        """Listen; after a stop on the same port, and with the same objects."""
        app = web.Application(client_max_size=8 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1
        )
        await self._runner.setup()
        site = web.TCPSite(
            self._runner, "127.0.0.1", self.port, ssl_context=self.tls, reuse_address=True
        )
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self):
        self.heal()
        self.close_watches()
        await self._runner.cleanup()

    @property
    def url(self):
        return f"{'http' if self.tls is None else 'https'}://127.0.0.1:{self.port}"

    @property
    def connection(self):
        return Connection(server=self.url, source="a test")

    def client(self, **options):
        """A client, not yet opened."""
        return Client(self.connection, **options)

    # What goes wrong

    def heal(self):
        """Forget all faults, and release what hangs."""
        self.forget()
        self.release()

    def send_raw(self, data: bytes):
        """Send bytes to all watches."""
        self._order(data)

    def silence(self):
        """Say nothing to any watch until ``release``; nothing is lost."""
        self._speaking.clear()

    def release(self):
        """Answer what hangs and tell the watches what they missed."""
        self._speaking.set()
        self._released.set()
        self._released = asyncio.Event()

    # What was seen

    @property
    def watches(self):
        """The number of open watches."""
        return len(self._watches)

    async def until_watched(self, count=1):
        """Wait for ``count`` open watches."""
        async with self._changed_watches:
            await self._changed_watches.wait_for(lambda: self.watches == count)

    # How it works

    async def _answer(self, request):
        seen = await self._log(request)
        fault = self.fault_for(seen)
        if fault is None:
            return await self._right_answer(request, seen)
        answer = fault.answer
        if fault.kind == "status":
            body = answer["body"] or encode(status(answer["status"], "on demand"))
            return _response(body, answer["status"], answer["headers"])
        if fault.kind == "html":
            headers = {"Content-Type": "text/html", **answer["headers"]}
            return web.Response(body=HTML, status=answer["status"], headers=headers)
        if fault.kind == "garbage":
            return _response(answer["body"] or b'{"kind": nonsense', 200, {})
        if fault.kind == "redirect":
            return web.Response(status=302, headers={"Location": "http://127.0.0.1:9/"})
        if fault.kind == "hang":
            await self._released.wait()
            return await self._right_answer(request, seen)
        if fault.kind == "torn":
            right = await self._right_answer(request, seen)
            torn = web.StreamResponse(status=right.status, headers=JSON)
            torn.content_length = len(right.body)
            await torn.prepare(request)
            await torn.write(right.body[: len(right.body) // 2])
            request.transport.close()
            return torn
        _reset(request)
        return web.Response()

    async def _log(self, request):
        path, query = request.rel_url.raw_path, dict(request.query)
        verb = verb_of(request.method, path, query)
        now = asyncio.get_running_loop().time()
        body = await request.read()
        seen = Seen(now, verb, request.method, path, query, dict(request.headers), body)
        await self.note(seen)
        return seen

    async def _right_answer(self, request, seen):
        answer = self.answer(seen)
        if isinstance(answer, Watch):
            return await self._watch(request, answer)
        return web.Response(body=answer.body, status=answer.status, headers=answer.headers)

    async def _watch(self, request, watch):
        response = web.StreamResponse(headers=JSON)
        response.enable_chunked_encoding()
        try:
            await response.prepare(request)
            await self._announce()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(float(watch.query.get("timeoutSeconds", 0)) or 1800):
                    await self._stream(watch, request, response)
        finally:
            self.end(watch)
            await self._announce()
        return response

    async def _stream(self, watch, request, response):
        while True:
            what = await watch.queue.get()
            await self._speaking.wait()
            if what is CLOSE:
                return
            if what is TEAR:
                await response.write(b'{"type":"MODIFIED","object":{"kind":')
                request.transport.close()
                return
            await response.write(what)

    async def _announce(self):
        async with self._changed_watches:
            self._changed_watches.notify_all()


def _response(body, code=200, headers=None):
    return web.Response(body=body, status=code, headers={**JSON, **(headers or {})})


def _reset(request):
    """End the connection by a reset, as a process that is killed does."""
    if request.transport is not None:
        wire = request.transport.get_extra_info("socket")
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        request.transport.abort()
