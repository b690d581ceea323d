"""S8, S9, S11 and S12 on a real server: slow clients, encodings, ambiguous requests, echoes."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import ssl
from contextlib import suppress

import pytest

from helpers.objects import body, workload
from helpers.patience import PATIENCE
from helpers.raw_http import Connection, post

GOOD = post(body(workload()), path="/mutate")
HEAD = b"POST /mutate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
SMUGGLED = post(body(workload(), uid="smuggled"), path="/mutate")


async def until_closed(wire):
    """Wait for the end of a connection."""
    with suppress(ssl.SSLError, ConnectionError):
        async with asyncio.timeout(PATIENCE):
            await wire.reader.read()


@pytest.mark.claim("W5")
async def test_s8_dripping_heads_and_stalled_handshakes_end_unnoticed(server, trusting, bystander):
    memory = server.memory()
    dripping = [await Connection.open(server, trusting) for _ in range(50)]
    stalled = [await Connection.open(server) for _ in range(50)]

    async def drip():
        # A head that has no end.
        for byte in itertools.chain(GOOD[:20], itertools.repeat(GOOD[1])):
            for wire in dripping:
                if not wire.writer.is_closing():
                    wire.send(bytes((byte,)))
            await asyncio.sleep(0.5)

    drips = asyncio.create_task(drip())
    ends = [asyncio.create_task(until_closed(wire)) for wire in dripping + stalled]
    await bystander.assert_served(memory)
    await asyncio.gather(*ends)
    assert not drips.done()
    drips.cancel()
    await asyncio.gather(*(wire.drop() for wire in dripping + stalled))


async def test_s8_a_client_that_reads_no_answer_fills_no_memory(fresh, trusting, bystander):
    large = post(body(workload(), uid="u" * 1_000_000), path="/mutate")
    memory = fresh.memory()
    wires = [await Connection.open(fresh, trusting) for _ in range(5)]
    for wire in wires:
        # The answers are as large as the requests, 100 MB in all.
        wire.send(large * 20)
    await bystander.assert_served(memory)
    await asyncio.gather(*(wire.drop() for wire in wires))


@pytest.mark.parametrize("coding", ["gzip", "br", "deflate", "zstd"])
async def test_s9_an_encoded_body_is_refused_and_never_decompressed(fresh, ask, coding):
    bomb = gzip.compress(bytes(100_000_000))
    before = fresh.memory("VmHWM")
    headers = ("Content-Type: application/json", f"Content-Encoding: {coding}")
    answer = await ask(post(bomb, *headers, path="/mutate"))
    assert answer.status == 415
    assert fresh.memory("VmHWM") <= before + 16 * 1024 * 1024


AMBIGUOUS = {
    "length and chunked": b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked and length": b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "two lengths": b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{} ",
    "a folded header": b"X-Folded: a\r\n b\r\nContent-Length: 2\r\n\r\n{}",
    "a large header block": b"X-Large: " + b"a" * 70_000 + b"\r\n\r\n",
    "an unknown transfer coding": b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "a bad chunk": b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n{}\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("name", [*AMBIGUOUS, "the HTTP/2 preface"])
@pytest.mark.claim("W6")
async def test_s11_an_ambiguous_request_ends_the_connection(server, trusting, name):
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    data = HEAD + AMBIGUOUS[name] if name in AMBIGUOUS else preface
    wire = await Connection.open(server, trusting)
    wire.send(data + SMUGGLED)
    answer = await wire.answer()
    assert answer.status == 400
    assert await wire.rest() == b""
    await wire.drop()
    assert b"smuggled" not in answer.body
