"""A fake API server for commands."""

from __future__ import annotations

import pytest

from helpers.fake_api import FakeApi


@pytest.fixture
async def api():
    """Return an empty API server."""
    async with FakeApi() as fake_api:
        yield fake_api


@pytest.fixture
async def client(api):
    """Return a client of it."""
    async with api.client() as api_client:
        yield api_client
