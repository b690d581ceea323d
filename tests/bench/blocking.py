"""Longest block of the event loops by the largest bodies that are read, hostile ones and others.

The webhook is a process; a client asks its health port meanwhile, and what the process works until
its answer is the figure. Of the controller, the parts that read what others send run in a loop of
this process. All is time of the processor, so that other processes do not count.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
import ssl
import threading
import time
from functools import partial
from urllib.parse import urlsplit

import engine
from security.test_body_memory import CONVERSIONS, REVIEWS, filling
from servers import harbourmaster, wait_until_ready, write_policies

from harbourmaster.api.resources import NODES
from harbourmaster.controller.exposure.metrics_api import MAX_LENGTH, parse_selector
from harbourmaster.controller.extender import extender
from harbourmaster.controller.extender.extender import FILTER, PREEMPT, Answers
from harbourmaster.kube.client import Client
from harbourmaster.kube.connection import Connection
from harbourmaster.kube.errors import ApiError
from harbourmaster.kube.peer_bounds import MAX_ANSWER, PeerBounds, PeerBudget
from harbourmaster.providers.errors import ProviderError
from harbourmaster.providers.http import MAX_BYTES, HttpClient
from harbourmaster.providers.model import Question, Target
from harbourmaster.providers.query_client import QueryClient
from harbourmaster.webhook import conversion, review
from helpers import scheduler

KIB = 1024
KINDS = ("nested", "maps", "numbers", "keys")
SECRET = dict.fromkeys(("user", "password", "key"), b"canary-7f3a9c")
POLICIES = {name: document for name, document in REVIEWS.items() if "policy" in name}
ANSWERS = {
    "prometheus": b'{"status":"success","data":{"resultType":"matrix","result":HOLE}}',
    "datadog": b'{"series":[{"pointlist":HOLE}]}',
    "dynatrace": b'{"result":[{"data":[{"values":HOLE}]}]}',
    "dql": b'{"state":"SUCCEEDED","result":{"records":HOLE}}',
    "elastic": b'{"aggregations":HOLE,"hits":HOLE}',
}


def filled(document, items, size):
    """The JSON of a document with as many items in its hole as there is space for."""
    text = document if isinstance(document, bytes) else json.dumps(document).encode()
    text = text.replace(b'"hole"', b"HOLE")
    return text.replace(b"HOLE", filling(items, (size - len(text)) // text.count(b"HOLE") - KIB))


def bodies(documents, size):
    for name, document in documents.items():
        for items in KINDS:
            yield f"{name}, {items}", filled(document, items, size)
    yield "brackets", b"[" * size
    yield "escapes", b'"' + b"\\u0000" * ((size - KIB) // 6) + b'"'


class Pings:
    """Asks the health port again and again; ``longest`` is the most work until its answer."""

    def __init__(self, server):
        self._server = server
        self._address = urlsplit(server.health).netloc
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.longest = 0.0

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    def _run(self):
        connection = http.client.HTTPConnection(self._address)
        while not self._stop.wait(0.002):
            began = self._server.cpu_seconds()
            connection.request("GET", "/healthz")
            connection.getresponse().read()
            self.longest = max(self.longest, self._server.cpu_seconds() - began)


def of_webhook(folder):
    policies = write_policies(folder / "blocking", [engine.matching(0)])
    server = harbourmaster(folder, policies)
    wait_until_ready(server)
    context = ssl.create_default_context(cafile=folder / "ca.crt")
    paths = {
        "/mutate": bodies(REVIEWS, review.MAX_BODY_BYTES),
        "/validate": bodies(POLICIES, review.MAX_BODY_BYTES),
        "/convert": bodies(CONVERSIONS, conversion.MAX_BODY_BYTES),
    }
    try:
        with Pings(server) as pings:
            return {
                path: longest(
                    (
                        name,
                        waited(pings, partial(post, server, context, path, body)),
                    )
                    for name, body in sent
                )
                for path, sent in paths.items()
            }
    finally:
        server.stop()


def post(server, context, path, body):
    connection = http.client.HTTPSConnection("localhost", server.port, context=context)
    headers = {"Content-Type": "application/json"}
    with contextlib.suppress(OSError, http.client.HTTPException):
        connection.request("POST", f"{path}?timeout=10s", body, headers)
        connection.getresponse().read()
    connection.close()


def waited(pings, call):
    """The most work before the answer to a ping while a call runs, in seconds."""
    time.sleep(0.01)
    pings.longest = 0.0
    call()
    time.sleep(0.01)
    return pings.longest


def longest(figures):
    """The body with the longest block, and this in milliseconds."""
    name, seconds = max(figures, key=lambda item: item[1])
    return {"ms": seconds * 1e3, "body": name}


class Peer:
    """A server in a thread that sends the same body to all."""

    def __init__(self, body):
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        self._answer = head % len(body) + body
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._run, daemon=True).start()

    def close(self):
        self._socket.close()

    def _run(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._socket.accept()
                with client, contextlib.suppress(OSError):
                    client.recv(65536)
                    client.sendall(self._answer)
                    client.recv(65536)


async def blocked(work):
    """The longest turn of the loop while ``work`` runs, in seconds of its CPU time."""
    most, ended = 0.0, asyncio.Event()

    async def tick():
        nonlocal most
        while not ended.is_set():
            began = time.thread_time()
            await asyncio.sleep(0)
            most = max(most, time.thread_time() - began)

    ticking = asyncio.create_task(tick())
    await asyncio.sleep(0)
    try:
        await work
    finally:
        ended.set()
        await ticking
    return most


async def of_provider(kind, body):
    """The block by an answer to a query, with credentials that are searched for in it."""
    peer = Peer(body)
    try:
        async with HttpClient(allowed=("127.0.0.0/8",)) as client:
            queries = QueryClient(client, timeout=30.0, per_target=4)
            target = Target(kind, peer.url, SECRET, "key")

            async def ask():
                with contextlib.suppress(ProviderError):
                    await queries.ask(target, Question("up", start=0.0, end=60.0, step=1.0))

            return await blocked(ask())
    finally:
        peer.close()


async def of_member(body):
    """The block by the list of a member cluster."""
    peer = Peer(body)
    try:
        bounds = PeerBounds(PeerBudget(time.monotonic), lambda: None)
        connection = Connection(server=peer.url)
        async with Client(connection, timeout=60.0, retries=0, bounds=bounds) as client:

            async def read():
                with contextlib.suppress(ApiError):
                    await client.list(NODES, limit=1)

            return await blocked(read())
    finally:
        peer.close()


def of_extender():
    """The time of the answers to a scheduler, which the loop gives in one turn."""
    names = [f"ip-10-0-{index // 250}-{index % 250}.example.com" for index in range(100_000)]
    mirror = scheduler.Mirror(scheduler.version(**scheduler.PASSED))
    answers = Answers(mirror, deadline=300, now=lambda: scheduler.NOW)
    hostile = {"pod": {"Pod": "hole"}, "names": {"Pod": {}, "NodeNames": "hole"}}
    sent = [*bodies(hostile, extender.MAX_BODY_BYTES), ("nodes", scheduler.filter_body(names))]
    for name, body in sent:
        for verb in (FILTER, PREEMPT):
            yield (
                f"{verb}, {name}",
                seconds(partial(answers.answer, verb, body)),
            )


def seconds(call):
    began = time.thread_time()
    call()
    return time.thread_time() - began


def of_metrics_api():
    """The time of selectors of the greatest length."""
    for name, text in {
        "requirements": "a," * MAX_LENGTH,
        "values": f"a in ({'b,' * MAX_LENGTH}",
        "spaces": f"a {' ' * MAX_LENGTH}",
        "parentheses": f"a in ({'(' * MAX_LENGTH}",
    }.items():

        def parse(text=text):
            with contextlib.suppress(ValueError):
                parse_selector(text[:MAX_LENGTH])

        yield name, seconds(parse)


async def of_controller():
    answers = [
        (f"{kind}, {items}", kind, filled(text, items, MAX_BYTES))
        for kind, text in ANSWERS.items()
        for items in KINDS
    ]
    page = {"metadata": {"resourceVersion": "1"}, "items": "hole"}
    return {
        "provider": longest(
            [(name, await of_provider(kind, body)) for name, kind, body in answers]
        ),
        "member cluster": longest(
            [(items, await of_member(filled(page, items, MAX_ANSWER))) for items in KINDS]
        ),
        "scheduler": longest(of_extender()),
        "metrics API": longest(of_metrics_api()),
    }


def measure(folder):
    return {**of_webhook(folder), **asyncio.run(of_controller())}
