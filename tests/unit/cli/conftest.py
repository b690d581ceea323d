"""A fake API server for commands, and runs of them."""

from __future__ import annotations

import asyncio

import pytest

from harbourmaster.cli.main import main
from helpers.command import kubeconfig
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


@pytest.fixture
def command(api, tmp_path, capsys):
    """Return ``command(*words)``, which runs a command on the API server.

    It returns the exit code, and what was printed on both streams.
    """
    path = kubeconfig(tmp_path, api.url)

    async def command(*words):
        code = await asyncio.to_thread(main, [*words, "--kubeconfig", path])
        return code, *capsys.readouterr()

    return command
