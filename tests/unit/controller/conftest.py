from __future__ import annotations

import asyncio
import contextlib

import pytest

from harbourmaster.controller.names import CONTROLLERS
from harbourmaster.telemetry.controller_metrics import create_controller_metrics
from helpers.fake_api import FakeApi
from helpers.registering import Setting
from helpers.virtual_time import loop_factories

IN_VIRTUAL_TIME = (
    "test_controller",
    "test_deployment",
    "test_failed_nodes",
    "test_manager",
    "test_placement_controller",
    "test_pods",
    "test_pods_held",
    "test_registration",
    "test_registration_repairs",
    "test_session",
    "test_task_pods",
    "test_tasks",
)


def pytest_asyncio_loop_factories(item):
    return loop_factories(item, IN_VIRTUAL_TIME)


class RecordedEvents:
    """A stand-in for the recorder that keeps the events."""

    def __init__(self):
        self.sent = []
        self._came = asyncio.Event()

    def emit(self, regarding, kind, reason, note, **_options):
        self.sent.append((regarding.kind, regarding.name, kind, reason, note))
        self._came.set()

    def of(self, reason):
        """The texts with a reason."""
        return [note for *_, sent_reason, note in self.sent if sent_reason == reason]

    async def until(self, reason, count=1):
        """Wait for the ``count``th event of a reason; return the text."""
        while len(self.of(reason)) < count:
            self._came.clear()
            await self._came.wait()
        return self.of(reason)[count - 1]


@pytest.fixture
async def api():
    """A fake API server, without TLS."""
    async with FakeApi() as fake_api:
        yield fake_api


@pytest.fixture
async def client(api):
    async with api.client() as client:
        yield client


@pytest.fixture
def events():
    return RecordedEvents()


@pytest.fixture
def metrics():
    return create_controller_metrics("0", CONTROLLERS)


@pytest.fixture
async def background():
    """Return a function that runs a coroutine until the end of the test, and returns its task."""
    tasks = []

    def start(coroutine):
        tasks.append(asyncio.create_task(coroutine))
        return tasks[-1]

    yield start
    for task in tasks:
        task.cancel()
    for task in tasks:
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.fixture
def lead(background):
    """Return a function that keeps a job's caches and leads, until the end of the test."""

    def start(job):
        for reflector in job.reflectors:
            background(reflector.run())
        return background(job.lead())

    return start


@pytest.fixture
def setting(api, client, events, metrics, background):
    return Setting(api, client, events, metrics, background)
