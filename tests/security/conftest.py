"""Servers to ill-treat, and the bystanders who must not notice."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from helpers.bystander import POLICIES, ROUNDS, Bystander
from helpers.handshakes import strict_client
from helpers.objects import body, workload
from helpers.raw_http import Connection, post
from helpers.watched import WatchedServer

REPORT = Path(__file__).parents[2] / "build" / "reports" / "bystanders.txt"
ATTACKER = Path(__file__).with_name("attacker.py")


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """The server that most bad input goes to; nothing may make it log an error."""
    with WatchedServer(tmp_path_factory.mktemp("server"), *POLICIES) as found:
        yield found
        assert found.lives
    assert [line for line in found.lines if line["level"] == "error"] == []


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


@pytest.fixture(scope="session")
def report():
    """The medians of all comparisons, undisturbed and disturbed, kept as a table."""
    figures = {}
    yield figures
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(
        "p99 in ms of a bystander's requests: undisturbed, disturbed, and by what\n"
        + "".join(
            f"{quiet * 1000:6.2f} {disturbed * 1000:6.2f}  {name.removeprefix('test_')}\n"
            for name, (quiet, disturbed) in sorted(figures.items())
        )
    )


@pytest.fixture
async def bystander(server, trusting, request, report):
    wire = await Connection.open(server, trusting)
    server.forget_peak()
    yield Bystander(server, wire, request.node.name, report)
    await wire.gone()


@pytest.fixture
def harmless(server, bystander, attacking):
    """Whether others don't notice these requests: ``await harmless(*requests)``."""

    async def check(*requests, **options):
        memory = server.memory()
        await bystander.slowest()
        quiet, disturbed = [], []
        # In turn, so that whatever else the machine does meets both.
        for _ in range(ROUNDS):
            quiet.append(await bystander.slowest())
            with attacking(server, *requests, **options):
                disturbed.append(await bystander.slowest())
        return bystander.noticed_nothing(quiet, disturbed, memory)

    return check
