"""Servers under attack, and a bystander that must still be served."""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from helpers.certificates import strict_client
from helpers.objects import body, workload
from helpers.raw_http import Connection, post
from helpers.server import POLICIES, Bystander, WatchedServer

ATTACKER = Path(__file__).with_name("attacker.py")


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """The server that most bad input goes to; nothing may make it log an error."""
    with WatchedServer(tmp_path_factory.mktemp("server"), *POLICIES) as watched_server:
        yield watched_server
        assert watched_server.lives
    assert watched_server.errors == []


@pytest.fixture
def many_files():
    """Room for a thousand connections and more."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4096
    if before[0] < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, before[1]), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture
def trusting(server):
    return strict_client(server.bundle)


@pytest.fixture
def ask(server, trusting):
    """Send one request on a connection of its own: ``await ask(data)``."""

    async def send(data):
        return await server.ask(data, trusting)

    return send


@pytest.fixture
async def fresh(server, ask):
    """The server, recovered from whatever came before."""
    good = post(body(workload()), path="/mutate")
    for _ in range(100):
        if (await ask(good)).status == 200:
            break
        await asyncio.sleep(0.05)
    server.forget_peak()
    return server


@pytest.fixture
def attacking(tmp_path):
    """Inside ``with attacking(server, *requests)`` the requests come again and again."""

    @contextmanager
    def attack(server, *requests, tls=True, pause=0.01):
        file = tmp_path / "requests.json"
        file.write_text(json.dumps([request.decode("latin-1") for request in requests]))
        how = "tls" if tls else "plain"
        arguments = [ATTACKER, server.port, file, how, pause]
        # Without the site packages it starts in no time.
        with subprocess.Popen(
            [sys.executable, "-S", "-E", *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as process:
            assert process.stdout.readline() == b"begun\n"
            yield
            process.stdin.close()
            assert int(process.stdout.readline()) > 1

    return attack


@pytest.fixture
async def bystander(server, trusting):
    wire = await Connection.open(server, trusting)
    server.forget_peak()
    yield Bystander(server, wire)
    await wire.drop()


@pytest.fixture
def assert_harmless(server, bystander, attacking):
    """Others are served meanwhile: ``await assert_harmless(*requests)``."""

    async def check(*requests, **options):
        memory = server.memory()
        with attacking(server, *requests, **options):
            await bystander.assert_served(memory)

    return check
