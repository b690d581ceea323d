"""Controllers of tasks and their definitions, on a fake API server."""

from __future__ import annotations

import pytest

from helpers.tasks import TaskControllers


@pytest.fixture
async def controllers(client):
    async with TaskControllers(client) as task_controllers:
        yield task_controllers
