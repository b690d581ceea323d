from __future__ import annotations

import pytest
import trustme

from helpers.fake_api import FakeApi
from helpers.logs import captured_log
from helpers.simulated_processes import Election
from helpers.virtual_time import loop_factories


def pytest_asyncio_loop_factories(item):
    return loop_factories(item, ("test_reflector_wire", "test_watch_stream"))


@pytest.fixture
async def api():
    """A fake API server, without TLS."""
    async with FakeApi() as fake_api:
        yield fake_api


@pytest.fixture
async def client(api):
    """A client of it, which waits for no time to pass before it repeats a request."""
    async with api.client(sleep=no_time) as client:
        yield client


@pytest.fixture(scope="session")
def authority():
    """An authority that issues certificates of servers and people."""
    return trustme.CA()


async def no_time(_seconds):
    return None


@pytest.fixture
def election():
    world = Election()
    with captured_log() as world.log:
        yield world
        world.end()
