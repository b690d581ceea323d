"""One Chromium for all tests of pages, in one event loop: starting it takes a second."""

from __future__ import annotations

from pathlib import Path

import pytest
import pytest_asyncio

from helpers.browser import chromium
from helpers.patience import TEST_SECONDS

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(TEST_SECONDS))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser():
    async with chromium() as browser:
        yield browser
