"""Connections to providers: interim responses, heads, chunks and trailers have a limit (P3)."""

from __future__ import annotations

import asyncio

import pytest

from harbourmaster.providers.errors import BadAnswerError, ProviderError, TooLargeError
from harbourmaster.providers.http import HttpClient
from harbourmaster.providers.model import Question, Target
from harbourmaster.providers.query_client import QueryClient
from harbourmaster.telemetry import peer_protocol
from harbourmaster.telemetry.peer_protocol import MAX_FRAMING, PIECE, PIECES, PeerProtocol
from helpers.patience import PATIENCE
from helpers.provider_server import LOOPBACK, ProviderServer, http_answer

CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
SERIES = {"metric": {}, "value": [1772366400, "4"]}
GOOD = {"status": "success", "data": {"resultType": "vector", "result": [SERIES]}}
ENDLESS = {
    "interim responses": (b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n" * 400),
    "early hints": (
        b"HTTP/1.1 103 X\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 200,
    ),
    "tiny chunks": (CHUNKED, b"1\r\n \r\n" * 2000),
    "chunk extensions": (CHUNKED, b"1;" + b"a=b;" * 500 + b"\r\n \r\n"),
    "trailers": (CHUNKED + b"0\r\n", b"X: y\r\n" * 50),
    "a head": (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n" * 20),
}


async def ask(http, server):
    """Return the answer or the error."""
    client = QueryClient(http, timeout=PATIENCE, per_target=4)
    try:
        return await client.ask(Target("prometheus", server.url), Question("up"))
    except ProviderError as error:
        return error


@pytest.mark.parametrize("case", ENDLESS)
@pytest.mark.claim("P3")
async def test_an_endless_frame_ends_the_connection(case):
    begin, repeated = ENDLESS[case]

    async def answer(_request):
        yield begin
        while True:
            yield repeated

    async with ProviderServer(answer) as server, HttpClient(LOOPBACK) as http:
        # As fast as the server can: no wait of the loop shows that the peer has paused.
        error = await ask(http, server)
        assert len(server.requests) == 1
    assert isinstance(error, ProviderError)
    assert error.is_unreachable or isinstance(error, TooLargeError), error
    assert "did not answer within" not in str(error)
    assert str(error).isprintable()


async def test_an_endless_frame_names_the_limit_and_the_remedy():
    async def answer(_request):
        while True:
            yield b"HTTP/1.1 100 Continue\r\n\r\n" * 4000

    async with ProviderServer(answer) as server, HttpClient(LOOPBACK) as http:
        error = await ask(http, server)
    assert str(error) == (
        f"127.0.0.1:{server.port} sent more than {MAX_FRAMING} bytes of headers, interim responses "
        "or chunks: correct the server or spec.targetServer"
    )


async def test_a_few_interim_responses_are_no_harm():
    async def answer(_request):
        yield b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 20
        yield http_answer(GOOD)

    async with ProviderServer(answer) as server, HttpClient(LOOPBACK) as http:
        assert (await ask(http, server)).value == "4"


@pytest.mark.claim("P3")
async def test_an_idle_connection_takes_no_answers():
    """A peer that sends on after its answer would fill the memory of a connection in the pool."""

    async def answer(_request):
        yield http_answer(GOOD)
        while True:
            yield http_answer(GOOD) * 100

    async with ProviderServer(answer) as server, HttpClient(LOOPBACK) as http:
        assert (await ask(http, server)).value == "4"
        async with asyncio.timeout(PATIENCE):
            await server.lost.wait()
        assert (await ask(http, server)).value == "4"
        assert server.connections == 2


async def test_compressed_answers_are_not_decompressed():
    answer = http_answer(b"\x1f\x8b" * 100, "200 OK", "Content-Encoding: gzip")
    async with ProviderServer(answer) as server, HttpClient(LOOPBACK) as http:
        assert isinstance(await ask(http, server), BadAnswerError)


@pytest.mark.claim("P3")
async def test_bodies_of_all_providers_together_have_a_limit(monkeypatch):
    monkeypatch.setattr("harbourmaster.providers.http.MAX_TOGETHER", 512 * 1024)
    held = asyncio.Event()

    async def large(_request):
        yield b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + b" " * 450_000
        held.set()
        await asyncio.get_running_loop().create_future()

    async with (
        ProviderServer(large) as hostile,
        ProviderServer(http_answer(b" " * 300_000)) as big,
        ProviderServer(http_answer(GOOD)) as small,
        HttpClient(LOOPBACK) as http,
    ):
        slow = asyncio.create_task(ask(http, hostile))
        await held.wait()
        while http._budget.used < 450_000:  # noqa: ASYNC110 - the client has no event for it
            await asyncio.sleep(0)
        error = await ask(http, big)
        assert str(error).endswith("has more than 524288 bytes together with all others")
        assert (await ask(http, small)).value == "4"
        slow.cancel()
        await asyncio.gather(slow, return_exceptions=True)
        assert http._budget.used == 0


class Pipe(asyncio.Transport):
    """A transport that notes what is asked of it."""

    is_paused = is_aborted = False

    def pause_reading(self):
        self.is_paused = True

    def resume_reading(self):
        self.is_paused = False

    def abort(self):
        self.is_aborted = True

    close = abort

    def is_closing(self):
        return self.is_aborted


def connect():
    protocol, pipe = PeerProtocol(asyncio.get_running_loop()), Pipe()
    protocol.connection_made(pipe)
    protocol.set_response_params(read_bufsize=PIECE)
    return protocol, pipe


@pytest.mark.claim("P3")
async def test_a_turn_of_the_loop_parses_little_however_many_peers_send():
    peers = [connect() for _ in range(20)]
    body = b"HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n" + b"x" * 250_000
    for protocol, _ in peers:
        protocol.data_received(body)
    turns, left = peers[0][0]._turns, 20 * len(body)
    # libuv reads on in the same turn from a connection that is not paused.
    assert all(pipe.is_paused for _, pipe in peers)
    parsed = []
    while not all(protocol._reading_paused for protocol, _ in peers):
        await asyncio.sleep(0)
        parsed.append(left - turns.unparsed)
        left = turns.unparsed
    assert max(parsed) <= PIECE * PIECES
    # Each had its turn before any had its second.
    assert len(parsed) >= 20 // PIECES
    for protocol, _ in peers:
        protocol.connection_lost(None)
    assert turns.unparsed == 0


async def test_what_waits_to_be_parsed_has_a_limit(monkeypatch):
    monkeypatch.setattr(peer_protocol, "MAX_UNPARSED", 100_000)
    (first, first_pipe), (second, second_pipe) = connect(), connect()
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n"
    first.data_received(head + b"x" * 90_000)
    second.data_received(head + b"x" * 20_000)
    assert (first_pipe.is_aborted, second_pipe.is_aborted) == (False, True)
    first.connection_lost(None)


@pytest.mark.parametrize("turns", range(8))
async def test_a_chunked_body_is_whole_if_the_server_closes_before_it_is_read(turns):
    protocol, _ = connect()
    sent = b"1388\r\n" + b"x" * 5000 + b"\r\n"
    protocol.data_received(CHUNKED + sent * 8 + b"0\r\nX: y\r\n\r\n")
    for _ in range(turns):
        await asyncio.sleep(0)
    protocol.connection_lost(None)
    _, body = await protocol.read()
    assert await body.read() == b"x" * 40_000


async def test_a_connection_with_bytes_after_the_response_is_not_reused():
    protocol, _ = connect()
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 16300\r\n"
    response = head + b"X: " + b"y" * (PIECE - 16_300 - len(head) - 7) + b"\r\n\r\n" + b"x" * 16_300
    assert len(response) == PIECE
    protocol.data_received(response * 2)
    _, body = await protocol.read()
    assert body.is_eof()
    assert protocol.should_close
    protocol.connection_lost(None)
