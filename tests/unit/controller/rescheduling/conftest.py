"""An API server in memory that evicts, and rescheduling controllers on it."""

from __future__ import annotations

import msgspec
import pytest

from controller.rescheduling.controller import RescheduleController
from controller.rescheduling_settings import ReschedulingSettings
from controller.settings import CONTROLLERS
from helpers.evicting import HOME, QUICK, EvictingApi
from telemetry.controller_metrics import create_controller_metrics


@pytest.fixture
async def api():
    async with EvictingApi() as found:
        yield found


@pytest.fixture
async def client(api):
    async with api.client(retries=0) as found:
        yield found


@pytest.fixture
def controlled(client):
    def make(**changed):
        settings = msgspec.convert({**QUICK, **changed}, ReschedulingSettings)
        metrics = create_controller_metrics("0", CONTROLLERS)
        return RescheduleController(
            client, settings, namespace=HOME, identity="one", metrics=metrics
        )

    return make
