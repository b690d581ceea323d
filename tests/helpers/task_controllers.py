"""The reconcilers of tasks and their definitions, wired to each other, on any API server."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from functools import partial

from harbourmaster.api.resources import CONFIG_MAPS, JOBS, TASK_DEFINITIONS, TASKS
from harbourmaster.controller.controller import Controller
from harbourmaster.controller.lifecycle import watches
from harbourmaster.controller.lifecycle.caches import LifecycleCaches
from harbourmaster.controller.lifecycle.context import Context
from harbourmaster.controller.lifecycle.settings import LifecycleSettings
from harbourmaster.controller.lifecycle.task_definitions import TaskDefinitionReconciler
from harbourmaster.controller.lifecycle.tasks import TaskReconciler
from harbourmaster.telemetry.controller_metrics import create_controller_metrics
from helpers.changes import Changes
from helpers.signals import RecordedSignals

HOME = "harbour"
NAMES = (watches.TASKS, watches.TASK_DEFINITIONS)


class Holder:
    """Nothing of a KeptnConfig matters to tasks."""

    current = None


class TaskControllers:
    """``async with`` runs caches and both jobs; ``stop`` and ``start`` are a change of leaders."""

    def __init__(self, client, **settings):
        self._changes = Changes()
        self.until = partial(self._changes.until, patience=None)
        self.signals = RecordedSignals(on_told=self._changes.tell)
        self.moment = None
        self.metrics = create_controller_metrics("0", NAMES)
        self.caches = LifecycleCaches(client)
        self.context = Context(
            client=client,
            caches=self.caches,
            settings=LifecycleSettings(**settings),
            configuration=Holder(),
            signals=self.signals,
            now=lambda: self.moment or datetime.now(UTC),
            namespace=HOME,
        )
        self.jobs = {
            watches.TASKS: Controller(
                watches.TASKS, lambda _queue: TaskReconciler(self.context), self.metrics
            ),
            watches.TASK_DEFINITIONS: Controller(
                watches.TASK_DEFINITIONS,
                lambda _queue: TaskDefinitionReconciler(self.context),
                self.metrics,
            ),
        }
        self._mirrors = (
            self.caches.tasks,
            self.caches.task_definitions,
            self.caches.jobs,
            self.caches.task_pods,
            self.caches.config_maps,
        )
        watches.Watches(self.caches, self.jobs).connect()
        for mirror in self._mirrors:
            mirror.subscribe(self._changes.tell)
        for job in self.jobs.values():
            job.reflectors = self._mirrors
        self._mirroring = []
        self._leading = []

    async def __aenter__(self):
        self._mirroring = [asyncio.create_task(mirror.run()) for mirror in self._mirrors]
        for mirror in self._mirrors:
            await mirror.synced.wait()
        self.start()
        return self

    async def __aexit__(self, *_):
        await self.stop()
        await _end(self._mirroring)

    def start(self):
        """Lead."""
        self._leading = [asyncio.create_task(job.lead()) for job in self.jobs.values()]

    async def stop(self):
        """Lead no more, with the caches going on."""
        await _end(self._leading)
        self._leading = []

    async def until_status(self, key, status):
        """Wait for a task's state as the mirror shows it; return the task's status."""
        return await self._until_task(key, lambda value: value.status == status)

    async def until_reason(self, key, reason):
        """Wait for a task's reason as the mirror shows it; return the task's status."""
        return await self._until_task(key, lambda value: value.reason == reason)

    async def _until_task(self, key, is_right):
        def found():
            task = self.caches.tasks.store.get(key)
            return task is not None and is_right(task.status) and task.status

        return await self.until(found)

    async def until_told(self, *reasons, namespace=None):
        """Wait until these were told, and nothing else of that namespace, by default of any."""

        def told():
            return [
                report.reason
                for report in self.signals.kept
                if namespace in {None, report.obj.metadata.namespace}
            ]

        await self.until(lambda: told() == [*reasons])

    def errors(self):
        """The number of reconciles that failed."""
        samples = next(iter(self.metrics.reconcile_errors.collect())).samples
        return sum(sample.value for sample in samples if sample.name.endswith("_total"))


async def _end(tasks):
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def settle(turns=200):
    """Let everything happen that can without a new event; a wire takes a few turns."""
    for _ in range(turns):
        await asyncio.sleep(0)


def of(api, resource, namespace="prod"):
    """The objects of a namespace of a fake API server, by name."""
    return {
        name: obj for (where, name), obj in api.objects.all(resource).items() if where == namespace
    }


def jobs(api, namespace="prod"):
    return list(of(api, JOBS, namespace).values())


def maps(api, namespace="prod"):
    return of(api, CONFIG_MAPS, namespace)


def task_of(api, name="pre-hello-12345", namespace="prod"):
    return api.get(TASKS, name, namespace)


def definition_of(api, name="hello", namespace="prod"):
    return api.get(TASK_DEFINITIONS, name, namespace)


def complete(api, job, kind="Complete", reason="", message="", **status):
    """Let a Job end, as its controller would."""
    condition = {"type": kind, "status": "True", "reason": reason, "message": message}
    api.put(JOBS, {**job, "status": {"conditions": [condition], **status}})


def bodies(seen):
    """The bodies of requests."""
    return [json.loads(request.body) for request in seen]
