"""Controllers that die before and after every write, one life after the other, in this process.

A death is that of a process: the call at which it happens never returns, nothing is sent any more,
and nothing is left but the objects in the API server.
"""

from __future__ import annotations

import asyncio
import json
import re
from functools import partial

import msgspec

from harbourmaster.controller.manager import Manager
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.kube.client import Client
from harbourmaster.kube.connection_sources import connect
from harbourmaster.kube.errors import ApiError
from harbourmaster.telemetry.controller_metrics import create_controller_metrics
from helpers.patience import PATIENCE

MOST_LIVES = 400
WITHOUT_LEASE = {"enabled": False}
LEASE = {"leaseDurationSeconds": 2, "renewDeadlineSeconds": 1}
RETRY_PERIOD = 0.25
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_OF_AN_EVENT = ("metadata", "series", "reportingInstance", "eventTime")


class Plan:
    """Dies once before each write is sent, and once right after; ``events``: also at these."""

    def __init__(self, *, events=True):
        self.sent = set()
        self.deaths = {"before": set(), "after": set()}
        self._events = events

    def dies_before(self, write):
        """Whether this write is not to be sent."""
        dies = self._dies("before", write)
        if not dies:
            self.sent.add(write)
        return dies

    def dies_after(self, write):
        """Whether the answer to this write is lost."""
        return self._dies("after", write)

    def _dies(self, moment, write):
        if "/leases" in write or ("/events" in write and not self._events):
            return False
        is_first = write not in self.deaths[moment]
        self.deaths[moment].add(write)
        return is_first


class Undisturbed:
    """The plan of a controller to which nothing happens."""

    def __init__(self):
        self.sent = set()

    def dies_before(self, write):
        self.sent.add(write)
        return False

    def dies_after(self, _write):
        return False


class MortalClient(Client):
    """A client whose process may die at any write; ``died`` is set at that moment.

    Another client of the same process is given what was set as ``plan.died`` by the first.
    """

    def __init__(self, connection, plan, died=None, **options):
        super().__init__(connection, **{"user_agent": "harbourmaster-mortal", **options})
        self.died = plan.died = died or asyncio.Event()
        self._plan = plan

    async def get(self, *arguments, **options):
        return await self._alive(super().get(*arguments, **options))

    async def list(self, *arguments, **options):
        return await self._alive(super().list(*arguments, **options))

    async def create(self, resource, obj, namespace=None, **options):
        send = partial(super().create, resource, obj, namespace, **options)
        name = obj["metadata"].get("name")
        return await self._write("create", resource.path(namespace, name), obj, send)

    async def replace(self, resource, name, obj, namespace=None, **options):
        send = partial(super().replace, resource, name, obj, namespace, **options)
        path = resource.path(namespace, name, options.get("subresource"))
        return await self._write("replace", path, obj, send)

    async def patch(self, resource, name, patch, namespace=None, **options):
        send = partial(super().patch, resource, name, patch, namespace, **options)
        path = resource.path(namespace, name, options.get("subresource"))
        return await self._write("patch", path, json.loads(patch.encode()), send)

    async def delete(self, resource, name, namespace=None, **options):
        send = partial(super().delete, resource, name, namespace, **options)
        return await self._write("delete", resource.path(namespace, name), {}, send)

    async def request(self, method, path, **options):
        send = partial(super().request, method, path, **options)
        if method == "GET":
            return await self._alive(send())
        body = options.get("body")
        return await self._write(method, path, json.loads(body) if body else {}, send)

    async def _alive(self, call):
        if self.died.is_set():
            call.close()
            await _never()
        answer = await call
        if self.died.is_set():
            await _never()
        return answer

    async def _write(self, verb, path, body, send):
        if self.died.is_set():
            await _never()
        write = describe_write(verb, path, body)
        if self._plan.dies_before(write):
            await self._die()
        try:
            answer = await send()
        except ApiError:
            if self.died.is_set():
                await _never()
            raise
        # Also where it died meanwhile at another write.
        if self._plan.dies_after(write) or self.died.is_set():
            await self._die()
        return answer

    async def _die(self):
        self.died.set()
        await _never()


async def _never():
    await asyncio.get_running_loop().create_future()


def describe_write(verb, path, body):
    """A write by its content: without times, and without versions of what it is based on."""
    body = msgspec.to_builtins(body)
    if "/events" in path:
        path = path.partition("/events")[0] + "/events"
        body = {key: value for key, value in body.items() if key not in _OF_AN_EVENT}
    text = json.dumps(_without_versions(body), sort_keys=True)
    return f"{verb} {path} {_TIME.sub('TIME', text)}"


def _without_versions(value):
    if isinstance(value, list):
        return [_without_versions(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get("path") == "/metadata/resourceVersion":
        return "version"
    return {key: _without_versions(item) for key, item in value.items() if key != "resourceVersion"}


class Life:
    """One controller in this process, from its start to its death."""

    def __init__(self, kubeconfig, namespace, plan, *, lease=None, **settings):
        self._connection = connect(str(kubeconfig))
        self._namespace = namespace
        self._plan = plan
        self._settings = _settings(lease, settings)
        self._client = None
        self._task = None
        self._others = set()

    async def __aenter__(self):
        self._others = asyncio.all_tasks()
        self._client = await MortalClient(self._connection, self._plan).__aenter__()
        metrics = create_controller_metrics("0", self._settings.running)
        manager = Manager(self._settings, self._client, self._namespace, metrics)
        self._task = asyncio.create_task(manager.run(_forever))
        return self

    async def __aexit__(self, *_):
        # It does not clean up: whatever it would do, it is cancelled again.
        self._client.died.set()
        while not self._task.done():
            for task in asyncio.all_tasks() - self._others:
                task.cancel()
            await asyncio.sleep(0)
        await asyncio.gather(self._task, return_exceptions=True)
        await self._client.__aexit__(None, None, None)
        if not self._task.cancelled() and (error := self._task.exception()) is not None:
            raise error

    async def end(self):
        """Wait until it dies."""
        await self._client.died.wait()


def _settings(lease, values):
    given = {
        "controllers": ["lifecycle"],
        "registerWebhooks": False,
        "server": {"healthPort": 0},
        "leaderElection": lease or WITHOUT_LEASE,
        **values,
        "lifecycle": {"appContextDelaySeconds": 0, **values.get("lifecycle", {})},
    }
    settings = msgspec.convert(given, ControllerSettings)
    if lease is None:
        return settings
    election = msgspec.structs.replace(settings.leader_election, retry_period_seconds=RETRY_PERIOD)
    return msgspec.structs.replace(settings, leader_election=election)


async def _forever():
    await _never()
    return ""


async def live(kubeconfig, namespace, plan, is_over, *, patience=PATIENCE, **options):
    """Begin one life after the other until ``is_over``, a coroutine function, returns.

    Returns the number of lives. A life in which nothing new is written within the patience, and
    nothing comes to an end, is an AssertionError: they would go on for ever.
    """
    lives = 0
    over = asyncio.create_task(is_over())
    try:
        while not over.done():
            lives += 1
            assert lives <= MOST_LIVES, "each life writes something that no one before it wrote"
            async with Life(kubeconfig, namespace, plan, **options) as life:
                end = asyncio.create_task(life.end())
                done, _ = await asyncio.wait(
                    {over, end}, timeout=patience, return_when=asyncio.FIRST_COMPLETED
                )
                end.cancel()
                if not done:
                    over.cancel()
                    await asyncio.gather(over, return_exceptions=True)
                    raise AssertionError(f"life {lives} has neither an end nor a result")
        over.result()
    finally:
        over.cancel()
        # TLS connections whose requests were cancelled end a moment after their clients.
        await asyncio.sleep(0.1)
    return lives
