"""The quick way to answer says the same as aiohttp's own."""

from __future__ import annotations

import pytest
from aiohttp import web

from harbourmaster.serving.refusals import Refusal
from harbourmaster.serving.replies import json_reply
from harbourmaster.serving.routes import post_routes

BODY = b'{"answer": 1}'


async def answer_json(request):
    await request.read()
    return json_reply(request, BODY)


@pytest.fixture
async def wire(serve, connect):
    routes = post_routes({"/a": answer_json, "/b": answer_json})
    return await connect(await serve(routes))


def request(*, method="POST", path="/a", version="1.1", extra=""):
    head = f"{method} {path} HTTP/{version}\r\nHost: x\r\nContent-Length: 2\r\n{extra}\r\n"
    return head.encode() + b"[]"


async def test_the_reply_has_what_a_client_needs_and_no_more(wire):
    answer = await wire.ask(request())
    assert (answer.status, answer.body) == (200, BODY)
    assert set(answer.headers) == {"content-type", "content-length", "date"}
    assert answer.headers["content-type"] == "application/json"


async def test_the_connection_is_kept(wire):
    for path in ("/a", "/b", "/a"):
        assert (await wire.ask(request(path=path))).body == BODY


async def test_a_client_that_wants_to_close_is_obeyed(wire):
    answer = await wire.ask(request(extra="Connection: close\r\n"))
    assert answer.headers["connection"] == "close"
    assert await wire.closed() == b""


async def test_http_1_0_is_answered_in_its_own_way(wire):
    answer = await wire.ask(request(version="1.0"))
    assert (answer.status, answer.body) == (200, BODY)
    assert await wire.closed() == b""


async def test_another_path_is_told_where_to_go(wire):
    answer = await wire.ask(request(path="/c"))
    assert answer.status == 404
    assert b"/a or /b" in answer.body


async def test_another_method_is_told_which_one(wire):
    answer = await wire.ask(request(method="PUT"))
    assert (answer.status, answer.headers["allow"].upper()) == (405, "POST")


def test_a_refusal_is_a_plain_response_without_banner():
    response = Refusal(429, "429: later", retry_after=1, close=False).response()
    assert isinstance(response, web.Response)
    assert response.headers["Retry-After"] == "1"
