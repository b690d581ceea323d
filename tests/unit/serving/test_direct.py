"""Direct answers are those of aiohttp, and aiohttp gets all other requests."""

from __future__ import annotations

import ast
import asyncio
import inspect
import socket

import pytest
from aiohttp import web, web_protocol
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpRequestParser
from hypothesis import given
from hypothesis import strategies as st

from harbourmaster.serving import http_connection
from harbourmaster.serving.connections import Connections
from harbourmaster.serving.direct import MAX_BODY, parse_plain_head
from harbourmaster.serving.http_connection import HttpConnection
from harbourmaster.serving.limits import Limits
from harbourmaster.serving.responses import Refusal
from helpers.patience import PATIENCE
from helpers.raw_http import Echo, post, post_chunked

HEAD = post(b"{}").removesuffix(b"{}")
LINES = [
    b"Host: x",
    b"User-Agent: kube-apiserver-admission",
    b"Content-Length: 2",
    b"Accept: application/json, */*",
    b"Content-Type: application/json",
    b"traceparent: 00-1-1-00",
]
ODD = [
    b"Content-Length: 3",
    b"Content-Length: +2",
    b"Content-Length: 02",
    b"content-length:2",
    b"Transfer-Encoding: chunked",
    b"Connection: close",
    b"Expect: 100-continue",
    b"Content-Encoding: gzip",
    b"Upgrade: websocket",
    b"X-Folded: a\r\n b",
    b"X-Null: \x00",
    b"X-Tab: a\tb",
    b"Host : x",
    b": x",
]
STARTS = [
    b"POST /mutate HTTP/1.1",
    b"POST /mutate?timeout=10s HTTP/1.1",
    b"POST http://x/mutate HTTP/1.1",
    b"POST /mutate#a HTTP/1.1",
    b"POST /%6dutate HTTP/1.1",
    b"POST  /mutate HTTP/1.1",
    b"POST /mutate HTTP/1.0",
    b"PUT /mutate HTTP/1.1",
]


@pytest.fixture
def echo():
    return Echo(limit=100_000)


@pytest.fixture
async def site(serve, echo):
    return await serve(echo.routes(), linger=0.05)


@pytest.fixture
async def wire(connect, site):
    return await connect(site)


def parse(data):
    """Return the messages that aiohttp parses from the bytes, with their bodies."""
    loop = asyncio.new_event_loop()
    try:
        parser = HttpRequestParser(BaseProtocol(loop), loop, 2**16, auto_decompress=False)
        messages, _, _ = parser.feed_data(data)
        return [
            (message, payload.read_nowait() if payload.is_eof() else None)
            for message, payload in messages
        ]
    finally:
        loop.close()


@st.composite
def requests(draw):
    """A request with some of what a client may send; often with a fault in it."""
    lines = draw(st.lists(st.sampled_from(LINES + ODD), max_size=3)) + LINES
    head = b"\r\n".join([draw(st.sampled_from(STARTS)), *draw(st.permutations(lines))])
    data = head + b"\r\n\r\n" + draw(st.sampled_from([b"{}", b"{", b"{}{}", b""]))
    if draw(st.booleans()):
        at = draw(st.integers(0, len(data)))
        inserted = draw(st.sampled_from([b"", b"\n", b"\r", b" ", b"\t", b":", b"\x00", b"\xff"]))
        data = data[:at] + inserted + data[at + draw(st.integers(0, 1)) :]
    return data


@given(requests())
def test_what_counts_as_plain_is_the_same_request_to_aiohttp(data):
    head = parse_plain_head(data)
    if head is None or len(data) < head.end:
        return
    ((message, body),) = parse(data[: head.end])
    assert (message.method, message.path.partition("?")[0]) == ("POST", head.path.decode())
    assert body == data[head.start : head.end]
    assert message.version == (1, 1)
    assert not any((message.should_close, message.upgrade, message.chunked, message.compression))
    assert {name.lower(): value for name, value in message.raw_headers} == head.fields


@pytest.mark.parametrize("line", ODD)
def test_no_unusual_header_is_plain(line):
    assert parse_plain_head(HEAD + b"{}") is not None
    assert parse_plain_head(HEAD.removesuffix(b"\r\n") + line + b"\r\n\r\n{}") is None


async def test_an_answer_has_what_a_client_needs_and_no_more(wire, echo):
    answer = await wire.ask(post(b"[1]"))
    assert (answer.status, answer.body, echo.direct) == (200, b"[1]", 1)
    assert set(answer.headers) == {"content-type", "content-length", "date"}
    assert answer.headers["content-type"] == "application/json"


async def test_a_body_in_parts_is_answered_directly(wire, echo):
    data = post(b"[" + b" " * 5000 + b"]")
    wire.send(data[:2000])
    async with asyncio.timeout(PATIENCE):
        while not echo.limits.bytes_in_flight:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0)
    wire.send(data[2000:4000])
    wire.send(data[4000:])
    assert len((await wire.answer()).body) == 5002
    # Unless the machine stood still between two parts.
    assert echo.direct == 1 or echo.begun.is_set()
    assert (echo.limits.requests_in_flight, echo.limits.bytes_in_flight) == (0, 0)


async def test_parts_count_as_in_flight_and_are_given_back(wire, echo):
    wire.send(post(bytes(100), length=200))
    async with asyncio.timeout(PATIENCE):
        while echo.limits.bytes_in_flight < 100:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0)
    assert echo.limits.requests_in_flight == 1
    wire.abort()
    async with asyncio.timeout(PATIENCE):
        while echo.limits.requests_in_flight:  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert echo.limits.bytes_in_flight == 0


async def test_what_comes_late_is_read_by_aiohttp_and_then_answered_directly_again(wire, echo):
    wire.send(post(bytes(10), length=20))
    await asyncio.wait_for(echo.begun.wait(), PATIENCE)
    wire.send(bytes(10))
    assert (await wire.answer()).body == bytes(20)
    assert echo.direct == 0


@pytest.mark.parametrize(
    "data",
    [
        post(b"[]", "Content-Type: application/json; charset=utf-8"),
        post(b"[]", "Content-Type: application/json", "X-Other: 1"),
        post_chunked(b"[]"),
        post(bytes(MAX_BODY + 1)),
    ],
    ids=["charset", "other header", "chunked", "large"],
)
async def test_what_is_not_plain_is_answered_by_aiohttp(wire, echo, data):
    assert (await wire.ask(data)).status == 200
    assert (await wire.ask(post())).status == 200
    assert echo.direct == 0


async def test_a_request_that_must_wait_lends_the_connection_to_aiohttp(wire, echo):
    assert (await wire.ask(post(b"[1]"))).body == b"[1]"
    echo.hold = asyncio.Event()
    wire.send(post(b"[2]"))
    await asyncio.wait_for(echo.begun.wait(), PATIENCE)
    echo.hold.set()
    assert (await wire.answer()).body == b"[2]"
    echo.hold = None
    assert (await wire.ask(post(b"[3]"))).body == b"[3]"
    assert echo.direct == 2


async def test_a_second_request_before_the_first_answer_waits_for_its_turn(wire, echo):
    echo.hold = asyncio.Event()
    wire.send(post(b"[1]"))
    await asyncio.wait_for(echo.begun.wait(), PATIENCE)
    wire.send(post(b"[2]"))
    await asyncio.sleep(0.01)
    echo.hold.set()
    assert [(await wire.answer()).body for _ in range(2)] == [b"[1]", b"[2]"]


async def test_overload_is_refused_and_the_connection_answered_directly_again(serve, connect):
    echo = Echo(limits=Limits(requests=1))
    site = await serve(echo.routes())
    wire = await connect(site)
    with echo.limits.admit():
        answer = await wire.ask(post())
    assert (answer.status, answer.headers["retry-after"]) == (429, "1")
    assert (await wire.ask(post())).status == 200
    assert echo.direct == 1


async def test_while_draining_each_answer_is_the_last(site, wire):
    assert "connection" not in (await wire.ask(post())).headers
    site.close_connections_after_response()
    assert (await wire.ask(post())).headers["connection"] == "close"
    assert await wire.rest() == b""


@pytest.mark.slow
async def test_a_kept_connection_is_closed_a_while_after_its_last_answer(serve, connect, echo):
    wire = await connect(await serve(echo.routes(), keepalive=0.3, first_request=0.1))
    loop = asyncio.get_running_loop()
    for _ in range(3):
        assert (await wire.ask(post())).status == 200
        last = loop.time()
        await asyncio.sleep(0.15)
    assert await wire.rest() == b""
    assert loop.time() - last > 0.25
    assert echo.direct == 3


@pytest.mark.slow
async def test_the_time_since_an_answer_of_aiohttp_s_counts_too(serve, connect, echo):
    wire = await connect(await serve(echo.routes(), keepalive=0.3))
    assert (await wire.ask(post())).status == 200
    echo.hold = asyncio.Event()
    echo.hold.set()
    assert (await wire.ask(post())).status == 200
    echo.hold = None
    await asyncio.sleep(0.2)
    assert (await wire.ask(post())).status == 200
    await asyncio.sleep(0.2)
    # Not closed by the timer of the answer before.
    assert (await wire.ask(post())).status == 200
    assert await wire.rest() == b""


@pytest.mark.slow
async def test_a_client_that_reads_no_answers_gets_no_more_and_is_cut_off(serve, echo):
    site = await serve(echo.routes(), unread=0.2)
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    flood = post(bytes(MAX_BODY)) * 1500
    try:
        await loop.sock_connect(client, (site.host, site.port))
        with pytest.raises(ConnectionError):
            # More than both ends' buffers hold.
            await asyncio.wait_for(loop.sock_sendall(client, flood), PATIENCE)
    finally:
        client.close()
    assert len(echo.bodies) * MAX_BODY < 64 * 1024 * 1024


def test_a_refusal_is_a_plain_response_without_banner():
    response = Refusal(429, "429: later", retry_after=1, close=False).response()
    assert isinstance(response, web.Response)
    assert response.headers["Retry-After"] == "1"


PRIVATE = {
    "_ErrInfo",
    "_current_request",
    "_messages",
    "_request_count",
    "_waiter",
}
"""Private names of aiohttp that ``HttpConnection`` uses; setup.cfg pins the minor version."""


def test_no_private_name_of_aiohttp_is_used_but_these():
    tree = ast.parse(inspect.getsource(http_connection))
    read = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
        and node.attr.startswith("_")
    }
    imported = {
        name.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module.startswith("aiohttp")
        for name in node.names
        if name.name.startswith("_")
    }
    ours = {name for kind in (HttpConnection, Connections) for name in vars(kind)}
    assert (read - ours) | imported == PRIVATE


def test_aiohttp_has_the_private_names_that_are_used():
    handler = web_protocol.RequestHandler
    slots = {name for kind in handler.__mro__ for name in getattr(kind, "__slots__", ())}
    assert slots | vars(web_protocol).keys() >= PRIVATE
    assert hasattr(web.Response, "_prepare_headers")
