"""Tasks and their definitions: manifests, reconcilers, and the kubelet's expansion of values."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial

import msgspec
from msgspec.structs import replace

from harbourmaster.api.resources import CONFIG_MAPS, JOBS, TASK_DEFINITIONS, TASKS
from harbourmaster.controller.controller import Controller
from harbourmaster.controller.lifecycle import watches
from harbourmaster.controller.lifecycle.caches import LifecycleCaches
from harbourmaster.controller.lifecycle.context import Context
from harbourmaster.controller.lifecycle.settings import LifecycleSettings
from harbourmaster.controller.lifecycle.task_definitions import TaskDefinitionReconciler
from harbourmaster.controller.lifecycle.tasks import TaskReconciler
from harbourmaster.lifecycle.functions import resolve
from harbourmaster.lifecycle.jobs import Runners, job_for, job_name
from harbourmaster.lifecycle.model import AppVersion, Task, TaskDefinition, WorkloadVersion
from harbourmaster.telemetry.controller_metrics import create_controller_metrics
from helpers.patience import Changes
from helpers.signals import RecordedSignals


@asynccontextmanager
async def background(coroutine):
    """Run it as a task, which is cancelled at the end of the block."""
    task = asyncio.create_task(coroutine)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


class Calls:
    """Takes the place of an object: any method may be called, and ``seen`` has all calls."""

    def __init__(self):
        self.seen = []

    def __getattr__(self, name):
        return lambda *args: self.seen.append((name, *args))


API = "lifecycle.keptn.sh/v1"
# Of a task whose name is the default.
KEY = "prod/pre-hello-12345"
STATUS = "/keptntasks/pre-hello-12345/status"
TYPED = {"Task": Task, "TaskDefinition": TaskDefinition}
DENO = "registry.example.com/deno:1"
PYTHON = "registry.example.com/python:1"
NONCE = "0123456789abcdef"
RUNNERS = Runners(deno_image=DENO, python_image=PYTHON)
TIMED = {"retries": 10, "timeout": "5m0s"}
WORKLOAD_CONTEXT = {
    "workloadName": "waiter-waiter",
    "appName": "waiter",
    "appVersion": "",
    "workloadVersion": "0.4",
    "taskType": "pre",
    "objectType": "Workload",
}
APP_CONTEXT = {
    "workloadName": "",
    "appName": "podtato-head",
    "appVersion": "0.1.0",
    "workloadVersion": "",
    "taskType": "pre",
    "objectType": "App",
}


def definition(name="hello", namespace="prod", **spec):
    """A KeptnTaskDefinition as JSON would have it; by default of inline code for deno.

    ``labels``, ``annotations`` and ``status`` go where they belong.
    """
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-of-{name}"}
    for part in ("labels", "annotations"):
        if part in spec:
            metadata[part] = spec.pop(part)
    status = spec.pop("status", {})
    kinds = {"deno", "python", "container"} & spec.keys()
    return {
        "apiVersion": API,
        "kind": "KeptnTaskDefinition",
        "metadata": metadata,
        "spec": spec if kinds else {"deno": {"inline": {"code": "1"}}, **spec},
        "status": status,
    }


def task(name="pre-hello-12345", namespace="prod", **spec):
    """A KeptnTask as JSON would have it, of a workload by default."""
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-of-{name}"}
    for part in ("labels", "annotations"):
        if part in spec:
            metadata[part] = spec.pop(part)
    status = spec.pop("status", {})
    body = {"taskDefinition": "hello", "context": WORKLOAD_CONTEXT, "checkType": "pre", **TIMED}
    return {
        "apiVersion": API,
        "kind": "KeptnTask",
        "metadata": metadata,
        "spec": body | spec,
        "status": status,
    }


def give(api, *, task_spec=None, **spec):
    """A definition and a task of it."""
    api.put(TASK_DEFINITIONS, definition(**spec))
    api.put(TASKS, task(**(task_spec or {})))


def read(obj):
    """The object as the controller reads it."""
    kind = TYPED[obj["kind"].removeprefix("Keptn")]
    return msgspec.json.decode(msgspec.json.encode(obj), type=kind)


def app_version(**spec):
    """A KeptnAppVersion as the controller reads it."""
    metadata = {"name": "podtato-head-0.1.0-6b86b273", "namespace": "prod", "uid": "uid-of-app"}
    body = {"appName": "podtato-head", "version": "0.1.0", **spec}
    return msgspec.convert({"metadata": metadata, "spec": body}, AppVersion)


def workload_version(*, status=None, **spec):
    """A KeptnWorkloadVersion as the controller reads it."""
    metadata = {"name": "waiter-waiter-0.4", "namespace": "prod", "uid": "uid-of-workload"}
    body = {
        "app": "waiter",
        "version": "0.4",
        "workloadName": "waiter-waiter",
        "resourceReference": {"uid": "u", "kind": "ReplicaSet", "name": "waiter-1"},
        **spec,
    }
    document = {"metadata": metadata, "spec": body, "status": status or {}}
    return msgspec.convert(document, WorkloadVersion)


def find_in(*definitions):
    """The lookup of ``resolve`` among these definitions, by name."""
    definitions_by_name = {
        definition["metadata"]["name"]: read(definition) for definition in definitions
    }
    return definitions_by_name.get


def program_of(*definitions, **spec):
    """The program that a task runs by the first of the definitions."""
    first = read(definitions[0])
    return resolve(read(task(**spec)), first, find_in(*definitions))


def job(*definitions, config_map="", previous="", runners=RUNNERS, **spec):
    """The Job of a task by the first of the definitions; ``spec`` is the task's."""
    first, of = read(definitions[0]), read(task(**spec))
    program = resolve(of, first, find_in(*definitions))
    status = replace(of.status, job_name=job_name(of, previous), job_nonce=NONCE)
    return job_for(replace(of, status=status), first, program, runners, config_map=config_map)


def container_of(job_object):
    """The one container of a Job."""
    (container,) = job_object["spec"]["template"]["spec"]["containers"]
    return container


def environment(job_object):
    """The environment of a Job's container, in its order."""
    return container_of(job_object)["env"]


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


def expanded(text, variables):
    """A value with its ``$(NAME)`` replaced; what is not known stays, and ``$$`` is one dollar."""
    out, at = [], 0
    while at < len(text):
        if text[at] != "$" or at + 1 == len(text):
            out.append(text[at])
            at += 1
        elif text[at + 1] == "$":
            out.append("$")
            at += 2
        elif text[at + 1] == "(" and ")" in text[at:]:
            end = text.index(")", at)
            name = text[at + 2 : end]
            out.append(variables.get(name, text[at : end + 1]))
            at = end + 1
        else:
            out.append(text[at : at + 2])
            at += 2
    return "".join(out)
