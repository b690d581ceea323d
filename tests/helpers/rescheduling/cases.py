"""Conformance cases of the rescheduler, many at once on one control plane of their own.

A case has nodes and a namespace of its own and a label that leads its critical pods to no other
node. Cases of the same settings run together beside one controller; pytest shows each by its id.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from typing import NamedTuple

import pytest

from harbourmaster.api.resources import NAMESPACES, Resource
from harbourmaster.playground.control_plane import ControlPlane
from helpers.processes import Controller, client_of
from helpers.rescheduling.case_cluster import CaseCluster
from helpers.rescheduling.intercepting_proxy import InterceptingProxy
from helpers.rescheduling.objects import node, priority_classes
from helpers.rescheduling.toy_kubelet import NODES, Cluster

CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)
HOME = "harbourmaster-system"
CONTROLLERS = ("disruption", "replicaset", "daemonset")
"""The controllers that run: cases invent owners, which must not be collected as garbage."""
SCHEDULER = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "podInitialBackoffSeconds": 1,
    "podMaxBackoffSeconds": 1,
    "profiles": [{"schedulerName": "default-scheduler"}],
}
FILLERS = 300
"""Nodes without any use: only one in twenty is reserved at a time."""
SETTINGS = {
    "enabled": True,
    "initialDelaySeconds": 0,
    "settleDelaySeconds": 1,
    "housekeepingIntervalSeconds": 1,
    "verifyDelaySeconds": 0.2,
    "bindTimeoutSeconds": 10,
    "maxConcurrentReservations": 15,
    "evictionsPerMinute": 10_000,
    "evictionsPerHour": 10_000,
    "pdbViolationsPerHour": 1000,
    "criticalClasses": ["system-cluster-critical", "system-node-critical", "never-preempts"],
}
CASE_SECONDS = 75.0


class Case(NamedTuple):
    """One case: what it is called, what its controller is set to, and what happens.

    One that is ``alone`` shares its controller with no other; that of a ``proxied`` one, which is
    alone too, asks a proxy. A ``manual`` one starts its own controllers.
    """

    id: str
    run: object
    settings: dict
    begins_before: bool = False
    alone: bool = False
    proxied: bool = False
    manual: bool = False

    def __str__(self):
        return f"{self.id}-{self.run.__name__}"

    @property
    def group(self):
        """Cases of an equal group run together."""
        is_alone = self.alone or self.proxied or self.manual
        return (self.id if is_alone else "", self.begins_before, json.dumps(self.settings))


class Cases:
    """The cases of a module."""

    def __init__(self):
        self.all = []

    def case(self, name, *, before=False, alone=False, proxied=False, manual=False, **settings):
        """Make a case of a function; ``before`` begins it while no controller runs."""

        def add(function):
            self.all.append(Case(name, function, settings, before, alone, proxied, manual))
            return function

        return add

    def tests(self):
        """Return a test of every case, and one of what the controllers logged meanwhile."""

        @pytest.mark.parametrize("case", self.all, ids=str)
        def test_rescheduling(outcomes, case):
            if outcomes[str(case)] is not None:
                raise outcomes[str(case)]

        def test_no_controller_told_of_a_fault(outcomes):
            assert outcomes.faults == []

        return test_rescheduling, test_no_controller_told_of_a_fault


class Outcomes(dict):
    """The error of each case, or None. ``faults`` has lines of the log."""

    def __init__(self):
        self.faults = []


class Plane(ControlPlane):
    """A control plane for the cases, which alone change nodes and pods."""

    def __init__(self, directory, **options):
        super().__init__(
            directory,
            optional=("kube-controller-manager",),
            audit=True,
            flags=("--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",),
            **options,
        )

    def start(self):
        super().start()
        self.add_scheduler("default-scheduler", SCHEDULER)

    def _prepare(self):
        super()._prepare()
        names = ",".join(f"{controller}-controller" for controller in CONTROLLERS)
        self._components["kube-controller-manager"].arguments.append(f"--controllers={names}")


def outcomes_of(request, tmp_path_factory, cases):
    """Run the selected cases; returns the result of each."""
    wanted = {
        str(item.callspec.params["case"])
        for item in request.session.items
        if item.path == request.path and hasattr(item, "callspec")
    }
    chosen = [case for case in cases.all if str(case) in wanted]
    directory = tmp_path_factory.mktemp("rescheduling")
    outcomes = Outcomes()
    with Plane(directory) as plane:
        asyncio.run(_run(plane, chosen, outcomes))
    if not any(outcomes.values()):
        shutil.rmtree(directory)
    return outcomes


async def _run(plane, chosen, outcomes):
    groups = {}
    for case in chosen:
        groups.setdefault(case.group, []).append(case)
    async with ready_field(plane) as field:
        for group in groups.values():
            await field.run(group, outcomes)


@contextlib.asynccontextmanager
async def ready_field(plane, fillers=FILLERS):
    """A field on a control plane, with what all cases share."""
    async with client_of(plane.kubeconfig) as client, Cluster(client) as cluster:
        field = Field(plane, client, cluster)
        for priority_class in priority_classes():
            await client.create(CLASSES, priority_class)
        await client.create(NAMESPACES, {"metadata": {"name": HOME}})
        await asyncio.gather(
            *(client.create(NODES, node(f"filler-{number:03}")) for number in range(fillers))
        )
        yield field


class Field:
    """State that the cases of a module share."""

    def __init__(self, plane, client, cluster):
        self.plane = plane
        self.client = client
        self.cluster = cluster
        self.faults = []

    async def run(self, group, outcomes):
        """Run cases of equal settings at the same time."""
        begun = asyncio.Event()
        places = {str(case): CaseCluster(self, case, begun) for case in group}
        tasks = {str(case): asyncio.create_task(_of(case, places[str(case)])) for case in group}
        if group[0].begins_before:
            for name, place in places.items():
                waiting = asyncio.create_task(place.waits.wait())
                await asyncio.wait({waiting, tasks[name]}, return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
        async with contextlib.AsyncExitStack() as stack:
            try:
                if not group[0].manual:
                    await self._control(group[0], places.values(), stack)
            except AssertionError as error:
                outcomes |= dict.fromkeys(tasks, error)
                for task in tasks.values():
                    task.cancel()
            else:
                begun.set()
            results = await asyncio.gather(*tasks.values(), return_exceptions=True)
            outcomes |= {
                name: outcomes.get(name) or result
                for name, result in zip(tasks, results, strict=True)
            }
            await asyncio.gather(*(place.leave() for place in places.values()))
        outcomes.faults += self.faults
        self.faults = []

    async def _control(self, case, places, stack):
        kubeconfig = None
        if case.proxied:
            proxy = stack.enter_context(InterceptingProxy(self.plane))
            kubeconfig = proxy.kubeconfig
        controller = await stack.enter_async_context(
            self.control(case.settings, kubeconfig=kubeconfig)
        )
        for place in places:
            place.controller = controller
            place.proxy = proxy if case.proxied else None

    @contextlib.asynccontextmanager
    async def control(self, settings, *flags, kubeconfig=None):
        """Let one controller run meanwhile; flags are those of its election, by default none."""
        file = self.plane.layout.directory / "settings.json"
        file.write_text(json.dumps({"rescheduling": {**SETTINGS, **settings}}))
        controller = await asyncio.to_thread(
            Controller,
            kubeconfig or self.plane.kubeconfig,
            HOME,
            f"--config={file}",
            "--controllers=rescheduling",
            "--register-webhooks=false",
            *(flags or ("--leader-election-enabled=false",)),
        )
        try:
            yield controller
        finally:
            await asyncio.to_thread(controller.stop)
            log = self.plane.layout.logs / f"controller-{controller.pid}.log"
            log.write_text("".join(controller.lines))
            self.faults += controller.errors

    def audit(self, text):
        """The requests of our controller, of which the URI has this text, as the log has them."""
        lines = (self.plane.layout.logs / "audit.log").read_text().splitlines()
        requests = (json.loads(line) for line in lines if text in line)
        return [
            request
            for request in requests
            if text in request["requestURI"]
            and request["userAgent"].startswith("harbourmaster-controller")
        ]


async def _of(case, place):
    await place.open()
    if not case.begins_before:
        await place.begin()
    async with asyncio.timeout(CASE_SECONDS):
        await case.run(place)
        # So every case has to end.
        await place.clean()
        place.assert_untouched()
