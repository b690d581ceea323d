from __future__ import annotations

import pytest
import trustme

from helpers.fake_api import FakeApi
from helpers.placement_members import DeploymentEnvironment, server_context


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
async def member(authority):
    async with FakeApi(tls=server_context(authority)) as api:
        yield api


@pytest.fixture
async def second_member(authority):
    async with FakeApi(tls=server_context(authority)) as api:
        yield api


@pytest.fixture
async def env(authority):
    async with FakeApi() as api, api.client() as client:
        yield DeploymentEnvironment(api, client, authority)
