"""Analyses on the real API server, with providers that a server on loopback plays.

Objects pass the real schema, values a real HTTP client, and verdicts come back by the watch.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from urllib.parse import parse_qs

import msgspec
import pytest

from harbourmaster.api.patches import MergePatch
from harbourmaster.api.resources import (
    ANALYSES,
    ANALYSIS_DEFINITIONS,
    ANALYSIS_VALUE_TEMPLATES,
    METRICS_PROVIDERS,
)
from harbourmaster.controller.evaluation.controller import MetricsController
from harbourmaster.controller.evaluation.settings import MetricsSettings
from harbourmaster.controller.parts import Process
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.telemetry.controller_metrics import create_controller_metrics
from helpers.controller import connected
from helpers.provider_server import LOOPBACK, ProviderServer, http_answer

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.slow]

CRDS = Path(__file__).parents[2] / "deploy/crds"
PATIENCE = 30.0
TIMEFRAME = {"from": "2026-03-01T11:55:00Z", "to": "2026-03-01T12:00:00Z"}
BEGIN = 1772366100


class Prometheus:
    """Plays one: values by query; it is down while there are none."""

    def __init__(self, **values):
        self.values = values
        self.forms = []

    async def __call__(self, request):
        form = {name: each for name, (each,) in parse_qs(request.body.decode()).items()}
        self.forms.append(form)
        if not self.values:
            yield http_answer(b"", "503 Service Unavailable")
            return
        series = {"metric": {}, "values": [[float(form["start"]), self.values[form["query"]]]]}
        data = {"resultType": "matrix", "result": [series]}
        yield http_answer({"status": "success", "data": data})


class Events:
    """In place of the recorder."""

    def __init__(self):
        self.told = []

    def emit(self, regarding, _type, reason, note, **_options):
        self.told.append((regarding.name, reason, note))


class Running:
    """A controller process in this one: its caches and its job."""

    def __init__(self, client):
        self.events = Events()
        self.metrics = create_controller_metrics("0", [])
        settings = MetricsSettings(allowed_addresses=LOOPBACK, query_timeout_seconds=5)
        self._process = Process(
            ControllerSettings(metrics=settings),
            client,
            "harbour",
            events=self.events,
            metrics=self.metrics,
        )
        self.controller = MetricsController(self._process)
        self._moved = asyncio.Event()
        caches = self.controller.caches
        caches.analyses.subscribe(lambda _keys: self._moved.set())
        self._tasks = []

    def start(self):
        (job,) = (each for each in self.controller.controllers if each.name == "analyses")
        reflectors = self.controller.caches.reflectors
        shared = [run() for run in self._process.background]
        coroutines = [*shared, job.lead(), *(each.run() for each in reflectors)]
        self._tasks = [asyncio.create_task(each) for each in coroutines]

    async def stop(self):
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def until(self, key, is_so):
        """Wait until ``is_so`` of the status of the analysis with that key, and return it."""
        store = self.controller.caches.analyses.store
        async with asyncio.timeout(PATIENCE):
            while (found := store.get(key)) is None or not is_so(found.status):
                self._moved.clear()
                await self._moved.wait()
        return found.status

    def exposed(self, name):
        """The values of a metric, by labels."""
        return {
            tuple(sample.labels.items()): sample.value
            for family in self.metrics.registry.collect()
            if family.name == name
            for sample in family.samples
        }


class World:
    """A namespace with analyses, and a controller for it."""

    def __init__(self, client, namespace):
        self.client = client
        self.namespace = namespace
        self.running = Running(client)
        self._servers = contextlib.AsyncExitStack()

    async def restart(self):
        """Stop the controller and start one that knows nothing."""
        await self.running.stop()
        self.running = Running(self.client)
        self.running.start()

    async def stop(self):
        await self.running.stop()
        await self._servers.aclose()

    async def create(self, resource, name, spec):
        kinds = {"apiVersion": resource.api_version, "kind": resource.kind}
        obj = {**kinds, "metadata": {"name": name}, "spec": spec}
        await self.client.create(resource, obj, self.namespace)

    async def serve(self, prometheus):
        """The URL of a server."""
        return (await self._servers.enter_async_context(ProviderServer(prometheus))).url

    async def provider(self, name, prometheus):
        spec = {"type": "prometheus", "targetServer": await self.serve(prometheus)}
        await self.create(METRICS_PROVIDERS, name, spec)

    async def template(self, name, query, provider):
        spec = {"provider": {"name": provider}, "query": query}
        await self.create(ANALYSIS_VALUE_TEMPLATES, name, spec)

    async def definition(self, *objectives, passing=90):
        spec = {
            "objectives": [
                {
                    "analysisValueTemplateRef": {"name": name, "namespace": self.namespace},
                    "target": target,
                    **fields,
                }
                for name, target, fields in objectives
            ],
            "totalScore": {"passPercentage": passing, "warningPercentage": 50},
        }
        await self.create(ANALYSIS_DEFINITIONS, "checks", spec)

    async def analysis(self, timeframe=None, **args):
        spec = {
            "timeframe": timeframe or TIMEFRAME,
            "analysisDefinition": {"name": "checks"},
            "args": args,
        }
        await self.create(ANALYSES, "release", spec)

    async def until(self, is_so):
        return await self.running.until(f"{self.namespace}/release", is_so)

    async def verdict(self):
        """The status as the API server has it."""
        await self.until(lambda status: status.state == "Completed")
        raw = await self.client.get(ANALYSES, "release", self.namespace)
        return json.loads(raw)["status"]

    def expected(self, results, total, maximum):
        """The JSON of a good verdict, the namespace put in."""
        text = (
            f'{{"objectiveResults":[{",".join(results)}],"totalScore":{total},'
            f'"maximumScore":{maximum},"pass":true,"warning":false}}'
        )
        return text.replace("NAMESPACE", self.namespace)


READY = (
    '{"result":{"failResult":{"operator":{"lessThan":{"fixedValue":"2"}},"fulfilled":false},'
    '"warnResult":{"operator":{"lessThan":{"fixedValue":"3"}},"fulfilled":false},'
    '"warning":false,"pass":true},'
    '"objective":{"analysisValueTemplateRef":{"name":"ready","namespace":"NAMESPACE"},'
    '"target":{"failure":{"lessThan":{"fixedValue":"2"}},'
    '"warning":{"lessThan":{"fixedValue":"3"}}},"weight":1},'
    '"value":4,"query":"sum(kube_pod_status_ready{namespace=\\"shop\\"})","score":1}'
)
QUERY = 'sum(kube_pod_status_ready{namespace="shop"})'
READY_OBJECTIVE = (
    "ready",
    {"failure": {"lessThan": {"fixedValue": 2}}, "warning": {"lessThan": {"fixedValue": 3}}},
    {"weight": 1, "keyObjective": False},
)


@pytest.fixture(scope="module")
def definitions(control_plane):
    """Our kinds, which stay."""
    control_plane.kubectl("apply", f"--kustomize={CRDS}")
    control_plane.kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd", "--all")


@pytest.fixture
async def world(control_plane, definitions, namespace):
    async with connected(control_plane.kubeconfig) as client:
        found = World(client, namespace)
        found.running.start()
        yield found
        await found.stop()


@pytest.fixture
async def ready(world):
    """What ``QUERY`` needs; the server is up."""
    world.prometheus = Prometheus(**{QUERY: "4"})
    await world.provider("prometheus", world.prometheus)
    query = 'sum(kube_pod_status_ready{namespace="{{.ns}}"})'
    await world.template("ready", query, "prometheus")
    return world


async def test_a_value_of_4_passes_with_the_very_json_of_keptn(ready):
    """As testanalysis/analysis-controller."""
    await ready.definition(READY_OBJECTIVE)
    await ready.analysis(ns="shop")
    assert await ready.verdict() == {
        "timeframe": TIMEFRAME,
        "state": "Completed",
        "pass": True,
        "raw": ready.expected([READY], 1, 1),
    }
    (form,) = ready.prometheus.forms
    assert form == {"query": QUERY, "start": f"{BEGIN}", "end": f"{BEGIN + 300}", "step": "300"}
    assert ready.running.events.told == [
        ("release", "AnalysisCompleted", "the analysis passed: 1 of 1 points, 100 %")
    ]
    labels = (("name", "release"), ("namespace", ready.namespace), *TIMEFRAME.items())
    assert ready.running.exposed("keptn_analysis_result")[labels] == 100


async def test_a_recent_span_ends_when_it_is_first_seen(ready):
    """As testanalysis/analysis-controller-with-duration-timeframe."""
    await ready.definition(READY_OBJECTIVE)
    await ready.analysis({"recent": "5m"}, ns="shop")
    status = await ready.verdict()
    assert status["pass"] is True
    (form,) = ready.prometheus.forms
    assert int(form["end"]) - int(form["start"]) == 300


async def test_three_providers_have_a_part_in_one_verdict(world):
    """As testanalysis/analysis-controller-multiple-providers."""
    for name, value in (("first", "11"), ("second", "20"), ("third", "30")):
        await world.provider(name, Prometheus(value=value))
        await world.template(name, "value", name)
    await world.definition(
        (
            "first",
            {
                "failure": {"lessThan": {"fixedValue": "5"}},
                "warning": {"lessThan": {"fixedValue": 4}},
            },
            {"weight": 2},
        ),
        (
            "second",
            {
                "failure": {"greaterThan": {"fixedValue": 20}},
                "warning": {"greaterThan": {"fixedValue": 15}},
            },
            {"weight": 1},
        ),
        ("third", {"failure": {"notInRange": {"lowBound": 25, "highBound": 35}}}, {}),
        passing=75,
    )
    await world.analysis()
    reference = '"objective":{"analysisValueTemplateRef":{"name":"%s","namespace":"NAMESPACE"},'
    results = [
        '{"result":{"failResult":{"operator":{"lessThan":{"fixedValue":"5"}},"fulfilled":false},'
        '"warnResult":{"operator":{"lessThan":{"fixedValue":"4"}},"fulfilled":false},'
        '"warning":false,"pass":true},' + reference % "first" + '"target":{'
        '"failure":{"lessThan":{"fixedValue":"5"}},"warning":{"lessThan":{"fixedValue":"4"}}},'
        '"weight":2},"value":11,"query":"value","score":2}',
        '{"result":{"failResult":{"operator":{"greaterThan":{"fixedValue":"20"}},'
        '"fulfilled":false},"warnResult":{"operator":{"greaterThan":{"fixedValue":"15"}},'
        '"fulfilled":true},"warning":true,"pass":false},' + reference % "second" + '"target":{'
        '"failure":{"greaterThan":{"fixedValue":"20"}},'
        '"warning":{"greaterThan":{"fixedValue":"15"}}},"weight":1},'
        '"value":20,"query":"value","score":0.5}',
        '{"result":{"failResult":{"operator":{"notInRange":{"lowBound":"25","highBound":"35"}},'
        '"fulfilled":false},"warnResult":{"operator":{},"fulfilled":false},'
        '"warning":false,"pass":true},' + reference % "third" + '"target":{'
        '"failure":{"notInRange":{"lowBound":"25","highBound":"35"}}},"weight":1},'
        '"value":30,"query":"value","score":1}',
    ]
    assert (await world.verdict())["raw"] == world.expected(results, 3.5, 4)


async def test_a_provider_that_is_down_is_asked_again_until_it_is_up(ready):
    """As testanalysis/analysis-controller-existing-status."""
    ready.prometheus.values = {}
    await ready.definition(READY_OBJECTIVE)
    await ready.analysis(ns="shop")
    status = await ready.until(lambda status: bool(status.stored_values))
    (key,) = status.stored_values
    stored = status.stored_values[key]
    assert key == f"ready-{ready.namespace}"
    assert stored.objective_reference.name == "ready"
    assert (stored.query, stored.value) == (QUERY, "")
    assert "503" in stored.err_msg
    assert status.state == "Progressing"
    asked = len(ready.prometheus.forms)
    ready.prometheus.values = {QUERY: "4"}
    status = await ready.verdict()
    assert status["raw"] == ready.expected([READY], 1, 1)
    assert "storedValues" not in status
    assert len(ready.prometheus.forms) == asked + 1


async def test_another_controller_asks_only_for_what_is_missing(ready):
    down = Prometheus()
    await ready.provider("down", down)
    await ready.template("late", "value", "down")
    await ready.definition(READY_OBJECTIVE, ("late", {}, {}))
    await ready.analysis(ns="shop")
    before = await ready.until(lambda status: len(status.stored_values) == 2)
    await ready.restart()
    down.values = {"value": "1"}
    status = await ready.verdict()
    assert status["pass"] is True
    assert msgspec.to_builtins(before.timeframe) == status["timeframe"]
    assert len(ready.prometheus.forms) == 1


async def test_what_is_missing_is_noticed_when_it_comes(ready):
    await ready.analysis(ns="shop")
    status = await ready.until(lambda status: status.state == "Pending")
    assert status.timeframe.from_ == TIMEFRAME["from"]
    await ready.definition(READY_OBJECTIVE, ("late", {}, {}))
    await ready.until(lambda status: bool(status.stored_values))
    static = {"type": "static", "static": {"metrics": {"cpus of shop": "500m"}}}
    await ready.create(METRICS_PROVIDERS, "static", static)
    await ready.template("late", "cpus of {{.ns}}", "static")
    results = json.loads((await ready.verdict())["raw"])["objectiveResults"]
    assert [each["value"] for each in results] == [4, 0.5]
    assert [reason for _, reason, _ in ready.running.events.told] == [
        "AnalysisDefinitionNotFound",
        "AnalysisValueMissing",
        "AnalysisCompleted",
    ]


@pytest.mark.parametrize(
    ("query", "args", "text"),
    [
        ("up{{.nobody}}", {}, "the query needs the argument 'nobody', which is not among the args"),
        ("up{{.ns}}", {"ns": '"} or vector(1)'}, "the argument 'ns' stands outside of quotes"),
        ("{{if .ns}}up{{end}}", {"ns": "x"}, "the query has the action '{{if .ns}}'"),
    ],
)
async def test_a_query_that_can_not_be_made_says_why_and_passes_nothing(ready, query, args, text):
    value = {"spec": {"query": query}}
    await ready.client.patch(ANALYSIS_VALUE_TEMPLATES, "ready", MergePatch(value), ready.namespace)
    await ready.definition(READY_OBJECTIVE)
    await ready.analysis(**args)
    status = await ready.until(lambda status: bool(status.stored_values))
    (stored,) = status.stored_values.values()
    assert stored.err_msg.startswith(text)
    assert (status.state, status.passed, status.raw) == ("Progressing", False, "")
    assert ready.prometheus.forms == []
