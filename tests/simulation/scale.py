"""A large cluster in steady work: many releases a minute, each of them checked, without faults.

It measures what the product needs. The processor's time of its callbacks passes in the simulation
too, so queues grow as they would in one process on this machine.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import math
import resource as usage
import statistics
import sys
import time
from asyncio import events
from collections import Counter, defaultdict

import msgspec

from bench import planning
from harbourmaster.api import resources as kinds
from harbourmaster.gates.metadata import OPT_IN, OPT_IN_KEY
from harbourmaster.telemetry.controller_metrics import QueueCounters
from harbourmaster.telemetry.logging import configure_logging
from helpers.api_server import PATH
from helpers.flow import manifests
from simulation import clock
from simulation.connection import Network
from simulation.replicas import OWN_NAMESPACE, REPLICA, ControllerReplica
from simulation.run import Simulation, ViolationError, _end, _Log
from simulation.server import REVISION, SimulatedServer, digest, reference
from simulation.users import TARGET, Users

cpu_time = time.thread_time

PODS_PER_RELEASE = 10
"""The pods of a workload that is released; the other pods belong to workloads without checks."""
APPS_PER_NAMESPACE = 4
POD_CHANGES, NODE_CHANGES = 1 / 3000, 1 / 300
"""Changes a second of each other pod, and of each node, which reports every five minutes."""
KEPT_SECONDS = 300.0
"""Seconds for which the API server keeps its history."""
WARM_UP, REST = 30.0, 420.0
"""Seconds before the first release, and after the last one."""
PRE_TASK, POST_TASK, METRIC = "pass-1", "pass-2", "latency"
CONTROLLER = {
    "controllers": ["namespaces", "metrics", "lifecycle", "rescheduling"],
    "registerWebhooks": False,
    "rescheduling": {"enabled": True},
}


class Size(msgspec.Struct, frozen=True):
    """The size of a cluster, and its load."""

    nodes: int = 5000
    pods: int = 150_000
    apps: int = 2000
    releases_per_minute: float = 200.0
    hours: float = 1.0


class Stopwatch:
    """The processor's time of the product's callbacks, without what the simulation does in them."""

    def __init__(self, loop):
        self.product = self.webhook = self._outside = 0.0
        self.longest = (0.0, "", 0.0)
        self.longest_by_name = Counter()
        self.by_name = Counter()
        self.webhook_longest = 0.0
        self._loop = loop
        self._run = events.Handle._run

    def __enter__(self):
        stopwatch, run = self, self._run

        def timed(handle):
            replica = handle._context.get(REPLICA)
            if replica is None:
                run(handle)
                return
            outside, begun = stopwatch._outside, cpu_time()
            run(handle)
            took = cpu_time() - begun - (stopwatch._outside - outside)
            stopwatch.note(replica, handle, took)

        events.Handle._run = timed
        return self

    def __exit__(self, *_):
        events.Handle._run = self._run

    def note(self, replica, handle, seconds):
        if not replica.name.startswith("controller"):
            self.webhook += seconds
            self.webhook_longest = max(self.webhook_longest, seconds)
            return
        # Meanwhile nothing else of this process could run.
        self._loop.advance(seconds)
        self.product += seconds
        name = _name_of(handle)
        self.by_name[name] += seconds
        self.longest_by_name[name] = max(self.longest_by_name[name], seconds)
        if seconds > self.longest[0]:
            self.longest = (seconds, name, self._loop.time())

    def outside(self, function):
        """Return the function, whose time, and all that it starts, is that of the simulation."""
        context = contextvars.copy_context()

        def call(*arguments):
            begun = cpu_time()
            try:
                return context.run(function, *arguments)
            finally:
                self._outside += cpu_time() - begun

        return call


class ScaleLoop(clock.SimulationLoop):
    """A loop whose clock advances by the time that callbacks take."""

    def __init__(self):
        super().__init__()
        self._deadline = math.inf

    def advance(self, seconds):
        self._now += seconds


class Queues:
    """The lengths of the product's queues: the maximum of each, and the median of samples."""

    def __init__(self):
        self.now = Counter()
        self.longest = Counter()
        self.samples = defaultdict(list)
        self._set_depth = QueueCounters.set_depth

    def __enter__(self):
        queues, set_depth = self, self._set_depth

        def note(counters, queue, keys):
            queues.now[queue] = keys
            queues.longest[queue] = max(queues.longest[queue], keys)
            set_depth(counters, queue, keys)

        QueueCounters.set_depth = note
        return self

    def __exit__(self, *_):
        QueueCounters.set_depth = self._set_depth

    def sample(self):
        for queue in self.longest:
            self.samples[queue].append(self.now[queue])


class Calm:
    """No faults, and short latencies."""

    def __init__(self, chance):
        self._chance = chance

    def of(self, _replica, _seen):
        return None

    def latency(self):
        return self._chance.uniform(0.001, 0.005)

    def watch_delay(self, _replica, _resource):
        return self.latency()

    def is_cut_off(self, _replica):
        return False

    def strike(self):
        """Cause nothing."""

    end = strike


class LargeServer(SimulatedServer):
    """A server whose first objects share what they have in common, and whose history ends."""

    def place(self, resource, obj):
        """Store an object of which parts belong to others too, as if it had been there always."""
        objects = self.objects
        objects.version += 1
        metadata = {
            "uid": objects._uid(),
            "creationTimestamp": objects._stamp(),
            "generation": 1,
            **obj["metadata"],
            "resourceVersion": str(objects.version),
        }
        types = {"apiVersion": resource.api_version, "kind": resource.kind}
        obj = {**types, **obj, "metadata": metadata}
        objects.all(resource)[metadata.get("namespace", ""), metadata["name"]] = obj
        self._index(resource, None, obj)
        return obj

    def forget(self, version):
        """Compact the history up to a version, as the real server does regularly."""
        objects = self.objects
        kept = [change for change in objects.history if change.version > version]
        objects.history[:] = kept
        objects.compacted = version
        for key in [key for key in objects._snapshots if key[1] <= version]:
            del objects._snapshots[key]


class LargeUsers(Users):
    """Users who release versions of their apps; the parts of other pods and nodes change."""

    def __init__(self, simulation, server, chance, size):
        super().__init__(simulation, server, chance)
        self._size = size
        self._apps = []
        self._others = []
        self._nodes = []
        self._versions = Counter()
        self.releases = 0

    def _value(self):
        return 1

    def prepare(self):
        """Create all that exists before our process starts."""
        for name in (OWN_NAMESPACE, "keptn-system"):
            self._make(kinds.NAMESPACES, {"metadata": {"name": name, "finalizers": ["kubernetes"]}})
        for number in range(self._size.nodes):
            node = planning.node_json(number)
            node["metadata"]["name"] = f"node-{number + 1}"
            self._nodes.append(self._add(kinds.NODES, node))
        for number in range(math.ceil(self._size.apps / APPS_PER_NAMESPACE)):
            self._make_large_namespace(f"team-{number}")
        for number in range(self._size.apps):
            self._make_app(f"app-{number}", f"team-{number // APPS_PER_NAMESPACE}")
        self._make_others(self._size.pods - self._size.apps * PODS_PER_RELEASE)

    def _add(self, resource, obj):
        obj = self._server.place(resource, obj)
        self._simulation.cluster._uids[obj["metadata"]["uid"]] = None
        return obj

    def _make_large_namespace(self, name):
        metadata = {"annotations": {OPT_IN_KEY: OPT_IN}, "finalizers": ["kubernetes"]}
        self._make(kinds.NAMESPACES, {"metadata": {"name": name, **metadata}})
        self._values[name] = {METRIC: self._value()}
        self._make(kinds.METRICS_PROVIDERS, self._provider(name))
        self._note_value(name, METRIC)
        metric = manifests.metric(METRIC)
        metric["spec"]["fetchIntervalSeconds"] = 60
        self._place(kinds.KEPTN_METRICS, metric, name)
        definition = manifests.evaluation_definition(METRIC, METRIC, f"<{TARGET}", retries=10)
        self._place(kinds.EVALUATION_DEFINITIONS, definition, name)
        for task in (PRE_TASK, POST_TASK):
            self._place(kinds.TASK_DEFINITIONS, manifests.container_task(task), name)

    def _make_app(self, name, namespace):
        deployment = manifests.owner("Deployment", name, replicas=PODS_PER_RELEASE)
        self._annotate_version(deployment, name)
        deployment["metadata"] |= {"namespace": namespace, "annotations": {REVISION: "1"}}
        counts = dict.fromkeys(("replicas", "readyReplicas", "availableReplicas"), PODS_PER_RELEASE)
        counts["observedGeneration"] = 1
        deployment = self._add(kinds.DEPLOYMENTS, {**deployment, "status": counts})
        spec = deployment["spec"]
        template = spec["template"]
        metadata = {
            "name": f"{name}-{digest(template)}",
            "namespace": namespace,
            "labels": template["metadata"]["labels"],
            "annotations": {REVISION: "1"},
            "ownerReferences": [reference(deployment)],
        }
        replica_set = {"metadata": metadata, "spec": spec, "status": counts}
        replica_set = self._add(kinds.REPLICA_SETS, replica_set)
        owners = [reference(replica_set)]
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        for number in range(PODS_PER_RELEASE):
            pod = {
                "name": f"{metadata['name']}-{number}",
                "namespace": namespace,
                **template["metadata"],
                "ownerReferences": owners,
            }
            node = self._chance.choice(self._nodes)["metadata"]["name"]
            pod_spec = {**template["spec"], "nodeName": node, "schedulerName": "default-scheduler"}
            self._add(kinds.PODS, {"metadata": pod, "spec": pod_spec, "status": status})
        self._apps.append((namespace, name))

    def _make_others(self, count):
        """Create pods without checks, of the size that pods usually have."""
        workloads = planning.apps(self._chance, max(count // 100, 1))
        whole = [
            planning.pod_json(self._chance, workload, number, "", (workload["cpu"], 256))
            for number, workload in enumerate(workloads)
        ]
        for number in range(count):
            place = number % len(whole)
            pod, name = whole[place], f"{workloads[place]['name']}-{number:06}"
            metadata = {**pod["metadata"], "name": name, "uid": f"{number:032x}"}
            spec = {**pod["spec"], "nodeName": f"node-{number % self._size.nodes + 1}"}
            self._add(kinds.PODS, {**pod, "metadata": metadata, "spec": spec})
            self._others.append((metadata["namespace"], name))

    def _annotate_version(self, deployment, name):
        self._versions[name] += 1
        given = manifests.keptn(
            name,
            f"1.{self._versions[name]}",
            app=name,
            pre_deployment_tasks=PRE_TASK,
            pre_deployment_evaluations=METRIC,
            post_deployment_tasks=POST_TASK,
        )
        deployment["spec"]["template"]["metadata"]["annotations"] = given

    def release(self):
        """Give the workload of an app a new version."""
        place = self._chance.choice(self._apps)
        deployment = self._server.find_object(kinds.DEPLOYMENTS, place)
        self._server.change(
            kinds.DEPLOYMENTS, deployment, lambda obj: self._annotate_version(obj, place[1])
        )
        self.releases += 1

    def change_other_pod(self):
        """Change the readiness of a pod."""
        pod = self._server.find_object(kinds.PODS, self._chance.choice(self._others))
        self._server.change(kinds.PODS, pod, _toggle, "status")

    def change_node(self):
        """Report on a node, as its kubelet does."""
        node = self._server.find_object(
            kinds.NODES, ("", self._chance.choice(self._nodes)["metadata"]["name"])
        )
        now = f"{self._simulation.now():.3f}"
        self._server.change(
            kinds.NODES, node, lambda obj: obj["status"].update(heartbeat=now), "status"
        )


class LargeController(ControllerReplica):
    settings = CONTROLLER


class ScaleSimulation(Simulation):
    """A large cluster with one controller process, and its users."""

    server_type = LargeServer

    def __init__(self, seed, size, *, planted=False):
        self.nodes = size.nodes
        super().__init__(seed, 0)
        self._size = size
        self._planted = planted
        loop = asyncio.get_running_loop()
        self.stopwatch, self.queues = Stopwatch(loop), Queues()
        self.faults = Calm(self.dice("faults"))
        self.users = LargeUsers(self, self.server, self.dice("users"), size)
        self.network = Network(self.server, self.faults, self._note_answer)
        self.server.answer = self.stopwatch.outside(self.server.answer)
        self.controllers = [LargeController(self, "controller-0")]
        self.replicas = [*self.controllers, self.webhook]
        self.verbs = Counter()
        self.marks = {}
        self.synced = 0.0
        self.release_seconds = []
        """The time that each waiting pod took from its creation to its release."""
        self._waiting = {}
        self._versions_by_time = []
        self.server.listeners.append(self._note_pod)

    def note(self, who, what, more=""):
        """Keep the lines for a violation."""
        self._tail.append(f"{self.now():12.6f} {who:14} {what} {more}".rstrip())

    def _note_answer(self, replica, seen, code, more):
        self._requests += 1
        if "/leases/" in seen.path and code == 200:
            replica.has_seen_lease = True
        match = PATH.fullmatch(seen.path)
        parts = [match["plural"], match["subresource"]] if match else [seen.path]
        self.verbs[replica.name, seen.verb, "/".join(filter(None, parts)), code] += 1
        if seen.verb == "watch" and "begin" not in self.marks:
            # All caches are filled when the last one begins to be watched.
            self.synced = self.now()

    def _note_pod(self, change):
        if change.resource != kinds.PODS:
            return
        obj = change.after or change.before
        uid = obj["metadata"]["uid"]
        if change.after is not None and obj["spec"].get("schedulingGates"):
            self._waiting.setdefault(uid, self.now())
            if self._planted:
                self._planted = False
                self.later(0, self._plant, obj)
        elif (since := self._waiting.pop(uid, None)) is not None and change.after is not None:
            self.release_seconds.append(self.now() - since)

    async def _act(self):
        size, loop = self._size, asyncio.get_running_loop()
        gc.collect()
        gc.freeze()
        self._mark("start")
        await asyncio.sleep(WARM_UP)
        self._mark("begin")
        end = loop.time() + 3600 * size.hours
        per_second = (
            (size.releases_per_minute / 60, self.users.release),
            (len(self.users._others) * POD_CHANGES, self.users.change_other_pod),
            (size.nodes * NODE_CHANGES, self.users.change_node),
        )
        acting = [self._repeat(rate, act, end, self.dice(act.__name__)) for rate, act in per_second]
        await asyncio.gather(self._look(end), *acting)
        self._mark("end")
        # Like an API server that restarts, after which each cache is listed again.
        self.server.compact()
        self.server.close_watches()
        await asyncio.sleep(30)
        self._mark("relisted")
        await asyncio.sleep(REST)
        self.invariants.check_quiet(self.controllers)
        self._mark("rest")

    async def _repeat(self, rate, act, end, chance):
        loop = asyncio.get_running_loop()
        due = loop.time()
        while rate:
            due += chance.expovariate(rate)
            if due > end:
                return
            await asyncio.sleep(max(due - loop.time(), 0))
            act()

    async def _look(self, end):
        """Sample queues each second, and collect garbage outside of the product's time."""
        loop = asyncio.get_running_loop()
        while loop.time() < end:
            await asyncio.sleep(1)
            self.queues.sample()
            self._versions_by_time.append((loop.time(), self.server.objects.version))
            if len(self._versions_by_time) % 300 == 0:
                gc.collect()
                gc.freeze()
                old = [
                    pair for pair in self._versions_by_time if pair[0] < loop.time() - KEPT_SECONDS
                ]
                if old:
                    self.server.forget(old[-1][1])
                self._report()

    def _report(self):
        lag = max((max(samples[-300:]) for samples in self.queues.samples.values()), default=0)
        text = f"{self.now():6.0f} s: {self.users.releases} releases, longest queue {lag}"
        cpu = f"{self.stopwatch.product:.0f} s of {time.process_time():.0f} s by the product"
        sys.stderr.write(f"{text}, {cpu}\n")

    def _plant(self, pod):
        """Have the controller release a pod without its checks."""
        self.server.actor = self.controllers[0]
        try:
            self.server.change(kinds.PODS, pod, lambda obj: obj["spec"].update(schedulingGates=[]))
        finally:
            self.server.actor = None

    def _mark(self, name):
        self.marks[name] = {
            "time": self.now(),
            "product": self.stopwatch.product,
            "webhook": self.stopwatch.webhook,
            "requests": Counter(self.verbs),
            "resident_mb": planning.resident_mb(),
            "longest": self.stopwatch.longest,
        }
        # Pauses of the start, of the work and of lists are told apart.
        self.stopwatch.longest = (0.0, "", 0.0)


def _toggle(pod):
    conditions = pod["status"]["conditions"]
    ready = next(condition for condition in conditions if condition["type"] == "Ready")
    ready["status"] = "False" if ready["status"] == "True" else "True"


def _name_of(handle):
    """Return the name of what a callback runs: of a task, that of its coroutine."""
    callback = handle._callback
    task = getattr(callback, "__self__", None)
    if isinstance(task, asyncio.Task):
        callback = task.get_coro()
    return getattr(callback, "__qualname__", type(callback).__qualname__)


def run(seed, size, *, planted=False):
    """Simulate; return the figures, as far as it came, and the outcome."""
    clock.seed(seed)
    made = []
    begun = time.process_time()

    async def begin():
        simulation = ScaleSimulation(seed, size, planted=planted)
        made.append(simulation)
        configure_logging("warning", "json", stream=_Log(simulation))
        with simulation.stopwatch, simulation.queues:
            await simulation.run()

    loop = ScaleLoop()
    try:
        loop.run_until_complete(begin())
    except ViolationError:
        return {}, made[0].outcome()
    finally:
        _end(loop)
    return figures_of(made[0], size, time.process_time() - begun), made[0].outcome()


def figures_of(simulation, size, seconds):
    """Return all figures of a simulation, as JSON has them."""
    names = ("start", "begin", "end", "relisted")
    start, begin, end, relisted = (simulation.marks[name] for name in names)
    releases = simulation.users.releases
    requests = end["requests"] - begin["requests"]
    by_request = Counter()
    for (who, verb, plural, _), count in requests.items():
        if who == "controller-0":
            by_request[f"{verb} {plural}"] += count
    failed = Counter()
    for (who, verb, plural, code), count in (end["requests"]).items():
        if code >= 400:
            failed[f"{who} {verb} {plural} {code}"] += count
    product = end["product"] - begin["product"]
    elapsed = end["time"] - begin["time"]
    queues, stopwatch = simulation.queues, simulation.stopwatch
    return {
        "size": msgspec.to_builtins(size),
        "simulated_seconds": round(end["time"]),
        "real_cpu_seconds": round(seconds, 1),
        "releases": releases,
        "pods_released": simulation.invariants.released,
        "product_cpu_share_of_one_core": round(product / elapsed, 3),
        "product_cpu_ms_per_release": round(1e3 * product / max(releases, 1), 2),
        "webhook_cpu_seconds": round(end["webhook"] - begin["webhook"], 1),
        "start_cpu_seconds": round(begin["product"] - start["product"], 2),
        "start_seconds_until_synced": round(simulation.synced - start["time"], 1),
        "start_resident_bytes_per_pod": round(
            1e6 * (begin["resident_mb"] - start["resident_mb"]) / size.pods
        ),
        "start_longest_pause_ms": _pause(begin["longest"]),
        "longest_pause_ms": _pause(end["longest"]),
        "relist_cpu_seconds": round(relisted["product"] - end["product"], 2),
        "relist_longest_pause_ms": _pause(relisted["longest"]),
        "resident_growth_mb": round(end["resident_mb"] - begin["resident_mb"]),
        "longest_pauses_ms": {
            name: round(1e3 * most, 1) for name, most in stopwatch.longest_by_name.most_common(12)
        },
        "cpu_seconds_by_coroutine": {
            name: round(total, 2) for name, total in stopwatch.by_name.most_common(25)
        },
        "requests_per_release": round(sum(by_request.values()) / max(releases, 1), 2),
        "requests": dict(by_request.most_common()),
        "failed_requests": dict(failed.most_common()),
        "queues": {
            name: {
                "maximum": most,
                "median": statistics.median(queues.samples[name] or [0]),
            }
            for name, most in sorted(queues.longest.items())
        },
        "release_seconds": _quantiles(simulation.release_seconds),
        "resident_mb_of_all": round(usage.getrusage(usage.RUSAGE_SELF).ru_maxrss / 1e3),
    }


def _pause(longest):
    seconds, name, at = longest
    return {"ms": round(1e3 * seconds, 1), "in": name, "at_second": round(at)}


def _quantiles(values):
    if len(values) < 2:
        return {}
    parts = statistics.quantiles(values, n=100)
    return {
        "median": round(parts[49], 2),
        "p99": round(parts[98], 2),
        "longest": round(max(values), 2),
    }
