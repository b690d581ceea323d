"""Faults of requests are refused, in one plain line, before the body is read."""

from __future__ import annotations

import asyncio
import gzip

import pytest

from helpers.raw_http import Echo, post, post_chunked

HEAD = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.fixture
async def echo():
    return Echo(limit=1000)


@pytest.fixture(params=[False, True], ids=["application", "direct"])
def is_direct(request):
    """Whether plain requests are answered directly; then no rule of HTTP may be another."""
    return request.param


@pytest.fixture
async def wire(serve, connect, echo, is_direct):
    return await connect(await serve(echo.routes() if is_direct else echo, linger=0.05))


def assert_refusal(answer, status):
    """A refusal: its status, one plain line, and the end of the connection."""
    assert answer.status == status
    assert answer.headers["connection"] == "close"
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.body.startswith(str(status).encode())
    assert answer.body.count(b"\n") == 1
    return True


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"])
async def test_s4_other_methods_are_not_allowed(wire, method):
    answer = await wire.ask(f"{method} / HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert (answer.status, answer.headers["allow"]) == (405, "post")


async def test_s4_an_unknown_path_is_not_found(wire):
    assert (await wire.ask(post(path="/unknown"))).status == 404


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "application/json; charset=utf-16",
        "application/json; boundary=x",
        "application/jsonx",
        "application/json, text/plain",
        "",
    ],
)
async def test_s4_another_type_is_refused_before_the_body_comes(wire, echo, content_type):
    head = post(b"", f"Content-Type: {content_type}", length=100)
    assert assert_refusal(await wire.ask(head), 415)
    assert not echo.bodies


async def test_s4_a_missing_type_is_refused_before_the_body_comes(wire):
    assert assert_refusal(await wire.ask(post(b"", "X-Other: 1", length=100)), 415)


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "Application/JSON",
        "application/json; charset=utf-8",
        'application/json;charset="UTF-8"',
    ],
)
async def test_s4_json_in_utf_8_is_accepted_however_it_is_written(wire, content_type):
    answer = await wire.ask(post(b"[]", f"Content-Type: {content_type}"))
    assert (answer.status, answer.body) == (200, b"[]")


@pytest.mark.claim("W3")
async def test_s5_a_length_over_the_limit_is_refused_before_the_body_comes(wire, echo):
    answer = await wire.ask(post(b"", length=1001))
    assert assert_refusal(answer, 413)
    assert b"1000 bytes" in answer.body
    assert not echo.bodies


async def test_s5_exactly_the_limit_is_accepted(wire):
    assert (await wire.ask(post(bytes(1000)))).body == bytes(1000)


async def test_s5_exactly_the_limit_in_chunks_is_accepted(wire):
    assert (await wire.ask(post_chunked(bytes(600), bytes(400)))).body == bytes(1000)


async def test_s5_one_byte_over_the_limit_in_chunks_is_refused(wire):
    assert assert_refusal(await wire.ask(post_chunked(bytes(600), bytes(401))), 413)


async def test_s5_endless_chunks_are_refused_at_the_limit(wire, echo):
    wire.send(post_chunked(bytes(900), end=False))
    while echo.limits.bytes_in_flight < 900:  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(0)
    wire.send(b"c8\r\n" + bytes(200) + b"\r\n")
    assert assert_refusal(await wire.answer(), 413)
    assert echo.limits.bytes_in_flight == 0


async def test_s5_a_body_shorter_than_it_says_ends_with_the_connection(wire, echo):
    wire.send(post(b"short", length=100))
    wire.writer.write_eof()
    assert b"200" not in await wire.rest()
    assert not echo.bodies
    assert (echo.limits.requests_in_flight, echo.limits.bytes_in_flight) == (0, 0)


async def test_s5_a_body_longer_than_it_says_is_no_second_request(wire, echo):
    assert assert_refusal(await wire.ask(post(b"{}{}", length=2)), 400)
    assert await wire.rest() == b""
    assert not echo.bodies


@pytest.mark.parametrize("coding", ["gzip", "br", "deflate", "zstd", "gzip, identity", "GZIP", ""])
async def test_s9_an_encoded_body_is_refused(wire, echo, coding):
    bomb = gzip.compress(bytes(1_000_000))
    answer = await wire.ask(
        post(bomb[:900], "Content-Type: application/json", f"Content-Encoding: {coding}")
    )
    assert assert_refusal(answer, 415)
    assert not echo.bodies


async def test_s9_identity_is_no_encoding(wire):
    headers = ("Content-Type: application/json", "Content-Encoding: Identity")
    assert (await wire.ask(post(b"[]", *headers))).body == b"[]"


async def test_s9_an_encoded_transfer_is_refused(wire):
    answer = await wire.ask(HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n")
    assert assert_refusal(answer, 415)


@pytest.mark.parametrize(
    "data",
    [
        post(b"[]"),
        post(path="/unknown"),
        post(path="/fail"),
        post(b"", length=1001),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"garbage\r\n\r\n",
    ],
    ids=["200", "404", "500", "413", "405", "400"],
)
async def test_s10_no_answer_names_our_software(wire, data):
    answer = await wire.ask(data)
    assert "server" not in answer.headers
    assert b"python" not in answer.body.lower()
    assert b"aiohttp" not in answer.body.lower()


@pytest.mark.parametrize("accept", ["*/*", "text/html"])
async def test_s10_a_failure_tells_nothing_of_itself(wire, accept):
    headers = ("Content-Type: application/json", f"Accept: {accept}")
    answer = await wire.ask(post(b"object", *headers, path="/fail"))
    assert assert_refusal(answer, 500)
    assert answer.body == b"500: internal error; see the log of the server\n"


@pytest.mark.parametrize("path", ["//", "/./", "/fail/", "//localhost/", "/%2e%2e/", "/?", "/#"])
async def test_s10_no_path_is_redirected(wire, path):
    assert (await wire.ask(post(path=path))).status in {200, 400, 404}


@pytest.mark.parametrize(
    "data",
    [
        HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{} ",
        HEAD + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
        HEAD + b"Content-Length: 2, 2\r\n\r\n{}",
        HEAD + b"Content-Length: +2\r\n\r\n{}",
        HEAD + b"Content-Length: -2\r\n\r\n{}",
        HEAD + b"Content-Length: 0x2\r\n\r\n{}",
        HEAD + b"X-Folded: a\r\n b\r\nContent-Length: 2\r\n\r\n{}",
        HEAD + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n{}\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}XX\r\n0\r\n\r\n",
        HEAD + b"X-Large: " + b"a" * 9000 + b"\r\n\r\n",
        HEAD + b"".join(b"X-%d: a\r\n" % n for n in range(100)) + b"\r\n",
        b"POST /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST / HTTP/1.1\nHost: x\nContent-Length: 0\n\n",
        b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nHost: b\r\nContent-Length: 0\r\n\r\n",
        b"POST /\x00 HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
    ids=[
        "length and chunked",
        "chunked and length",
        "two lengths",
        "the same length twice",
        "list of lengths",
        "positive length",
        "negative length",
        "hexadecimal length",
        "folded header",
        "space before colon",
        "unknown transfer coding",
        "bad chunk size",
        "bad chunk end",
        "long header",
        "many headers",
        "long request line",
        "bare line feeds",
        "no host",
        "two hosts",
        "null byte",
        "HTTP/2 preface",
        "TLS on a plain port",
    ],
)
async def test_s11_an_ambiguous_request_is_refused_and_ends_the_connection(wire, echo, data):
    # A good request behind it must never be answered.
    wire.send(data + post(b'"smuggled"'))
    assert assert_refusal(await wire.answer(), 400)
    assert await wire.rest() == b""
    assert not echo.bodies


async def test_s11_a_chunk_broken_while_it_is_read_is_refused(wire, echo):
    wire.send(post_chunked(b"[1", end=False))
    await echo.begun.wait()
    wire.send(b"ZZ\r\n" + post(b'"smuggled"'))
    assert assert_refusal(await wire.answer(), 400)
    assert await wire.rest() == b""
    assert not echo.bodies


async def test_pipelined_requests_are_answered_in_order(wire):
    wire.send(post(b"[1]") + post(b"[2]") + post(b"[3]"))
    assert [(await wire.answer()).body for _ in range(3)] == [b"[1]", b"[2]", b"[3]"]
