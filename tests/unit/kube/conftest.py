from __future__ import annotations

import pytest

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


async def no_time(_seconds):
    return None
