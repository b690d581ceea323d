"""Our processes in one event loop: each can stop or die at any time, and is restarted."""

from __future__ import annotations

import asyncio
import contextvars
import os

import msgspec

from harbourmaster.controller.manager import Manager
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.kube import election
from harbourmaster.serving.background import running
from harbourmaster.telemetry.controller_metrics import create_controller_metrics
from harbourmaster.webhook.cluster_state import ClusterState
from harbourmaster.webhook.engine import Engine, EngineHolder
from harbourmaster.webhook.handlers import NAMESPACE_UNKNOWN, answer
from harbourmaster.webhook.settings import WebhookSettings
from harbourmaster.webhook.snapshot import Snapshot
from simulation.clock import Watchdog
from simulation.connection import SimulatedClient

OWN_NAMESPACE = "harbourmaster-system"
LEASE = "harbourmaster-controller"
REPLICA = contextvars.ContextVar("replica", default=None)
"""The replica whose process runs the task."""
_CONTROLLER = {
    "controllers": ["namespaces", "metrics", "lifecycle"],
    "registerWebhooks": False,
    "lifecycle": {"workers": 3, "historyLimit": 1},
}
_MOST_TURNS = 1000


class Replica:
    """A process, which has a new identity ``name.number`` after each start."""

    def __init__(self, simulation, name):
        self.simulation = simulation
        self.name = name
        self.number = 0
        self.is_dead = True
        self.is_stopping = False
        self.has_seen_lease = False
        self._tasks = []
        self._main = None
        self._stop = None

    @property
    def identity(self):
        return f"{self.name}.{self.number}"

    def start(self):
        """Start the process with a new identity."""
        self.number += 1
        self.is_dead = self.is_stopping = self.has_seen_lease = False
        self._tasks = []
        self._stop = asyncio.Event()
        context = contextvars.copy_context()
        context.run(REPLICA.set, self)
        loop = asyncio.get_running_loop()
        self._main = loop.create_task(self._live(), context=context)
        self.simulation.note(self.identity, "starts")

    def adopt(self, task):
        """Add a task to those of this process."""
        self._tasks.append(task)
        if len(self._tasks) > 2000:
            self._tasks = [task for task in self._tasks if not task.done()]

    async def _live(self):
        try:
            await self.work()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
            if not self.is_dead:
                self.simulation.violation(f"{self.identity} ended by {error!r}")
        if not self.is_dead:
            self.is_dead = True
            self.simulation.note(self.identity, "has stopped")
            self.simulation.restart(self)

    async def work(self):
        """Do the work of the process."""
        raise NotImplementedError

    async def until_stopped(self):
        await self._stop.wait()
        return "SIGTERM"

    def stop(self):
        """Stop the process as SIGTERM does."""
        self.is_stopping = True
        self._stop.set()

    async def crash(self, when):
        """Die and never return."""
        self.die(when)
        await asyncio.Event().wait()

    def die(self, when):
        """End at once, without further requests and answers."""
        if self.is_dead:
            return
        self.is_dead = True
        self.simulation.note(self.identity, "dies", when)
        self.simulation.background(self._cancel_tasks())
        self.simulation.restart(self)

    async def _cancel_tasks(self):
        for _ in range(_MOST_TURNS):
            alive = [task for task in self._tasks if not task.done()]
            if not alive:
                return
            for task in alive:
                task.cancel()
            await asyncio.sleep(0)
        self.simulation.violation(f"{self.identity} can't be ended")

    async def while_alive(self, waiting):
        await waiting
        if self.is_dead:
            await asyncio.Event().wait()


class ControllerReplica(Replica):
    """The controller process."""

    settings = _CONTROLLER

    async def work(self):
        os.environ["POD_NAME"] = self.identity
        settings = msgspec.convert(self.settings, ControllerSettings)
        client = SimulatedClient(self.simulation.network, self)
        async with client:
            metrics = create_controller_metrics("0", settings.running)
            manager = Manager(settings, client, OWN_NAMESPACE, metrics)
            manager.health = _NoSite()
            manager._heartbeat = _NoHeartbeat()
            await manager.run(self.until_stopped)


class WebhookReplica(Replica):
    """The admission process, without its server."""

    def __init__(self, simulation, name):
        super().__init__(simulation, name)
        self._holder = None
        self._state = None

    async def work(self):
        settings = msgspec.convert({"gating": "schedulingGates"}, WebhookSettings)
        excluded = frozenset((OWN_NAMESPACE,))
        holder = EngineHolder(Engine(Snapshot(namespaces={}, excluded=excluded), settings))
        self._holder = self._state = None
        async with SimulatedClient(self.simulation.network, self) as client:
            state = ClusterState(client, holder, settings.watch, on_policies=lambda _set: None)
            async with running(state.run()):
                await state.wait_until_synced()
                self._holder, self._state = holder, state
                await self.until_stopped()

    @property
    def snapshot(self):
        return self._holder.current.snapshot

    @property
    def is_ready(self):
        """Whether the API server can reach the webhook."""
        return not (
            self.is_dead
            or self.is_stopping
            or self._state is None
            or self._state.failing() is not None
        )

    async def review(self, body):
        """Return the answer to an AdmissionReview."""
        response, decision = answer(body, self._holder.current)
        if NAMESPACE_UNKNOWN in decision.verdict.codes:
            deadline = asyncio.get_running_loop().time() + 2.5
            if await self._state.arrival(decision.request.namespace or "", deadline):
                response, _ = answer(body, self._holder.current)
        return response


class _NoSite:
    url = "none"

    async def start(self):
        """Serve nothing."""

    stop = start


class _NoHeartbeat:
    """Replaces the measurement of lag, which virtual time does not have."""

    def start(self):
        """Measure nothing."""

    stop = start


def _watchdog(*_arguments, **_options):
    replica = REPLICA.get()

    def end_process():
        if not replica.is_dead:
            replica.simulation.note(replica.identity, "is ended by its watchdog")
            replica.die("work of a leader did not end in time")

    return Watchdog(end_process)


election.Watchdog = _watchdog
