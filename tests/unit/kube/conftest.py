from __future__ import annotations

import pytest
import trustme

from helpers.fake_api import FakeApi


@pytest.fixture
async def api():
    """A fake API server, without TLS."""
    async with FakeApi() as found:
        yield found


@pytest.fixture
async def client(api):
    """A client of it, which waits for no time to pass before it repeats a request."""
    async with api.client(sleep=no_time) as found:
        yield found


@pytest.fixture(scope="session")
def authority():
    """An authority that issues certificates of servers and people."""
    return trustme.CA()


async def no_time(_seconds):
    return None
