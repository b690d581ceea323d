"""Many applications on many simulated clusters: what is written, and whether it comes to rest."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import math
import random
import sys
import uuid
from collections import Counter
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from unittest.mock import patch

from harbourmaster.api import resources as kinds
from harbourmaster.controller.lifecycle.caches import LifecycleCaches
from harbourmaster.controller.placement import members, session
from harbourmaster.controller.placement.checks import SHARED
from harbourmaster.controller.placement.controller import PlacementController
from harbourmaster.controller.placement.settings import PlacementSettings
from harbourmaster.controller.runtime import Runtime
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.kube.connection import Connection
from harbourmaster.kube.untrusted_kubeconfig import Access
from harbourmaster.lifecycle.applications import DEPLOYED_KEY
from harbourmaster.placement.manifests import UID_LABEL
from harbourmaster.placement.model import BoundServer
from harbourmaster.placement.server_binding import judge_server
from harbourmaster.serving.background import running
from harbourmaster.telemetry.controller_metrics import create_controller_metrics
from harbourmaster.telemetry.logging import configure_logging
from helpers.namespaces import Events
from helpers.placement_flow import config_map, deployment
from helpers.placing import NOW
from simulation import clock
from simulation.connection import WRITES, Network, SimulatedClient
from simulation.members import BOATS, Member, work_of
from simulation.server import SimulatedServer

TEAM = "team"
QUIET = 700.0
"""Seconds without a change after which all is at rest: longer than a failure, or a resync."""
LONGEST = 6 * 3600.0
AUDITED = {kinds.CONFIG_MAPS, kinds.DEPLOYMENTS, kinds.JOBS, BOATS}
METRICS = 10
PRE_PHASES = ("preDeploymentStatus", "preDeploymentEvaluationStatus")
POST_PHASES = ("workloadOverallStatus", "postDeploymentStatus", "postDeploymentEvaluationStatus")


class UncausedWriteError(AssertionError):
    """Something was written without a change."""


class PlacementSimulation:
    """A hub, its members and their users; ``run`` returns the counts of writes.

    Each write that changes an object of a member must have a cause: another generation or cluster
    of its application, or a change of the object by another client.
    """

    def __init__(self, seed, applications, clusters, *, checks=False):
        self._has_checks = checks
        self.chance = random.Random(seed)  # noqa: S311 - no secret
        self._uids = random.Random(f"{seed}/uids")  # noqa: S311 - no secret
        self.faults = []
        self.hub_writes = Counter()
        self.last_hub_write = ""
        self._is_hub_changed = False
        self.member_writes = Counter()
        self._last_change = 0.0
        self._causes = Counter()
        """The changes of each object by other clients, and those of each application."""
        self.hub = SimulatedServer(now=self.now, uid=self.uid)
        quiet = SimpleNamespace(
            of=lambda *_: None,
            latency=lambda: 0.001,
            watch_delay=lambda *_: 0.01,
            is_cut_off=lambda _: False,
        )
        network = Network(self.hub, quiet, self._note_hub_request)
        replica = SimpleNamespace(is_dead=False, identity="hub", while_alive=_wait)
        self._client = SimulatedClient(network, replica)
        self.events = Events(lambda: None)
        self.hub.listeners.append(self._note_hub_change)
        self.members = {f"c{number}": Member(self, f"c{number}") for number in range(clusters)}
        for member in self.members.values():
            member.listeners.append(partial(self._audit, member))
        self._applications = applications
        self._zones = max(clusters // 4, 2)

    def now(self):
        return NOW + timedelta(seconds=asyncio.get_running_loop().time())

    def uid(self):
        return str(uuid.UUID(int=self._uids.getrandbits(128)))

    def later(self, seconds, act, *arguments):
        """Call a function after some seconds."""
        asyncio.get_running_loop().call_later(seconds, act, *arguments)

    async def run(self):
        """Let users act until the end, wait for rest, and disturb it without a change."""
        self._prepare()

        def access(kubeconfig, cluster, bound, now):
            server = kubeconfig.text.decode()
            verdict = judge_server(cluster.metadata, "", bound, BoundServer(url=server, time=now))
            return Access(Connection(server=server, source=kubeconfig.source), "", None), verdict

        def client(connection, *, user_agent, **options):
            assert user_agent
            return self.members[connection.server].client(**options)

        with patch.object(members, "_access", access), patch.object(session, "Client", client):
            async with self._placing():
                self._compact_hub()
                await self._act()
                await self._rest()
                before = self._counts()
                await asyncio.sleep(1300)
                self._check("periodic resyncs", before)
                for server in self._servers():
                    server.close_watches()
                await asyncio.sleep(100)
                self._check("watches that ended", before)
                for server in self._servers():
                    server.compact()
                    server.close_watches()
                await asyncio.sleep(100)
                self._check("watches that listed again", before)
            async with self._placing():
                await asyncio.sleep(1300)
                self._check("another leader", before)
        return before

    def _servers(self):
        return (self.hub, *self.members.values())

    def _compact_hub(self):
        """Forget old versions from time to time, as etcd does."""
        self.hub.compact()
        self.later(300, self._compact_hub)

    @contextlib.asynccontextmanager
    async def _placing(self):
        loop = asyncio.get_running_loop()
        runtime = Runtime(
            ControllerSettings(placement=PlacementSettings(enabled=True)),
            self._client,
            "harbourmaster-system",
            events=self.events,
            metrics=create_controller_metrics("0", ["placement"]),
            now=self.now,
            clock=loop.time,
        )
        lifecycle, shared = LifecycleCaches(self._client), {}
        if self._has_checks:
            shared = {name: getattr(lifecycle, name) for name in SHARED.values()}
        controller = PlacementController(runtime, None, shared)
        caches = (controller.caches, controller.deployment.caches)
        reflectors = [reflector.run() for cache in caches for reflector in cache.reflectors]
        reflectors += [cache.run() for cache in shared.values()]
        controllers = (*controller.deciding, *controller.deployment.controllers)
        leading = (controller.await_lifecycle(), *(each.lead() for each in controllers))
        async with running(*reflectors, *leading):
            yield

    # What users do

    def _prepare(self):
        for name in (TEAM, "harbourmaster-system"):
            self.hub.make(kinds.NAMESPACES, {"metadata": {"name": name}})
        for number in range(METRICS):
            source = {"name": "static", "metric": f"m{number}"}
            spec = {"min": 0, "max": 1, "provider": source}
            self.hub.make(kinds.GLOBAL_METRICS, {"metadata": {"name": f"m{number}"}, "spec": spec})
        self._set_metrics()
        definition = {"metadata": {"name": "steady", "namespace": TEAM}, "spec": {"objectives": []}}
        self.hub.make(kinds.EVALUATION_DEFINITIONS, definition)
        for number, name in enumerate(self.members):
            data = {"kubeconfig": base64.b64encode(name.encode()).decode()}
            metadata = {"name": name, "namespace": TEAM}
            self.hub.make(kinds.SECRETS, {"metadata": metadata, "data": data})
            metric = {"name": f"m{number % METRICS}", "weight": 1, "scope": "Global"}
            spec = {"kubeconfigSecretRef": {"name": name}, "metrics": [metric]}
            labels = {"zone": f"z{number % self._zones}"}
            self.hub.make(
                kinds.CLUSTERS, {"metadata": {**metadata, "labels": labels}, "spec": spec}
            )

    def _set_metrics(self):
        values = {f"m{number}": round(self.chance.random(), 3) for number in range(METRICS)}
        spec = {"type": "static", "static": {"metrics": values}}
        self.hub.put(kinds.GLOBAL_PROVIDERS, {"metadata": {"name": "static"}, "spec": spec})

    async def _act(self):
        """Create all applications, change and delete some, and let clusters be slow meanwhile."""
        pause = 1800 / self._applications
        names = [f"a{number}" for number in range(self._applications)]
        for number, name in enumerate(names):
            self._create(number, name)
            await asyncio.sleep(pause / 3)
        for turn in range(2 * self._applications):
            self._raise_faults()
            name = self.chance.choice(names)
            roll = self.chance.random()
            if roll < 0.3:
                self._update(name, turn)
            elif roll < 0.32:
                self._delete(name)
            elif roll < 0.34:
                self._set_metrics()
            elif roll < 0.6:
                self._autoscale(name)
            elif roll < 0.8:
                member = self.chance.choice(list(self.members.values()))
                member.mode = self.chance.choice(("well", "slow", "late", "never"))
            await asyncio.sleep(pause)
        # One cluster never answers again.
        for number, member in enumerate(self.members.values()):
            member.mode = "well" if number else "never"

    def _create(self, number, name):
        manifests = [config_map(name, turn="0")]
        spec = {"constraints": {"cluster": {"labels": [f"zone is z{number % self._zones}"]}}}
        match number % 4:
            case 0 | 1:
                manifests.append(deployment(name))
                spec["migrationOrder"] = ("CreateFirst", "DeleteFirst")[number % 8 // 4]
                spec["conflictPolicy"] = ("Force", "Abort")[number % 3 // 2]
            case 2:
                manifests.append(_job(name, self.chance.choice((0, 1, 30, 600))))
            case 3:
                boat = {"apiVersion": "example.com/v1", "kind": "Boat", "metadata": {"name": name}}
                manifests.append(boat)
                test = {"kind": "Boat", "field": "status.health", "values": ["green"]}
                spec |= {"migrationVolumes": "Recreate", "readiness": [test]}
                spec["migrationOrder"] = "CreateFirst"
        metadata = {"name": name, "namespace": TEAM}
        spec["manifests"] = manifests
        if self._has_checks:
            checks = {"evaluations": ["steady"]}
            spec["checks"] = {
                "preDeployment": checks,
                "postDeployment": checks,
                "when": ["Deploy", "Update", "Move"],
                "onFailure": ("Keep", "Revert")[number % 2],
            }
        self.hub.make(kinds.APPLICATIONS, {"metadata": metadata, "spec": spec})

    def _update(self, name, turn):
        stored = self.hub.find_object(kinds.APPLICATIONS, (TEAM, name))
        if stored is not None:

            def change(current):
                current["spec"]["manifests"][0]["data"] = {"turn": str(turn)}

            self.hub.change(kinds.APPLICATIONS, stored, change)

    def _delete(self, name):
        if self.hub.find_object(kinds.APPLICATIONS, (TEAM, name)) is not None:
            self.hub.remove(kinds.APPLICATIONS, name, TEAM)

    def _run_checks(self, version):
        """Pass the checks of an application's version as far as its deployment, or fail some."""
        stored = self.hub.find_object(kinds.APP_VERSIONS, (TEAM, version["metadata"]["name"]))
        if stored is None or stored["metadata"]["uid"] != version["metadata"]["uid"]:
            return
        is_deployed = DEPLOYED_KEY in (stored["metadata"].get("annotations") or {})
        before = (stored.get("status") or {}).get("status", "Pending")
        if before in {"Succeeded", "Failed"} or (before == "Progressing" and not is_deployed):
            return
        phases = POST_PHASES if is_deployed else PRE_PHASES
        has_failed = self.chance.random() < 0.1
        status = dict.fromkeys(phases, "Succeeded")
        status["status"] = "Succeeded" if is_deployed else "Progressing"
        if not is_deployed:
            item = {"definitionName": "steady", "status": "Succeeded"}
            status["preDeploymentEvaluationTaskStatus"] = [item]
        if has_failed:
            status |= {phases[-1]: "Failed", "status": "Failed"}

        def change(current):
            current["status"] = {**(current.get("status") or {}), **status}

        self.hub.change(kinds.APP_VERSIONS, stored, change, "status")

    def _autoscale(self, name):
        replicas = self.chance.randint(1, 9)
        for member in self.members.values():
            member.targets[name] = replicas
            member.autoscale(name)

    # What is written

    def _note_hub_request(self, _replica, seen, code, _more):
        if seen.verb in WRITES:
            path = seen.path.rpartition("/namespaces/")[2]
            self.hub_writes[path] += 1
            self.last_hub_write = f"{path}: {seen.body.decode()}"
            if code == 200 and not self._is_hub_changed:
                self.faults.append(f"a write changes nothing: {self.last_hub_write}")
            self._is_hub_changed = False

    def _note_hub_change(self, change):
        self._is_hub_changed |= self.hub.actor is not None
        self._last_change = asyncio.get_running_loop().time()
        if change.resource == kinds.APP_VERSIONS and change.after is not None:
            self.later(1, self._run_checks, change.after)
        if change.resource == kinds.APPLICATIONS and change.after is not None:
            is_new = change.before is None or _cause(change.before) != _cause(change.after)
            self._causes[change.after["metadata"]["name"]] += is_new

    def _audit(self, member, change):
        self._last_change = asyncio.get_running_loop().time()
        obj = change.after or change.before
        metadata = obj["metadata"]
        if change.resource not in AUDITED:
            return
        key = (member.name, change.resource.kind, metadata["name"])
        if member.actor is None:
            if change.before is None or change.after is None or _spec(obj) != _spec(change.before):
                self._causes[key] += 1
            return
        self.member_writes[key] += 1
        uid = (metadata.get("labels") or {}).get(UID_LABEL)
        application = self.hub.find_object(kinds.APPLICATIONS, (TEAM, metadata["name"]))
        if application is None or application["metadata"]["uid"] != uid:
            self.faults.append(f"{key} is written for no application")
            return
        causes = self._causes[key] + self._causes[metadata["name"]]
        if self.member_writes[key] > causes:
            self.faults.append(
                f"{key} is written {self.member_writes[key]} times for {causes} causes"
            )
        self._check_job(key, change)
        self._check_replicas(member, key, change)

    def _check_job(self, key, change):
        if change.resource == kinds.JOBS and change.before is None:
            work = work_of(change.after)
            if any(work in member.finished for member in self.members.values()):
                self.faults.append(f"{key} runs again")

    def _check_replicas(self, member, key, change):
        is_scaled = change.resource == kinds.DEPLOYMENTS and None not in change[2:]
        replicas = [part["spec"].get("replicas") for part in change[2:]] if is_scaled else [0, 0]
        if replicas[0] != replicas[1] and key[2] in member.targets:
            self.faults.append(f"{key} loses the replicas of its autoscaler: {replicas}")

    # At rest

    async def _rest(self):
        start = self._last_change = asyncio.get_running_loop().time()
        while (now := asyncio.get_running_loop().time()) < self._last_change + QUIET:
            self._raise_faults()
            if now > start + LONGEST:
                raise UncausedWriteError("objects change for ever")
            await asyncio.sleep(20)
        self.faults += self._unsettled()
        self._raise_faults()

    def _raise_faults(self):
        if self.faults:
            raise UncausedWriteError("\n".join(self.faults[:20]))

    def _unsettled(self):
        """Say which applications are not ready, or not exactly where they are placed."""
        objects = {
            (member.name, name): obj["metadata"]["labels"][UID_LABEL]
            for member in self.members.values()
            for (_, name), obj in member.objects.all(kinds.CONFIG_MAPS).items()
        }
        silent = {member.name for member in self.members.values() if member.mode == "never"}
        for stored in self.hub.every(kinds.APPLICATIONS):
            name, status = stored["metadata"]["name"], stored.get("status") or {}
            place = (status.get("scheduledTo") or {}).get("name")
            where = {cluster for cluster, other in objects if other == name} - silent
            conditions = {entry["type"]: entry for entry in status.get("conditions", ())}
            is_ready = conditions.get("Ready", {}).get("status") == "True"
            if place is None and conditions.get("Checked", {}).get("reason") == "CheckFailed":
                is_ready, where = True, where or {None}
            if place not in silent and not (is_ready and where == {place}):
                yield f"{name} is placed on {place}, and is on {where}: {conditions}"
        known = {stored["metadata"]["uid"] for stored in self.hub.every(kinds.APPLICATIONS)}
        for (cluster, name), uid in objects.items():
            if uid not in known and cluster not in silent:
                yield f"{name} is left on {cluster}"

    def _counts(self):
        return (self.hub_writes.total(), self.member_writes.total(), len(self.events.sent))

    def _check(self, cause, before):
        self._raise_faults()
        counts = self._counts()
        if counts != before:
            events = self.events.sent[before[2] :][:5]
            text = f"{cause}: {before} became {counts}: {self.last_hub_write}: {events}"
            raise UncausedWriteError(text)


def run(seed, applications, clusters, *, checks=False):
    """Simulate; return a line on what was written. Raises UncausedWriteError."""
    clock.seed(seed)
    configure_logging("error", "json", stream=sys.stderr)
    made = []

    async def begin():
        made.append(PlacementSimulation(seed, applications, clusters, checks=checks))
        return await made[0].run()

    with asyncio.Runner(loop_factory=_loop) as runner:
        hub, members, events = runner.run(begin())
        seconds = runner.get_loop().time()
    requests = sum(member.requests for member in made[0].members.values())
    return (
        f"{hub} writes on the hub, {members} changes on members by {requests} requests, "
        f"{events} events, {seconds:.0f} s simulated"
    )


def _loop():
    """A simulated loop that may take as long as it needs."""
    loop = clock.SimulationLoop()
    loop._deadline = math.inf
    return loop


async def _wait(waiting):
    await waiting


def _cause(application):
    """Return the parts of an application that cause writes on its clusters."""
    metadata, status = application["metadata"], application.get("status") or {}
    place = (status.get("scheduledTo") or {}).get("name")
    generation = metadata["generation"]
    if "checks" in application["spec"]:
        generation = status.get("scheduledGeneration")
    return generation, metadata.get("deletionTimestamp"), place


def _spec(obj):
    """Return the parts of an object whose changes cause writes; a Job that ends gets its TTL."""
    metadata, end = obj["metadata"], obj["kind"] == "Job" and obj.get("status")
    return (
        obj.get("spec"),
        obj.get("data"),
        metadata.get("labels"),
        metadata.get("managedFields"),
        end,
    )


def _job(name, ttl):
    container = {"name": "main", "image": "example.com/once:1"}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"template": template, "ttlSecondsAfterFinished": ttl},
    }
