"""Reviews as API servers send them, and the balancer between."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
import ssl
import threading
import time
from collections import Counter
from contextlib import ExitStack, closing, contextmanager
from typing import NamedTuple

import aiohttp

from harbourmaster.playground.errors import PlaygroundError
from helpers.objects import body, workload
from helpers.oracles import apply_patch

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


NAME = "harbourmaster-webhook.harbourmaster-system.svc"
# Reviews on one connection; the handshakes of a new one are part of what must go on.
KEPT_FOR = 10


class Reviews:
    """Asks one webhook, as an API server would, by its port and the name in its certificate.

    ``authority`` gives what must have signed that, in PEM form; by default, it is mounted beside.
    """

    def __init__(self, webhook, authority=None):
        self._webhook = webhook
        self._authority = authority or (webhook.certificates / "ca.crt").read_text

    def pods(self, namespaces, **labels):
        """The node selector of a pod in each of the namespaces; None where it is skipped."""
        pod = workload("Pod", labels)
        with closing(self._connect()) as connection:
            answers = {name: _ask(connection, pod, name) for name in namespaces}
        return {name: _node_selector(pod, answer) for name, answer in answers.items()}

    def certificate(self):
        """The certificate that is served, DER."""
        with closing(self._connect()) as connection:
            return connection.sock.getpeercert(binary_form=True)

    @contextmanager
    def repeat(self, document, namespace):
        """A function that asks for a review of the document, and gives the response."""
        with ExitStack() as connections:
            left = 0

            def ask():
                nonlocal connection, left
                if left == 0:
                    connections.close()
                    connection = connections.enter_context(closing(self._connect()))
                    left = KEPT_FOR
                asked, left = left, 0
                response = _ask(connection, document, namespace)
                left = asked - 1
                return response

            connection = None
            yield ask

    def _connect(self):
        context = ssl.create_default_context(cadata=self._authority())
        connection = http.client.HTTPConnection("127.0.0.1", self._webhook.port, timeout=TIMEOUT)
        plain = socket.create_connection(("127.0.0.1", self._webhook.port), timeout=TIMEOUT)
        connection.sock = context.wrap_socket(plain, server_hostname=NAME)
        return connection


class Steady:
    """``with Steady(ask) as steady`` calls ``ask`` ``rate`` times a second, one after the other."""

    def __init__(self, ask, *, rate=20.0):
        self.answered = 0
        self.slowest = 0.0
        """Seconds."""
        self.failures = []
        """Failed answers, and those that differ from the first one."""
        self._ask = ask
        self._pause = 1 / rate
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="steady")

    def __enter__(self):
        self._first = self._ask()
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    def _run(self):
        seconds = 0.0
        while not self._stop.wait(max(self._pause - seconds, 0)):
            began = time.monotonic()
            try:
                answer = self._ask()
                assert answer == self._first, f"{answer} after {self._first}"
            except (
                AssertionError,
                OSError,
                ValueError,
                http.client.HTTPException,
                PlaygroundError,
            ) as error:
                self.failures.append(f"{type(error).__name__}: {error}")
            else:
                self.answered += 1
            seconds = time.monotonic() - began
            self.slowest = max(self.slowest, seconds)


def _ask(connection, document, namespace):
    headers = {"Content-Type": "application/json"}
    connection.request("POST", "/mutate?timeout=3s", body(document, namespace=namespace), headers)
    answer = connection.getresponse()
    text = answer.read()
    assert answer.status == http.HTTPStatus.OK, f"{answer.status}: {text[:200]}"
    return json.loads(text)["response"]


def _node_selector(document, response):
    assert response["allowed"], response
    if "warnings" in response:
        return None
    return apply_patch(document, response)["spec"].get("nodeSelector", {})
