"""The API server in memory answers as the real one does (tests/cluster/test_api_script.py)."""

from __future__ import annotations

from helpers.api_script import differences
from helpers.fake_api import FakeApi


async def test_it_answers_the_script():
    async with FakeApi(rules=True) as api, api.client() as client:
        assert await differences(client, "default") == []
