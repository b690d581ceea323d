from __future__ import annotations

import asyncio
import contextlib

import aiohttp
import msgspec
import pytest

from harbourmaster.api.resources import NAMESPACES
from harbourmaster.controller.manager import Manager
from harbourmaster.controller.names import CONTROLLERS
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.telemetry.controller_metrics import create_controller_metrics
from helpers.certificates import call_in_process
from helpers.fake_api import FakeApi
from helpers.registration import Setting
from helpers.virtual_time import loop_factories

HOME = "harbour"
IN_VIRTUAL_TIME = (
    "test_controller",
    "test_deployment",
    "test_failed_nodes",
    "test_flapping_members",
    "test_manager",
    "test_placement_controller",
    "test_pods",
    "test_pods_held",
    "test_pods_stages",
    "test_registration",
    "test_registration_repairs",
    "test_session",
    "test_slow_members",
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


@pytest.fixture(autouse=True)
def certificates_in_process(monkeypatch):
    monkeypatch.setattr("harbourmaster.certs.child._call", call_in_process)


@pytest.fixture
def setting(api, client, events, metrics, background):
    return Setting(api, client, events, metrics, background)


class Started:
    """A manager at work, and a way to end it."""

    def __init__(self, manager):
        self.manager = manager
        self.stop = asyncio.Event()
        self.task = asyncio.create_task(manager.run(self._until))

    async def _until(self):
        await self.stop.wait()
        return "SIGTERM"

    async def end(self):
        self.stop.set()
        await self.task

    async def get(self, path):
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{self.manager.health.url}{path}") as answer,
        ):
            return answer.status, await answer.text()

    async def until_ready(self):
        """Wait for /readyz, which looks once a second at most."""
        await self.until("/readyz", lambda answer: answer[0] == 200)

    async def until(self, path, is_right):
        """Ask until the answer is right; there is no event for a change."""
        while not is_right(await self.get(path)):  # noqa: ASYNC110
            await asyncio.sleep(0.05)

    async def listening(self):
        for _ in range(200):
            if self.manager.health.port:
                return
            await asyncio.sleep(0.01)


@pytest.fixture
async def start_manager(api, client):
    """Return a function that starts a manager."""
    api.put(NAMESPACES, {"metadata": {"name": HOME}})
    started = []

    async def run(**values):
        values.setdefault("server", {"healthPort": 0})
        values["metrics"] = {"exposePort": 0, "customMetricsPort": 0, **values.get("metrics", {})}
        values.setdefault(
            "leaderElection",
            {"leaseDurationSeconds": 300, "renewDeadlineSeconds": 200, "retryPeriodSeconds": 1},
        )
        settings = msgspec.convert(values, ControllerSettings)
        process = Started(
            Manager(settings, client, HOME, create_controller_metrics("0", settings.running))
        )
        started.append(process)
        await process.listening()
        return process

    yield run
    for process in started:
        await process.end()
