"""Hundreds of connections to a real server: its memory stays small, other clients are served."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import ExitStack, asynccontextmanager, suppress

import pytest

from helpers.certificates import strict_client
from helpers.objects import body, workload
from helpers.patience import PATIENCE, TEST_SECONDS
from helpers.raw_http import Connection, post
from helpers.server import POLICIES, WatchedServer, is_behind

MIB = 1024 * 1024
OF_BODIES = 64 * MIB
"""Bytes for the 32 MiB that may be buffered, and what malloc keeps."""
OF_ONE = 64 * 1024
"""Bytes for a connection: most of it is OpenSSL's."""
LEFT = 24 * MIB
"""Bytes that may be left of an attack once it is over."""
GOOD = post(body(workload()), path="/mutate")
NEIGHBOUR = ("127.0.0.2", 0)


@pytest.fixture
def alone(tmp_path, many_files):
    """A server that has just started, and waits long for a body."""
    options = (f"--body-timeout-seconds={TEST_SECONDS}",)
    with WatchedServer(tmp_path, *POLICIES, options=options) as server:
        yield server
        assert server.lives
        assert server.errors == []


class Attack:
    """Connections that each send the same bytes, and stay open; those that end are left."""

    def __init__(self, server, data, *, answers=False):
        self._server = server
        self._data = data
        self._answers = answers
        self._opened = ExitStack()
        self._context = ssl.create_default_context(cadata=server.bundle.decode())
        self._context.check_hostname = False
        self.answered = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._opened.close()

    def open(self, count):
        """Open so many connections, one after another."""
        for _ in range(count):
            with suppress(OSError):
                raw = socket.create_connection((self._server.host, self._server.port))
                wire = self._opened.enter_context(self._context.wrap_socket(raw))
                wire.sendall(self._data)
                if self._answers:
                    # Refused while the server is behind.
                    while not wire.recv(65536).startswith(b"HTTP/1.1 200 "):
                        wire.sendall(self._data)
                    self.answered += 1


async def assert_served(wire, request=GOOD):
    """Answered, at once or when the server is no longer behind, and not for lack of room."""
    while is_behind(answer := await wire.ask(request)):
        pass
    assert answer.status == 200, answer
    assert b'"patch"' in answer.body


@asynccontextmanager
async def neighbour(server):
    """A connection of another address than the attacker's, as the API server has."""
    wire = await Connection.open(server, strict_client(server.bundle), local_addr=NEIGHBOUR)
    try:
        yield wire
    finally:
        await wire.drop()


async def assert_harmless(server, attack, count, *, growth, is_enough=lambda: True):
    """While it goes on, old and new connections of another address are served every time."""
    large = post(body(workload()).ljust(MIB), path="/mutate")
    async with neighbour(server) as old:
        await assert_served(old)
        before = server.memory()
        with attack:
            attacking = asyncio.create_task(asyncio.to_thread(attack.open, count))
            while not attacking.done():
                await assert_served(old)
                async with neighbour(server) as new:
                    await assert_served(new, large)
            await attacking
            await assert_served(old, large)
            while not is_enough():
                # Some were refused while the server was behind.
                await asyncio.to_thread(attack.open, 50)
                await assert_served(old, large)
            assert server.memory("VmHWM") <= before + growth
        async with asyncio.timeout(PATIENCE):
            while server.memory() > before + LEFT:  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.1)


@pytest.mark.parametrize("count", [150, pytest.param(900, marks=pytest.mark.full)])
@pytest.mark.claim("W9")
async def test_connections_that_are_idle_after_a_review_hold_no_memory(alone, count):
    review = post(body(workload()).ljust(260_000), path="/mutate")
    attack = Attack(alone, review, answers=True)
    # Of the bodies one at a time is here, and one of the neighbour's.
    await assert_harmless(alone, attack, count, growth=LEFT + count * OF_ONE)
    assert attack.answered == count


@pytest.mark.parametrize("count", [400, pytest.param(2500, marks=pytest.mark.full)])
@pytest.mark.claim("W10")
async def test_half_sent_bodies_end_before_others_are_refused(alone, count):
    half = post(b" " * 120_000, length=260_000, path="/mutate")

    def is_enough():
        return alone.metric('harbourmaster_connections_evicted_total{reason="bytes"}') >= 1

    growth = OF_BODIES + 1000 * OF_ONE
    await assert_harmless(alone, Attack(alone, half), count, growth=growth, is_enough=is_enough)


@pytest.fixture
def narrow(tmp_path):
    """A server with room for 20 connections."""
    with WatchedServer(tmp_path, *POLICIES, options=("--max-connections=20",)) as server:
        yield server


@pytest.mark.claim("W9")
async def test_above_the_limit_the_address_with_most_connections_loses_its_idle_ones(narrow):
    async with neighbour(narrow) as first, neighbour(narrow) as second:
        await assert_served(first)
        with Attack(narrow, GOOD, answers=True) as attack:
            await asyncio.to_thread(attack.open, 60)
            assert attack.answered == 60
            assert narrow.metric("harbourmaster_connections") <= 20
            await assert_served(first)
            await assert_served(second)
            async with neighbour(narrow) as third:
                await assert_served(third)
    assert narrow.metric('harbourmaster_connections_evicted_total{reason="connections"}') >= 42


@pytest.mark.claim("W10")
async def test_large_bodies_that_stay_incomplete_leave_room_for_others(alone):
    half = post(b" " * (8 * MIB - 1), length=8 * MIB, path="/mutate")
    with Attack(alone, half) as attack:
        await asyncio.to_thread(attack.open, 8)
        async with neighbour(alone) as wire:
            await assert_served(wire, post(body(workload()).ljust(8 * MIB), path="/mutate"))
