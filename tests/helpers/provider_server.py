"""A server that says to providers' clients exactly the bytes it is told to, and a scripted DNS."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import suppress
from typing import NamedTuple

from helpers.patience import TEST_SECONDS
from helpers.virtual_time import skip

LOOPBACK = ("127.0.0.0/8",)


class Request(NamedTuple):
    """A request; the names of ``headers`` are in lower case."""

    line: str
    headers: dict[str, str]
    body: bytes
    connection: int


class ProviderServer:
    """``async with ProviderServer(answer) as server``: at ``server.url``.

    ``answer`` is the bytes for each request, a list with those for one request each, or an async
    generator function of the request, which yields them. Empty bytes close the connection, as the
    end of a generator that yields them does.
    """

    def __init__(self, answer, *, tls=None):
        self.answer = answer
        self.requests: list[Request] = []
        self.connections = 0
        self.sent = 0
        self.came = asyncio.Event()
        self.lost = asyncio.Event()
        self._tls = tls
        self._tasks = set()

    async def __aenter__(self):
        # More than a hundred come at once, and none is to be sent again for want of a place.
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", 0, ssl=self._tls, backlog=1024
        )
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"http{'s' if self._tls else ''}://127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *_):
        self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _serve(self, reader, writer):
        task = asyncio.current_task()
        self._tasks.add(task)
        self.connections += 1
        number = self.connections
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while await self._answer_next(reader, writer, number):
                    pass
        finally:
            self._tasks.discard(task)
            self.lost.set()
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()

    async def _answer_next(self, reader, writer, number):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {
            name.lower(): value
            for name, value in (line.split(": ", 1) for line in head[1:] if line)
        }
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        request = Request(head[0], headers, body, number)
        self.requests.append(request)
        self.came.set()
        answering = asyncio.create_task(self._answer(request, writer))
        # A client says nothing before it has its answer, so it can only leave.
        leaving = asyncio.create_task(reader.read(1))
        try:
            await asyncio.wait((answering, leaving), return_when=asyncio.FIRST_COMPLETED)
            return answering.done() and answering.result()
        finally:
            answering.cancel()
            leaving.cancel()
            await asyncio.wait((answering, leaving))

    async def _answer(self, request, writer):
        async for chunk in self._chunks(request):
            if not chunk:
                return False
            writer.write(chunk)
            await writer.drain()
            self.sent += len(chunk)
        return True

    async def _chunks(self, request):
        if callable(self.answer):
            async for chunk in self.answer(request):
                yield chunk
        elif isinstance(self.answer, list):
            yield self.answer.pop(0)
        else:
            yield self.answer


def http_answer(body=b"", status="200 OK", *headers, kind="application/json"):
    """The bytes of an answer; a body that is no bytes is sent as JSON."""
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(body)}"]
    return "\r\n".join((*lines, *headers, "", "")).encode() + body


async def hang(_request):
    """Answer nothing, for ever."""
    await asyncio.get_running_loop().create_future()
    yield b""


async def too_late(request):
    """Answer nothing, until whoever asks has waited enough, which is at once."""
    skip(TEST_SECONDS)
    async for chunk in hang(request):
        yield chunk


class Names:
    """A lookup that knows names from a dict: addresses, or lists of them for one call each."""

    def __init__(self, **names):
        self.names = {name.replace("_", "."): addresses for name, addresses in names.items()}
        self.asked = []

    def __call__(self, host, port, _family):
        self.asked.append(host)
        addresses = self.names.get(host)
        if addresses is None:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        if isinstance(addresses, list):
            addresses = addresses.pop(0) if len(addresses) > 1 else addresses[0]
        if isinstance(addresses, str):
            addresses = (addresses,)
        return [
            (
                socket.AF_INET6 if ":" in address else socket.AF_INET,
                socket.SOCK_STREAM,
                socket.IPPROTO_TCP,
                "",
                (address, port, 0, 0) if ":" in address else (address, port),
            )
            for address in addresses
        ]
