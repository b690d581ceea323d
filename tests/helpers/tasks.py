"""Tasks and their definitions: manifests, reconcilers, and the kubelet's expansion of values."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import msgspec
from msgspec.structs import replace

from harbourmaster.api.resources import CONFIG_MAPS, JOBS, TASK_DEFINITIONS, TASKS
from harbourmaster.controller.lifecycle import watches
from harbourmaster.lifecycle.functions import resolve
from harbourmaster.lifecycle.jobs import Runners, job_for, job_name
from harbourmaster.lifecycle.model import Task, TaskDefinition
from helpers.lifecycle import Reconcilers, context_of


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


class TaskControllers(Reconcilers):
    """The reconcilers of tasks and their definitions; ``moment`` is the time, by default now."""

    def __init__(self, client, **settings):
        self.moment = None
        context = context_of(
            client,
            settings=settings,
            now=lambda: self.moment or datetime.now(UTC),
            namespace=HOME,
        )
        super().__init__(context, (watches.TASKS, watches.TASK_DEFINITIONS), workers=1)

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

    async def until_told(self, *reasons):
        """Wait until these were told, and nothing else."""
        await self.until(lambda: self.signals.reasons == [*reasons])

    def errors(self):
        """The number of reconciles that failed."""
        samples = next(iter(self.metrics.reconcile_errors.collect())).samples
        return sum(sample.value for sample in samples if sample.name.endswith("_total"))


async def settle(turns=200):
    """Let everything happen that can without a new event; a wire takes a few turns."""
    for _ in range(turns):
        await asyncio.sleep(0)


def jobs(api):
    return [job for (namespace, _), job in api.objects.all(JOBS).items() if namespace == "prod"]


def maps(api):
    """The ConfigMaps by name."""
    stored = api.objects.all(CONFIG_MAPS).items()
    return {name: obj for (namespace, name), obj in stored if namespace == "prod"}


def task_of(api):
    return api.get(TASKS, "pre-hello-12345", "prod")


def definition_of(api):
    return api.get(TASK_DEFINITIONS, "hello", "prod")


def complete(api, job, kind="Complete", reason="", message="", **status):
    """Let a Job end, as its controller would."""
    condition = {"type": kind, "status": "True", "reason": reason, "message": message}
    api.put(JOBS, {**job, "status": {"conditions": [condition], **status}})


def bodies(seen):
    """The bodies of requests."""
    return [json.loads(request.body) for request in seen]


def expand_variables(text, variables):
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
