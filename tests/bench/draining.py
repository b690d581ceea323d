"""Releases of many pods that wait for one ConfigMap, beside the same patches by a plain client.

Both take turns on one control plane with a scheduler and kwok, on pods of their own. The plain
client has the same watches open, reads what they bring, and decides nothing. The time counts from
the ConfigMap to the last release, as a third process sees it. Run alone, it prints the figures.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import statistics
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import msgspec
import uvloop
from msgspec import Struct

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1])]

from harbourmaster.api.patches import JsonPatch  # noqa: E402
from harbourmaster.api.resources import CONFIG_MAPS, PODS  # noqa: E402
from harbourmaster.controller.lifecycle.caches import LifecycleCaches  # noqa: E402
from harbourmaster.gates.release import CHECKS_KEY, removal  # noqa: E402
from harbourmaster.kube.client import Client  # noqa: E402
from harbourmaster.kube.connection_sources import connect  # noqa: E402
from harbourmaster.kube.reflector import Reflector  # noqa: E402
from harbourmaster.playground.control_plane import ControlPlane  # noqa: E402
from harbourmaster.playground.processes import read_records  # noqa: E402
from harbourmaster.serving.background import running  # noqa: E402
from helpers.load.gates import (  # noqa: E402
    BOUND_BY,
    HOME,
    Bulk,
    cpu_seconds,
    document,
    load,
    requests,
    resident_mb,
    until_settled,
    waiting_pod,
)
from helpers.patience import Changes  # noqa: E402
from helpers.processes import Controller, client_of  # noqa: E402
from helpers.schemas import apply_definitions  # noqa: E402

COUNT = 2000
ROUNDS = 3
WAITING = 10_000
"""Pods that wait while leaders end."""
AT_ONCE = 18
"""Patches that the controller has under way for one namespace: three quarters of its workers."""
NAME = "ready"
FLAGS = ("--controllers=lifecycle", "--leader-election-enabled=false")
PODS_PER_NODE = 100
PATIENCE = 600.0


class _Metadata(Struct, frozen=True):
    name: str = ""


class _Spec(Struct, frozen=True, rename="camel"):
    scheduling_gates: list[dict[str, str]] = []
    node_name: str = ""


class _Pod(Struct, frozen=True):
    metadata: _Metadata
    spec: _Spec = _Spec()


decode = msgspec.json.Decoder(_Pod).decode


class Observer:
    """Notes when the last pod of a namespace was released, and when the last one got a node."""

    def __init__(self, client, namespace):
        self._released, self._bound = set(), set()
        self.released_at = self.bound_at = 0.0
        self._changes = Changes()
        self.mirror = Reflector(
            client, PODS, self._note, namespace=namespace, on_change=self._changes.tell
        )

    def _note(self, raw):
        pod = decode(raw)
        name, now = pod.metadata.name, time.monotonic()
        if not pod.spec.scheduling_gates and name not in self._released:
            self._released.add(name)
            self.released_at = now
        if pod.spec.node_name and name not in self._bound:
            self._bound.add(name)
            self.bound_at = now
        return pod

    async def until_released(self, count):
        await self._changes.until(lambda: len(self._released) >= count, PATIENCE)

    async def until_bound(self, count):
        await self._changes.until(lambda: len(self._bound) >= count, PATIENCE)


class Bare:
    """The plain client, in a process of its own."""

    def __init__(self, process):
        self._process = process
        self.pid = process.pid

    @classmethod
    async def start(cls, kubeconfig, namespace):
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            __file__,
            "bare",
            str(kubeconfig),
            namespace,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        # The log is written there, too.
        while (line := await process.stdout.readline()) != b"ready\n":
            assert line, "the plain client has ended"
        return cls(process)

    def go(self):
        self._process.stdin.write(b"go\n")

    async def stop(self):
        self._process.stdin.close()
        assert await self._process.wait() == 0


async def patch_all(kubeconfig, namespace):
    """Patch all waiting pods of a namespace, as the controller does, when a line comes."""
    async with Client(connect(kubeconfig)) as client:
        caches = LifecycleCaches(client)
        async with running(caches.wait_watches.run(), *(it.run() for it in caches.reflectors)):
            for reflector in caches.reflectors:
                await reflector.synced.wait()
            waiting = [pod for pod in caches.pods.store.values() if pod.is_ours]
            waiting = [pod for pod in waiting if pod.namespace == namespace]
            for reflector in caches.reflectors:
                # What comes is read, and nothing else.
                reflector._apply = lambda _event: None
            write(b"ready\n")
            loop = asyncio.get_running_loop()
            reader = asyncio.StreamReader()
            await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
            await reader.readline()
            pods = iter(waiting)

            async def patch_pods():
                for pod in pods:
                    operations = removal(
                        pod.uid,
                        pod.gates,
                        pod.annotations,
                        drop=(CHECKS_KEY,),
                        revision=pod.resource_version,
                    )
                    await client.patch(PODS, pod.name, JsonPatch(operations), namespace)

            await asyncio.gather(*(patch_pods() for _ in range(AT_ONCE)))
            await reader.read()


def write(line):
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


async def drain(plane, client, namespace, count, bare):
    """Release so many pods by the controller or by the plain client; return the figures."""
    bulk = Bulk(client)
    await bulk.home(namespace)
    pods = [waiting_pod(f"p{index}", f"configmap/{NAME}") for index in range(count)]
    await bulk.create(PODS, pods, namespace)
    await bulk.home(neighbour_of(namespace))
    await bulk.create(PODS, pods[:1], neighbour_of(namespace))
    if bare:
        actor = await Bare.start(plane.kubeconfig, namespace)
    else:
        actor = await asyncio.to_thread(Controller, plane.kubeconfig, HOME, *FLAGS)
    try:
        return await release(plane, client, bulk, namespace, count, actor)
    finally:
        await actor.stop() if bare else await asyncio.to_thread(actor.stop)
        assert bare or actor.errors == []


def neighbour_of(namespace):
    """The namespace in which one pod is released amid the others."""
    return f"{namespace}-neighbour"


async def release(plane, client, bulk, namespace, count, actor):
    bare = isinstance(actor, Bare)
    await asyncio.sleep(5)
    if not bare:
        await until_settled(actor)
    observer, neighbour = Observer(client, namespace), Observer(client, neighbour_of(namespace))
    async with running(observer.mirror.run(), neighbour.mirror.run()):
        await observer.mirror.synced.wait()
        await neighbour.mirror.synced.wait()
        patches = await patches_of_pods(plane)
        processes = {it.name: it.pid for it in read_records(plane.layout.records)}
        processes["client"] = actor.pid
        spent = {name: cpu_seconds(pid) for name, pid in processes.items()}
        asked = 0.0 if bare else await requests(actor)
        condition = document(CONFIG_MAPS, NAME, {})
        begun = met = time.monotonic()
        await bulk.create(CONFIG_MAPS, [condition], namespace)
        if bare:
            actor.go()
        else:
            await observer.until_released(count // 2)
            met = time.monotonic()
            await bulk.create(CONFIG_MAPS, [condition], neighbour_of(namespace))
            await neighbour.until_released(1)
        await observer.until_released(count)
        seconds = observer.released_at - begun
        cpu = {name: cpu_seconds(pid) - spent[name] for name, pid in processes.items()}
        await observer.until_bound(count)
        return {
            "seconds": seconds,
            "bound_seconds": observer.bound_at - begun,
            "patches_per_pod": (await patches_of_pods(plane) - patches) / count,
            "requests_per_pod": 0.0 if bare else (await requests(actor) - asked) / count,
            "cpu_ms_per_pod": {name: value / count * 1000 for name, value in cpu.items()},
            "neighbour_seconds": 0.0 if bare else neighbour.released_at - met,
            "memory_mb": resident_mb(actor.pid),
            "load": load(),
        }


async def patches_of_pods(plane):
    def read():
        url = f"{plane.server}/metrics"
        with urllib.request.urlopen(url, context=plane.admin) as answer:  # noqa: S310
            return answer.read().decode()

    text = await asyncio.to_thread(read)
    samples = re.findall(r"^apiserver_request_total\{(.*)\} (.*)$", text, re.MULTILINE)
    marks = ('verb="PATCH"', 'resource="pods"', 'subresource=""')
    return sum(float(value) for labels, value in samples if all(it in labels for it in marks))


async def compare(plane, count, rounds):
    """Let the plain client and the controller drain in turn, several times."""
    await asyncio.to_thread(plane.create_nodes, 2 * rounds * count // PODS_PER_NODE + 1)
    await asyncio.to_thread(prepare, plane)
    async with client_of(plane.kubeconfig) as client:
        runs = [
            {
                name: await drain(plane, client, f"drain-{name}-{number}", count, name == "bare")
                # Neither is always first.
                for name in (("bare", "controller"), ("controller", "bare"))[number % 2]
            }
            for number in range(rounds)
        ]
    ratios = [pair["controller"]["seconds"] / pair["bare"]["seconds"] for pair in runs]
    return {
        "ratio": statistics.median(ratios),
        "ratios": ratios,
        "patches_per_pod": max(pair["controller"]["patches_per_pod"] for pair in runs),
        "neighbour_share": max(
            pair["controller"]["neighbour_seconds"] / pair["controller"]["seconds"] for pair in runs
        ),
        "pods": count,
        "patches_at_once": AT_ONCE,
        "runs": runs,
    }


def prepare(plane):
    apply_definitions(plane.kubectl)
    plane.kubectl("create", "namespace", HOME)


async def fail_over(plane, count):
    """Seconds from the end of a leader to the next release, while so many pods wait for others."""
    await asyncio.to_thread(prepare, plane)
    async with client_of(plane.kubeconfig) as client, contextlib.AsyncExitStack() as stack:
        bulk = Bulk(client)
        await bulk.home("waiting")
        pods = [waiting_pod(f"p{index}", "configmap/never") for index in range(count)]
        await bulk.create(PODS, pods, "waiting")
        await bulk.home("next")
        await bulk.create(PODS, [waiting_pod(end, f"configmap/{end}") for end in ENDS], "next")
        observer = Observer(client, "next")
        await stack.enter_async_context(running(observer.mirror.run()))
        replicas = []

        async def add():
            replica = await asyncio.to_thread(Controller, plane.kubeconfig, HOME, FLAGS[0])
            stack.push_async_callback(asyncio.to_thread, replica.kill)
            await until_metric(replica, "harbourmaster_cached_objects", count, 'resource="pods"')
            replicas.append(replica)

        await add()
        await until_metric(replicas[0], "harbourmaster_leader", 1)
        figures = {}
        for number, (end, stop) in enumerate(ENDS.items(), 1):
            await add()
            await until_settled(replicas[0])
            begun = time.monotonic()
            stop(replicas.pop(0))
            await bulk.create(CONFIG_MAPS, [document(CONFIG_MAPS, end, {})], "next")
            await observer.until_released(number)
            figures[f"seconds_after_{end}"] = observer.released_at - begun
        return {**figures, "waiting_pods": count, "load": load()}


ENDS = {"sigterm": Controller.terminate, "sigkill": lambda it: os.kill(it.pid, signal.SIGKILL)}


async def until_metric(replica, name, value, label=""):
    """Wait until a metric has at least this value; no event tells of it."""
    pattern = re.compile(rf"^{name}(?:\{{{label}\}})? (.*)$", re.MULTILINE)
    async with asyncio.timeout(PATIENCE):
        sample = None
        while sample is None or float(sample[1]) < value:
            await asyncio.sleep(0.2)
            sample = pattern.search(await replica.metrics())


def measure(folder, count=COUNT, rounds=ROUNDS, waiting=WAITING):
    figures = {}
    for name, optional, call in (
        ("drain", BOUND_BY, lambda plane: compare(plane, count, rounds)),
        ("failover", (), lambda plane: fail_over(plane, waiting)),
    ):
        place = Path(folder) / f"draining-{name}"
        place.mkdir()
        with ControlPlane(place, optional=optional) as plane:
            figures[name] = uvloop.run(call(plane))
    return figures


if __name__ == "__main__":
    if sys.argv[1:2] == ["bare"]:
        uvloop.run(patch_all(*sys.argv[2:]))
    else:
        with tempfile.TemporaryDirectory() as directory:
            figures = measure(directory, *map(int, sys.argv[1:]))
            print(json.dumps(figures, indent=1))  # noqa: T201 - the result
