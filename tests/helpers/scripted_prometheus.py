"""A server that speaks as much of Prometheus' API as a metric needs, and says what a test wants.

``async with ScriptedPrometheus() as server`` is one in this process. Run as a program it is one
that costs hardly anything: it prints its URL, and answers at ``/seen`` when each query came.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import defaultdict
from urllib.parse import parse_qs

HUNG = "hung"
"""Queries that begin so are never answered."""


class Said:
    """An answer; ``body`` is bytes, or becomes JSON. ``cut`` ends the connection afterwards."""

    def __init__(self, body, status=200, headers=None, *, cut=False):
        self.body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.status = status
        self.headers = {"Content-Type": "application/json", **(headers or {})}
        self.cut = cut

    def encode(self):
        length = {} if self.cut else {"Content-Length": len(self.body)}
        lines = [f"{name}: {value}" for name, value in {**self.headers, **length}.items()]
        head = "\r\n".join([f"HTTP/1.1 {self.status} Said", *lines, "", ""])
        return head.encode() + self.body


def vector(*values, at=None):
    """The series of an instant query, one for each value."""
    now = time.time() if at is None else at
    result = [{"metric": {"n": str(n)}, "value": [now, v]} for n, v in enumerate(values)]
    return Said({"status": "success", "data": {"resultType": "vector", "result": result}})


def matrix(*values, at=1_800_000_000):
    """One series of a range query, from that time on."""
    series = {"metric": {}, "values": [[at + n, value] for n, value in enumerate(values)]}
    return Said({"status": "success", "data": {"resultType": "matrix", "result": [series]}})


class ScriptedPrometheus:
    """``say[query]`` is what it answers: a Said, None for nothing, or a function that gives one.

    ``seen[query]`` has the times, and ``forms[query]`` the forms, of what was asked.
    """

    def __init__(self):
        self.say = {}
        self.seen = defaultdict(list)
        self.forms = defaultdict(list)
        self.logins = []
        self.url = ""
        self._server = None
        self._came = asyncio.Event()
        self._wires = set()

    async def __aenter__(self):
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Wire(self), "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        return self

    async def __aexit__(self, *_):
        self._server.close()
        for wire in list(self._wires):
            wire.abort()
        await self._server.wait_closed()

    async def until_seen(self, query, count=1):
        """Wait until it was asked so often."""
        while len(self.seen[query]) < count:
            self._came.clear()
            await self._came.wait()

    def answer(self, path, body, headers):
        """Return the answer to a request; None to keep it waiting."""
        if path == "/seen":
            return Said(self.seen)
        form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
        query = form.get("query", "")
        self.seen[query].append(time.time())
        self.forms[query].append({"path": path, **form})
        self.logins.append(headers.get("authorization"))
        self._came.set()
        if query.startswith(HUNG):
            return None
        said = self.say.get(query)
        if said is None and query not in self.say:
            return vector(str(len(self.seen[query])))
        return said() if callable(said) else said


class _Wire(asyncio.Protocol):
    """One connection."""

    def __init__(self, server):
        self._server = server
        self._rest = b""
        self._transport = None

    def connection_made(self, transport):
        self._transport = transport
        self._server._wires.add(transport)

    def connection_lost(self, _error):
        self._server._wires.discard(self._transport)

    def data_received(self, data):
        self._rest += data
        while b"\r\n\r\n" in self._rest:
            head, _, rest = self._rest.partition(b"\r\n\r\n")
            first, *lines = head.decode().split("\r\n")
            pairs = (line.partition(":") for line in lines)
            headers = {name.lower(): value.strip() for name, _, value in pairs}
            length = int(headers.get("content-length", 0))
            if len(rest) < length:
                return
            body, self._rest = rest[:length], rest[length:]
            path, _, query = first.split(" ")[1].partition("?")
            said = self._server.answer(path, body or query.encode(), headers)
            if said is not None:
                self._transport.write(said.encode())
                if said.cut:
                    self._transport.close()


async def _serve():
    async with ScriptedPrometheus() as server:
        print(server.url, flush=True)  # noqa: T201 - for who started it
        # Until whoever started it ends.
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve())
