"""Tasks, their definitions and versions, as manifests and as the controller reads them."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from harbourmaster.api.resources import TASK_DEFINITIONS, TASKS
from harbourmaster.lifecycle.functions import resolve
from harbourmaster.lifecycle.jobs import Runners, job_for, job_name
from harbourmaster.lifecycle.model import AppVersion, Task, TaskDefinition, WorkloadVersion

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
