"""Slow clients are dropped in time, and the others don't notice."""

from __future__ import annotations

import asyncio
import socket

import pytest

from helpers.patience import PATIENCE
from helpers.raw_http import Connection, Echo, post, post_chunked

# Together they take as long as a thousand others.
pytestmark = pytest.mark.slow


async def drip(connection, data, pause=0.02):
    """Send one byte at a time until the server has had enough."""
    for position in range(len(data)):
        if connection.reader.at_eof() or connection.writer.is_closing():
            return
        connection.send(data[position : position + 1])
        await asyncio.sleep(pause)
    raise AssertionError("the server took every byte")


async def test_s8_a_head_that_drips_is_cut_off(serve, connect):
    wire = await connect(await serve(head=0.15))
    dripping = asyncio.create_task(drip(wire, post() * 5))
    assert await wire.rest() == b""
    await dripping


async def test_s8_a_second_head_that_drips_is_cut_off_too(serve, connect):
    wire = await connect(await serve(head=0.15))
    assert (await wire.ask(post())).status == 200
    dripping = asyncio.create_task(drip(wire, post() * 5))
    assert await wire.rest() == b""
    await dripping


async def test_s8_a_head_that_stops_half_way_is_cut_off(serve, connect):
    wire = await connect(await serve(head=0.1))
    wire.send(post()[:20])
    assert await wire.rest() == b""


async def test_a_head_in_two_halves_in_time_is_answered(serve, connect):
    wire = await connect(await serve(head=5))
    wire.send(post()[:20])
    await asyncio.sleep(0.05)
    wire.send(post()[20:])
    assert (await wire.answer()).status == 200


async def test_a_connection_outlives_the_time_for_a_head_while_idle_and_while_working(
    serve, connect
):
    echo = Echo()
    wire = await connect(await serve(echo, head=0.1, first_request=0.1), first=post())
    assert (await wire.answer()).status == 200
    await asyncio.sleep(0.25)
    echo.hold = asyncio.Event()
    wire.send(post())
    await asyncio.sleep(0.25)
    echo.hold.set()
    assert (await wire.answer()).status == 200


async def test_the_time_between_two_requests_does_not_run_before_the_first(serve, connect):
    wire = await connect(await serve(keepalive=0.05))
    await asyncio.sleep(0.2)
    assert (await wire.ask(post())).status == 200


@pytest.mark.parametrize("request_", [post(b"[", length=100), post_chunked(b"[", end=False)])
async def test_s8_a_body_that_does_not_come_is_answered_408(serve, connect, request_):
    echo = Echo(patience=0.1)
    wire = await connect(await serve(echo, linger=0.05))
    answer = await wire.ask(request_)
    assert (answer.status, answer.headers["connection"]) == (408, "close")
    assert await wire.rest() == b""
    assert (echo.limits.requests_in_flight, echo.limits.bytes_in_flight) == (0, 0)


async def test_s8_a_body_that_drips_is_cut_off(serve, connect):
    wire = await connect(await serve(Echo(patience=0.15), linger=0.05))
    wire.send(post(b"", length=1000))
    dripping = asyncio.create_task(drip(wire, bytes(1000)))
    assert (await wire.answer()).status == 408
    await wire.rest()
    await dripping


async def test_s8_a_stalled_handshake_is_cut_off(serve, connect, holder):
    wire = await connect(await serve(tls=holder.context, handshake=0.1))
    assert await wire.rest() == b""


async def test_s8_a_handshake_that_stops_half_way_is_cut_off(serve, connect, holder):
    wire = await connect(await serve(tls=holder.context, handshake=0.1))
    wire.send(b"\x16\x03\x01\x02\x00\x01")
    assert await wire.rest() == b""


async def test_s8_a_client_that_never_reads_is_cut_off(serve):
    echo = Echo()
    site = await serve(echo, unread=0.15)
    small = socket.create_connection((site.host, site.port))
    small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    small.sendall(post(path="/large"))
    async with asyncio.timeout(PATIENCE):
        await echo.begun.wait()
        await site.wait_until_unused()
    assert site.connections == 0
    small.close()


async def test_s8_a_slow_reader_that_reads_is_served(serve, connect):
    wire = await connect(await serve(unread=5), limit=1024)
    answer = await wire.ask(post(path="/large"))
    assert len(answer.body) == 32 * 1024 * 1024


@pytest.mark.parametrize("is_tls", [False, True], ids=["plain", "tls"])
async def test_s8_a_connection_that_asks_nothing_is_closed(
    serve, connect, holder, trusting, is_tls
):
    site = await serve(tls=holder.context if is_tls else None, first_request=0.15)
    wire = await connect(site, trusting if is_tls else None)
    assert await wire.rest() == b""


async def test_s8_an_idle_connection_is_closed_after_the_keepalive_time(serve, connect):
    wire = await connect(await serve(keepalive=0.15))
    await wire.ask(post())
    assert await wire.rest() == b""


@pytest.mark.claim("W5")
async def test_s8_many_idle_and_dripping_clients_do_not_slow_the_others(serve, connect):
    site = await serve(head=60)
    others = await asyncio.gather(*(Connection.open(site) for _ in range(400)))
    for half in others[:200]:
        half.send(post()[:30])
    wire = await connect(site)
    async with asyncio.timeout(PATIENCE):
        for _ in range(100):
            assert (await wire.ask(post())).status == 200
    await asyncio.gather(*(other.drop() for other in others))
