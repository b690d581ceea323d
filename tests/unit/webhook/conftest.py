"""The process's log in memory, an API server, and admission that is late or broken."""

from __future__ import annotations

import asyncio

import pytest

from harbourmaster.serving.bodies import read_body
from helpers.fake_api import FakeApi
from helpers.logs import captured_log
from helpers.virtual_time import loop_factories


def pytest_asyncio_loop_factories(item):
    return loop_factories(item, ("test_cluster_state", "test_gating_choice", "test_process"))


@pytest.fixture
def log():
    """A stream of the log's JSON lines, from level info on."""
    with captured_log() as stream:
        yield stream


@pytest.fixture
async def api():
    async with FakeApi() as fake_api:
        yield fake_api


@pytest.fixture
def late(monkeypatch):
    """Bodies are read completely, but the loop returns to them after the deadline."""

    async def read_late(*arguments, deadline, **options):
        body = await read_body(*arguments, deadline=deadline + 60, **options)
        await asyncio.sleep(max(0.0, deadline - asyncio.get_running_loop().time()) + 0.001)
        return body

    monkeypatch.setattr("harbourmaster.serving.bodies.read_body", read_late)


@pytest.fixture
def broken(monkeypatch):
    """Return a function that fails in place of answering a body."""

    def fail(*_arguments, **_options):
        raise ZeroDivisionError("secret of the object")

    monkeypatch.setattr("harbourmaster.webhook.server.answer_body", fail)
    return fail
