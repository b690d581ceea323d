"""Reviews as an API server sends them: HTTP/1.1 over TLS, at most 25 idle connections kept.

Arrivals are at a fixed rate whatever the server does. The youngest idle connection is taken first;
without one another is dialled. What fails is not sent again.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections import Counter

IDLE = 25
# Longer than an API server waits: what is lost is counted here, and not how busy the machine is.
TIMEOUT = 20.0


class Load:
    """Sends ``review`` to a port of loopback; ``authority`` gives the caBundle of the moment."""

    def __init__(self, port, review, *, name, authority, path="/mutate", fresh=0):
        """Create a client whose connections end after ``fresh`` of each 100 requests."""
        self._port = port
        self._fresh = fresh
        self._name = name
        self._authority = authority
        self._request = (
            f"POST {path}?timeout=3s HTTP/1.1\r\nHost: {name}:443\r\n"
            "Content-Type: application/json\r\nAccept: application/json, */*\r\n"
            f"Content-Length: {len(review)}\r\n\r\n"
        ).encode() + review
        self._idle = []
        self._context = (None, None)
        self.sent = 0
        self.answered = 0
        self.dialled = 0
        self.certificates = {}
        """The number of handshakes that met each certificate (DER)."""
        self.in_flight = 0
        self.peak = 0
        """Most in flight at one time."""
        self.failures = Counter()
        self.latencies = []

    async def run(self, *, rate, seconds=None, until=None):
        """Send for so many seconds, or until an event is set; then wait for all answers."""
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            index = 0
            while not (until is not None and until.is_set()):
                due = began + index / rate
                if seconds is not None and due > began + seconds:
                    break
                wait = due - time.perf_counter()
                if wait > 0:
                    await asyncio.sleep(wait)
                index += 1
                group.create_task(self._send())
        self.close()

    def percentile(self, share):
        """Seconds within which that share of the requests was over."""
        return sorted(self.latencies)[int((len(self.latencies) - 1) * share)]

    def close(self):
        for _, writer in self._idle:
            writer.transport.abort()
        self._idle.clear()

    async def _send(self):
        self.sent += 1
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        started = time.perf_counter()
        try:
            async with asyncio.timeout(TIMEOUT):
                await self._ask()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is counted and shown
            self.failures[f"{type(error).__name__}: {error}"[:200]] += 1
        else:
            self.answered += 1
        self.in_flight -= 1
        self.latencies.append(time.perf_counter() - started)

    async def _ask(self):
        reader, writer = await self._connection()
        keep = False
        try:
            writer.write(self._request)
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = int(head.split("content-length: ")[1].split("\r\n")[0])
            body = await reader.readexactly(length)
            status = head.split(" ", 2)[1]
            if status != "200":
                raise AssertionError(f"status {status}")
            response = json.loads(body)["response"]
            if not response["allowed"] or "patch" not in response or "warnings" in response:
                raise AssertionError(f"answer {response}")
            is_last = self.sent % 100 < self._fresh
            keep = "connection: close" not in head and not is_last
        finally:
            if keep and len(self._idle) < IDLE:
                self._idle.append((reader, writer))
            else:
                writer.transport.abort()

    async def _connection(self):
        while self._idle:
            reader, writer = self._idle.pop()
            # An end that has arrived is seen before the connection is used again.
            if not reader.at_eof() and not writer.is_closing():
                return reader, writer
            writer.transport.abort()
        self.dialled += 1
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self._port, ssl=self._trusting(), server_hostname=self._name
        )
        leaf = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        self.certificates[leaf] = self.certificates.get(leaf, 0) + 1
        return reader, writer

    def _trusting(self):
        authority = self._authority()
        if self._context[0] != authority:
            context = ssl.create_default_context(cadata=authority)
            self._context = (authority, context)
        return self._context[1]
