"""An API server in memory that evicts, and rescheduling controllers on it."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace

import msgspec
import pytest

from harbourmaster.controller.names import CONTROLLERS
from harbourmaster.controller.rescheduling.context import ReschedulingContext
from harbourmaster.controller.rescheduling.controller import start
from harbourmaster.controller.runtime import Runtime
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.telemetry.controller_metrics import create_controller_metrics
from helpers.evicting import HOME, QUICK, EvictingApi, full
from helpers.virtual_time import LoopbackLoop


def pytest_asyncio_loop_factories():
    return {"virtual": LoopbackLoop}


@pytest.fixture
async def api():
    async with EvictingApi() as evicting_api:
        yield evicting_api


@pytest.fixture
def full_api(api):
    full(api)
    return api


@pytest.fixture
async def client(api):
    async with api.client(retries=0) as api_client:
        yield api_client


@pytest.fixture
def make_controller(client, monkeypatch):
    """Make a controller whose clocks are the loop's, which may be one of virtual time.

    ``contexts`` of this function are those of the controllers.
    """
    module = "harbourmaster.controller.rescheduling.controller"

    def context(**parts):
        make.contexts.append(ReschedulingContext(**parts))
        return make.contexts[-1]

    def make(**changed):
        loop, began = asyncio.get_running_loop(), time.time()
        clocks = SimpleNamespace(time=lambda: began + loop.time())
        monkeypatch.setattr(f"{module}.read_boottime", loop.time)
        monkeypatch.setattr(f"{module}.time", clocks)
        monkeypatch.setattr(f"{module}.ReschedulingContext", context)
        settings = msgspec.convert({"rescheduling": {**QUICK, **changed}}, ControllerSettings)
        metrics = create_controller_metrics("0", CONTROLLERS)
        return start(Runtime(settings, client, HOME, events=None, metrics=metrics, identity="one"))

    make.contexts = []
    return make
