"""Load on a TLS server: kept connections, one request at a time each, HTTP/1.1.

Closed loop: every connection sends its next request when the answer is there. Open loop: requests
arrive at a fixed rate whatever the server does; waiting for a free connection counts as latency.
Run as a process of its own: ``load.py HOST PORT PATH BODY_FILE CA CONNECTIONS REQUESTS [RATE]``;
prints one JSON object. A body with COUNTER in it has a new number there in each request.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
import time
from collections import deque
from pathlib import Path

import uvloop

COUNTER = b"number-00000000"


class _Connection(asyncio.Protocol):
    def __init__(self, load):
        self.load = load
        self.buffer = b""
        self.started = 0.0

    def connection_made(self, transport):
        self.transport = transport
        self.load.add_connection(self)

    def send(self, started):
        self.started = started
        self.transport.write(self.load.next_request())

    def data_received(self, data):
        self.buffer = self.buffer + data if self.buffer else data
        head, separator, rest = self.buffer.partition(b"\r\n\r\n")
        if not separator:
            return
        lowered = head.lower()
        start = lowered.index(b"content-length:") + 15
        length = int(lowered[start : lowered.find(b"\r\n", start) % (len(lowered) + 1)])
        if len(rest) < length:
            return
        self.buffer = b""
        self.load.take_answer(self, int(head[9:12]))

    def connection_lost(self, exc):
        self.load.lose_connection(self)


class Load:
    """One run; ``rate`` in requests a second makes it open loop."""

    def __init__(self, request, requests, rate=None):
        self.request = request
        self.is_numbered = COUNTER in request
        self.requests = requests
        self.rate = rate
        self.sent = 0
        self.done = 0
        self.failed = 0
        self.latencies = []
        self.idle = deque()
        self.waiting = deque()
        self.finished = asyncio.get_running_loop().create_future()

    def next_request(self):
        if self.is_numbered:
            number = b"number-%08d" % self.sent
            return self.request.replace(COUNTER, number)
        return self.request

    def add_connection(self, connection):
        self.idle.append(connection)

    def begin(self):
        if self.rate is None:
            while self.idle and self.sent < self.requests:
                self._next(self.idle.popleft())
        else:
            self.start = time.perf_counter()
            self._arrive()

    def _next(self, connection):
        self.sent += 1
        connection.send(time.perf_counter())

    def _arrive(self):
        due = min(self.requests, int((time.perf_counter() - self.start) * self.rate) + 1)
        while self.sent < due:
            at = self.start + self.sent / self.rate
            self.sent += 1
            if self.idle:
                self.idle.popleft().send(at)
            else:
                self.waiting.append(at)
        if self.sent < self.requests:
            asyncio.get_running_loop().call_later(0.0005, self._arrive)

    def take_answer(self, connection, status):
        self.latencies.append(time.perf_counter() - connection.started)
        self.failed += status != 200
        self.done += 1
        if self.done == self.requests:
            self.finished.set_result(None)
        elif self.rate is None:
            if self.sent < self.requests:
                self._next(connection)
        elif self.waiting:
            connection.send(self.waiting.popleft())
        else:
            self.idle.append(connection)

    def lose_connection(self, connection):
        if not self.finished.done():
            self.finished.set_exception(ConnectionError("the server closed a connection"))


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


async def run(target, payload, connections, requests, rate):
    host, port, path, ca = target
    context = ssl.create_default_context(cafile=ca)
    request = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(payload)}\r\n\r\n"
    ).encode() + payload
    loop = asyncio.get_running_loop()
    load = Load(request, requests, rate)
    for _ in range(connections):
        await loop.create_connection(
            lambda: _Connection(load), host, port, ssl=context, server_hostname="localhost"
        )
    began = time.perf_counter()
    load.begin()
    await load.finished
    seconds = time.perf_counter() - began
    return {
        "requests": requests,
        "failed": load.failed,
        "per_second": requests / seconds,
        "p50_ms": percentile(load.latencies, 0.5) * 1000,
        "p99_ms": percentile(load.latencies, 0.99) * 1000,
        "max_ms": max(load.latencies) * 1000,
    }


def main():
    host, port, path, body_file, ca, connections, requests, *rest = sys.argv[1:]
    payload = Path(body_file).read_bytes()
    rate = float(rest[0]) if rest else None
    result = uvloop.run(
        run((host, int(port), path, ca), payload, int(connections), int(requests), rate)
    )
    print(json.dumps(result))  # noqa: T201


if __name__ == "__main__":
    main()
