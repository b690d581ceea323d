"""Many gated pods, applications and waits at once, and the moment at which each was done."""

from __future__ import annotations

import asyncio
import os
import re
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from harbourmaster.api.patches import MergePatch
from harbourmaster.api.resources import (
    APP_VERSIONS,
    APPS,
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    PODS,
    REPLICA_SETS,
    SERVICE_ACCOUNTS,
    TASK_DEFINITIONS,
    WORKLOAD_VERSIONS,
    WORKLOADS,
)
from harbourmaster.kube.reflector import Reflector
from harbourmaster.serving.background import running
from helpers.patience import Changes
from helpers.processes import Controller, client_of
from helpers.schemas import apply_definitions

NAMESPACE = "load"
GATE = "keptn-prechecks-gate"
CHECK = "check"
VERSION = "1.0"
AT_ONCE = 32
CONTAINER = {"name": "ledger", "image": "registry.example.com/ledger:3"}
NOW = "2026-11-21T18:00:00Z"
HOME = "harbour"
PODS_EACH = 5
PARTS_EACH = 5
SINGLE = 100
"""Releases that are timed one by one."""
PATIENCE = 600.0


class Release(NamedTuple):
    """Times in seconds, of so many pods; requests per second while all versions wait."""

    p50: float
    p99: float
    drained: float
    pods: int
    idle: float
    memory_mb: float


class Reconciled(NamedTuple):
    """The time until all applications had passed all their phases."""

    seconds: float
    memory_mb: float


@asynccontextmanager
async def control(plane, *flags, controllers="lifecycle"):
    """Run our controller alone on a control plane of its own; it may log no error."""
    apply_definitions(plane.kubectl)
    plane.kubectl("create", "namespace", HOME)
    async with client_of(plane.kubeconfig) as client:
        bulk = Bulk(client)
        await bulk.home()
        flags = (f"--controllers={controllers}", "--leader-election-enabled=false", *flags)
        controller = await asyncio.to_thread(Controller, plane.kubeconfig, HOME, *flags)
        try:
            yield client, bulk, controller
        finally:
            code = await asyncio.to_thread(controller.stop)
    assert (code, controller.errors) == (0, [])


async def measure_release(plane, versions, quiet):
    """Let pods of so many versions wait for a task each, then go; ``quiet`` seconds in between."""
    async with control(plane) as (client, bulk, controller):
        names = [f"w{index}" for index in range(versions)]
        await bulk.create(TASK_DEFINITIONS, [task_definition()])
        await bulk.create(APPS, [app(f"a-{name}", [name]) for name in names])
        sets = await bulk.create(REPLICA_SETS, [replica_set(name, PODS_EACH) for name in names])
        uids = {obj["metadata"]["name"]: obj["metadata"]["uid"] for obj in sets}
        pods = [
            gated_pod(index, f"a-{name}", name, uids[name])
            for name in names
            for index in range(PODS_EACH)
        ]
        jobs, free = Seen(client, JOBS, lambda _job: True), released_pods(client)
        async with running(jobs.run(), free.run()):
            await bulk.create(PODS, pods)
            await jobs.until(versions)
            idle = await idle_requests(controller, quiet)
            assert free.at == {}
            job_of = {
                obj["metadata"]["annotations"]["keptn.sh/workload"].rpartition("-")[2]: name
                for name, obj in jobs.objects.items()
            }
            single, others = (
                names[: min(SINGLE, versions // 2)],
                names[min(SINGLE, versions // 2) :],
            )
            latencies = []
            for name in single:
                done = await bulk.complete(job_of[name])
                await free.until((len(latencies) + 1) * PODS_EACH)
                last = max(free.at[f"{name}-{index}"] for index in range(PODS_EACH))
                latencies.append(last - done)
            latencies.sort()
            begun = time.monotonic()
            async with asyncio.TaskGroup() as group:
                group.create_task(bulk.complete_all(job_of[name] for name in others))
                group.create_task(free.until(len(pods)))
            return Release(
                p50=latencies[len(latencies) // 2],
                p99=latencies[len(latencies) * 99 // 100 - 1],
                drained=time.monotonic() - begun,
                pods=len(others) * PODS_EACH,
                idle=idle,
                memory_mb=resident_mb(controller.pid),
            )


async def measure_apps(plane, count):
    """Let so many applications without checks, each of five workloads, be reconciled."""
    async with control(plane) as (client, bulk, controller):
        apps = [f"app{index}" for index in range(count)]
        parts = {name: [f"{name}-p{part}" for part in range(PARTS_EACH)] for name in apps}
        pairs = [(name, part) for name in apps for part in parts[name]]
        sets = await bulk.create(REPLICA_SETS, [replica_set(part) for _, part in pairs])
        await bulk.make_ready(sets)
        uids = {obj["metadata"]["name"]: obj["metadata"]["uid"] for obj in sets}
        versions = Seen(client, APP_VERSIONS, has_ended)
        workloads = Seen(client, WORKLOAD_VERSIONS, has_ended)
        async with running(versions.run(), workloads.run()):
            begun = time.monotonic()
            await bulk.create(WORKLOADS, [workload(name, part, uids[part]) for name, part in pairs])
            await bulk.create(APPS, [app(name, parts[name]) for name in apps])
            await versions.until(count)
            await workloads.until(len(pairs))
            return Reconciled(time.monotonic() - begun, resident_mb(controller.pid))


async def idle_requests(controller, quiet):
    """Requests per second when everybody waits; what came before, events too, is done by then."""
    before, now = -1.0, await requests(controller)
    while now != before:
        await asyncio.sleep(1)
        before, now = now, await requests(controller)
    await asyncio.sleep(quiet)
    return (await requests(controller) - now) / quiet


async def requests(controller):
    """The number of requests of the controller, watches aside; it needs no lease here."""
    text = await controller.metrics()
    samples = re.findall(r"^harbourmaster_api_requests_total\{(.*)\} (.*)$", text, re.MULTILINE)
    assert samples
    return sum(float(value) for labels, value in samples if "watch" not in labels)


def resident_mb(pid):
    """The resident memory of a process in MB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024


def has_ended(obj):
    """Whether a version has passed all its phases."""
    return obj.get("status", {}).get("status") == "Succeeded"


class Bulk:
    """Creates and changes objects of one namespace, so many at a time."""

    def __init__(self, client):
        self._client = client
        self._turn = asyncio.Semaphore(AT_ONCE)

    async def home(self, namespace=NAMESPACE):
        """The namespace, and the ServiceAccount without which it takes no pods."""
        await self._client.create(NAMESPACES, {"metadata": {"name": namespace}})
        await self._client.create(SERVICE_ACCOUNTS, {"metadata": {"name": "default"}}, namespace)

    async def create(self, resource, objects, namespace=NAMESPACE):
        """Create all of them; return them as they are stored, in their order."""

        async def one(document):
            async with self._turn:
                return await self._client.create(resource, document, namespace)

        answers = await asyncio.gather(*map(one, objects))
        return [msgspec.json.decode(answer) for answer in answers]

    async def make_ready(self, sets):
        """Have ReplicaSets say that all their pods are there."""
        await asyncio.gather(*(self._status(REPLICA_SETS, obj, _ready(obj)) for obj in sets))

    async def complete(self, name):
        """Have a Job be complete; return the moment at which it was."""
        await self._client.patch(
            JOBS, name, MergePatch({"status": _complete()}), NAMESPACE, subresource="status"
        )
        return time.monotonic()

    async def complete_all(self, names):
        """Complete all of them, so many at a time."""

        async def one(name):
            async with self._turn:
                await self.complete(name)

        await asyncio.gather(*map(one, names))

    async def _status(self, resource, obj, status):
        async with self._turn:
            patch = MergePatch({"status": status})
            name = obj["metadata"]["name"]
            await self._client.patch(resource, name, patch, NAMESPACE, subresource="status")


class Seen:
    """A mirror that notes when each object was first found to be so."""

    def __init__(self, client, resource, is_so):
        self.objects = {}
        self.at = {}
        self._is_so = is_so
        self._changes = Changes()
        mirror = Reflector(
            client, resource, self._note, namespace=NAMESPACE, on_change=self._changes.tell
        )
        self.run = mirror.run

    def _note(self, raw):
        obj = msgspec.json.decode(raw)
        name = obj["metadata"]["name"]
        self.objects[name] = obj
        if name not in self.at and self._is_so(obj):
            self.at[name] = time.monotonic()
        return obj

    async def until(self, count):
        """Wait until so many were found to be so."""
        await self._changes.until(lambda: len(self.at) >= count, PATIENCE)


def released_pods(client):
    """The pods that are let go."""
    return Seen(client, PODS, lambda obj: not obj["spec"].get("schedulingGates"))


def task_definition():
    """A task of one container."""
    return document(TASK_DEFINITIONS, CHECK, {"container": CONTAINER, "retries": 0})


def app(name, workloads):
    """An app of these workloads."""
    entries = [{"name": workload, "version": VERSION} for workload in workloads]
    return document(APPS, name, {"version": VERSION, "workloads": entries})


def workload(app_name, name, uid):
    """A workload without checks, whose pods are of the ReplicaSet of its name."""
    owner = {"kind": "ReplicaSet", "name": name, "uid": uid}
    spec = {"app": app_name, "version": VERSION, "resourceReference": owner}
    return document(WORKLOADS, f"{app_name}-{name}", spec)


def replica_set(name, replicas=1):
    """A ReplicaSet, whose pods are not created here."""
    labels = {"example.com/part": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [CONTAINER]}}
    selector = {"matchLabels": labels}
    spec = {"replicas": replicas, "selector": selector, "template": template}
    return document(REPLICA_SETS, name, spec)


def gated_pod(index, app_name, name, uid):
    """A pod of that ReplicaSet as admission leaves it: it waits for a task."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": uid}
    annotations = {
        "keptn.sh/app": app_name,
        "keptn.sh/workload": name,
        "keptn.sh/version": VERSION,
        "keptn.sh/pre-deployment-tasks": CHECK,
    }
    spec = {"containers": [CONTAINER], "schedulingGates": [{"name": GATE}]}
    manifest = document(PODS, f"{name}-{index}", spec)
    manifest["metadata"] |= {
        "labels": {"example.com/part": name},
        "annotations": annotations,
        "ownerReferences": [{**owner, "controller": True}],
    }
    return manifest


def document(resource, name, spec):
    """An object of this kind."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def _ready(stored):
    count = stored["spec"]["replicas"]
    counts = dict.fromkeys(("replicas", "readyReplicas", "availableReplicas"), count)
    return {**counts, "observedGeneration": stored["metadata"]["generation"]}


def _complete():
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": NOW, "lastProbeTime": NOW}
        for kind in ("SuccessCriteriaMet", "Complete")
    ]
    return {"startTime": NOW, "completionTime": NOW, "succeeded": 1, "conditions": conditions}


NODES = 10
OTHER = "load-2"
"""Half of the other pods wait there."""
MOST_EVENTS = 8
"""Requests per second; the controller sends five events."""
BOUND_BY = ("kube-scheduler", "kwok")
"""The components for ``measure_jobs``: without a controller of Jobs, these never end."""


class Jobs(NamedTuple):
    """Seconds from a Job's end to its pod's release and binding, while other pods wait."""

    released_p50: float
    released_p99: float
    bound_p50: float
    bound_p99: float
    memory_mb: float
    load: str


class Availability(NamedTuple):
    """Seconds until the last of the pods is let go, and the controller's requests for each.

    ``cpu`` are the seconds of a core that the controller took, on a busy machine, too.
    """

    seconds: float
    cpu: float
    pods: int
    requests_each: float
    memory_mb: float
    load: str


async def measure_jobs(plane, others, singles):
    """Let ``singles`` Jobs end one by one, while pods wait for ``others`` that never do."""
    await asyncio.to_thread(plane.create_nodes, NODES)
    async with control(plane) as (client, bulk, controller):
        names = [f"s{index}" for index in range(singles)]
        spaces = {NAMESPACE: list(names), OTHER: []}
        await bulk.home(OTHER)
        for index in range(others):
            spaces[(NAMESPACE, OTHER)[index % 2]].append(f"o{index}")
        for space, jobs in spaces.items():
            await bulk.create(JOBS, [job(job_name) for job_name in jobs], space)
        free = released_pods(client)
        bound = Seen(client, PODS, lambda obj: obj["spec"].get("nodeName"))
        async with running(free.run(), bound.run()):
            for space, jobs in spaces.items():
                pods = [waiting_pod(job_name, f"job/{job_name}") for job_name in jobs]
                await bulk.create(PODS, pods, space)
            await until_settled(controller)
            released, placed = [], []
            for count, name in enumerate(names, 1):
                done = await bulk.complete(name)
                await bound.until(count)
                released.append(free.at[name] - done)
                placed.append(bound.at[name] - done)
            assert len(free.at) == singles
            return Jobs(
                *percentiles(released), *percentiles(placed), resident_mb(controller.pid), load()
            )


async def measure_availability(plane, count):
    """Let so many pods wait for one Deployment, and then have it be available."""
    async with control(plane) as (client, bulk, controller):
        manifest = document(DEPLOYMENTS, "db", replica_set("db")["spec"])
        (stored,) = await bulk.create(DEPLOYMENTS, [manifest])
        free = released_pods(client)
        async with running(free.run()):
            pods = [waiting_pod(f"p{index}", "deployment/db") for index in range(count)]
            await bulk.create(PODS, pods)
            await until_settled(controller)
            before, spent = await requests(controller), cpu_seconds(controller.pid)
            assert free.at == {}
            await client.patch(
                DEPLOYMENTS,
                "db",
                MergePatch({"status": available(stored)}),
                NAMESPACE,
                subresource="status",
            )
            begun = time.monotonic()
            await free.until(count)
            seconds = max(free.at.values()) - begun
            cpu = cpu_seconds(controller.pid) - spent
            per_object = (await requests(controller) - before) / count
            return Availability(
                seconds, cpu, count, per_object, resident_mb(controller.pid), load()
            )


async def until_settled(controller):
    """Wait until the controller has looked at all: it makes few requests besides its events."""
    rate = MOST_EVENTS + 1.0
    while rate > MOST_EVENTS:
        before, begun = await requests(controller), time.monotonic()
        await asyncio.sleep(3)
        rate = (await requests(controller) - before) / (time.monotonic() - begun)


def waiting_pod(name, item):
    """A pod without an owner, as admission leaves it, that waits for one object."""
    tolerations = [{"operator": "Exists"}]
    spec = {
        "containers": [CONTAINER],
        "schedulingGates": [{"name": GATE}],
        "tolerations": tolerations,
    }
    manifest = document(PODS, name, spec)
    manifest["metadata"]["annotations"] = {
        "gates.harbourmaster.dev/wait-for": item,
        "gates.harbourmaster.dev/checks": "none",
    }
    return manifest


def job(name):
    """A Job, whose pods are not created here."""
    template = {"spec": {"containers": [CONTAINER], "restartPolicy": "Never"}}
    return document(JOBS, name, {"template": template})


def available(stored):
    """The status of a Deployment whose replicas are available."""
    count = stored["spec"]["replicas"]
    condition = {"type": "Available", "status": "True", "reason": "x", "message": ""}
    times = {"lastUpdateTime": NOW, "lastTransitionTime": NOW}
    counts = dict.fromkeys(
        ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), count
    )
    generation = stored["metadata"]["generation"]
    return {**counts, "observedGeneration": generation, "conditions": [{**condition, **times}]}


def percentiles(values):
    """The median and the 99th of a hundred."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100 - 1]


def cpu_seconds(pid):
    """The CPU time that a process has taken of all cores."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def load():
    """The load of the machine, by the first of its load averages."""
    return Path("/proc/loadavg").read_text().split()[0]
