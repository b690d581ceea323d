"""An HTTP/1.1 client that sends exactly the bytes it is given, and an application to answer it."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from aiohttp import web

from harbourmaster.serving.bodies import read_body
from harbourmaster.serving.direct import Direct
from harbourmaster.serving.http_connection import check_client
from harbourmaster.serving.limits import Limits
from harbourmaster.serving.responses import NamelessResponse
from harbourmaster.serving.site import Routes
from helpers.patience import PATIENCE

if TYPE_CHECKING:
    from harbourmaster.serving.direct import PlainHead
    from harbourmaster.serving.http_connection import HttpConnection


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class Connection:
    """One connection; ``await Connection.open(site)``."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, site, tls=None, **options):
        name = {"server_hostname": "localhost"} if tls else {}
        return cls(*await asyncio.open_connection(site.host, site.port, ssl=tls, **name, **options))

    @classmethod
    async def open_with(cls, site, data: bytes):
        """One whose first bytes are there before the server learns of it."""
        client = socket.create_connection((site.host, site.port))
        client.sendall(data)
        return cls(*await asyncio.open_connection(sock=client))

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self) -> Answer:
        async with asyncio.timeout(PATIENCE):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
            body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        return Answer(int(head[0].split()[1]), headers, body)

    async def ask(self, data: bytes) -> Answer:
        self.send(data)
        return await self.answer()

    async def rest(self) -> bytes:
        """Wait for the server to close; what it still sent."""
        async with asyncio.timeout(PATIENCE):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""

    def abort(self) -> None:
        self.writer.transport.abort()

    async def drop(self) -> None:
        """Abort, and wait until nothing of the connection is left in the event loop."""
        self.abort()
        with suppress(OSError):
            await self.writer.wait_closed()


def post(body: bytes = b"{}", *headers: str, length: int | None = None, path: str = "/") -> bytes:
    """A request; ``length`` may lie, further headers replace the Content-Type."""
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: localhost",
        f"Content-Length: {len(body) if length is None else length}",
        *(headers or ("Content-Type: application/json",)),
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def post_chunked(*chunks: bytes, end: bool = True, path: str = "/") -> bytes:
    head = (
        b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n" % path.encode()
    )
    framed = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    return head + framed + (b"0\r\n\r\n" if end else b"")


class Echo:
    """Answers with the body it was sent, after the checks that a real handler makes."""

    def __init__(self, *, limit=1000, patience=10.0, client=None, limits=None) -> None:
        self.limits = limits or Limits()
        self.limit = limit
        self.patience = patience
        self.client = client
        self.bodies: list[bytes] = []
        self.hold: asyncio.Event | None = None
        self.most_bytes = 0
        self.direct = 0
        self.begun = asyncio.Event()

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/", self.answer)
        app.router.add_post("/fail", self.fail)
        app.router.add_post("/large", self.large)
        return app

    def routes(self) -> Routes:
        """The paths, with everything plain answered directly."""
        handlers = {"/": self.answer, "/fail": self.fail, "/large": self.large}
        return Routes(handlers, Direct({b"/": self.answer_directly}, self.limits))

    def answer_directly(
        self, _client: HttpConnection, _head: PlainHead, body: bytes
    ) -> bytes | None:
        if self.client is not None or self.hold is not None or len(body) > self.limit:
            return None
        self.bodies.append(body)
        self.direct += 1
        return body

    async def answer(self, request: web.BaseRequest) -> web.Response:
        if self.client is not None:
            check_client(request, self.client)
        self.begun.set()
        deadline = asyncio.get_running_loop().time() + self.patience
        with self.limits.admit(request.protocol.share) as admission:
            body = await read_body(
                request, limit=self.limit, deadline=deadline, admission=admission
            )
            self.most_bytes = max(self.most_bytes, self.limits.bytes_in_flight)
            if self.hold is not None:
                await self.hold.wait()
        self.bodies.append(body)
        return NamelessResponse(body=body)

    async def fail(self, request: web.Request) -> web.Response:
        raise ValueError(f"secret of {await request.text()}")

    async def large(self, _request: web.Request) -> web.Response:
        self.begun.set()
        return NamelessResponse(body=bytes(32 * 1024 * 1024))
