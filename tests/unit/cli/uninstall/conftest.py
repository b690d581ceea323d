"""An API server that knows what an installation may consist of."""

from __future__ import annotations

import pytest

from harbourmaster.cli.installed import CLUSTER_WIDE, HELD_BY_USERS, IN_NAMESPACE
from harbourmaster.cli.uninstall import marks
from helpers.fake_api import FakeApi


@pytest.fixture(autouse=True)
def _fields_unknown_to_the_fake(monkeypatch):
    monkeypatch.setattr(marks, "_WAITING", "")


@pytest.fixture
async def api():
    async with FakeApi() as fake_api:
        for resource in (*IN_NAMESPACE, *CLUSTER_WIDE, *HELD_BY_USERS):
            fake_api.define(resource)
        yield fake_api
