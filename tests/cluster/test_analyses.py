"""Analyses on the real API server, with providers that a server on loopback plays.

Objects pass the real schema, values a real HTTP client, and verdicts come back by the watch.
"""

from __future__ import annotations

import pytest

from harbourmaster.api.resources import (
    ANALYSES,
    ANALYSIS_DEFINITIONS,
    ANALYSIS_VALUE_TEMPLATES,
)
from helpers.namespaces import MetricsNamespace
from helpers.processes import client_of
from helpers.scripted_prometheus import ScriptedPrometheus, matrix

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.slow]

TIMEFRAME = {"from": "2026-03-01T11:55:00Z", "to": "2026-03-01T12:00:00Z"}
BEGIN = 1772366100


class AnalysesNamespace(MetricsNamespace):
    """A namespace with analyses, and a controller for it."""

    def say(self, query, value):
        """Let the server answer a query with one sample at the beginning of what is asked for."""

        def said():
            return matrix(value, at=float(self.server.forms[query][-1]["start"]))

        self.server.say[query] = said

    async def template(self, name, query, provider):
        spec = {"provider": {"name": provider}, "query": query}
        await self._create(ANALYSIS_VALUE_TEMPLATES, name, spec)

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
        await self._create(ANALYSIS_DEFINITIONS, "checks", spec)

    async def analysis(self, timeframe=None, **args):
        definition = {"name": "checks"}
        spec = {"timeframe": timeframe or TIMEFRAME, "analysisDefinition": definition, "args": args}
        await self._create(ANALYSES, "release", spec)

    async def until_release(self, is_so):
        """Wait until the status of the analysis is so; return it."""
        return await self.until_status(self.controller.caches.analyses, "release", is_so)

    async def verdict(self):
        """The status as the API server has it."""
        await self.until_release(lambda status: status.state == "Completed")
        return (await self.get(ANALYSES, "release"))["status"]

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


@pytest.fixture
async def world(control_plane, namespace):
    async with client_of(control_plane.kubeconfig) as client, ScriptedPrometheus() as server:
        analyses_namespace = AnalysesNamespace(client, namespace)
        analyses_namespace.server = server
        async with analyses_namespace.control():
            yield analyses_namespace


@pytest.fixture
async def ready(world):
    """A world whose server is up, with the provider and the template that ``QUERY`` needs."""
    world.say(QUERY, "4")
    await world.provider(world.server.url)
    query = 'sum(kube_pod_status_ready{namespace="{{.ns}}"})'
    await world.template("ready", query, "prometheus")
    return world


async def test_a_value_of_4_passes_with_the_very_json_of_keptn(ready):
    """The case is Keptn's testanalysis/analysis-controller."""
    await ready.definition(READY_OBJECTIVE)
    await ready.analysis(ns="shop")
    assert await ready.verdict() == {
        "timeframe": TIMEFRAME,
        "state": "Completed",
        "pass": True,
        "raw": ready.expected([READY], 1, 1),
    }
    (form,) = ready.server.forms[QUERY]
    assert form == {
        "path": "/api/v1/query_range",
        "query": QUERY,
        "start": f"{BEGIN}",
        "end": f"{BEGIN + 300}",
        "step": "300",
    }
    assert [(name, reason, note) for _, name, _, reason, note in ready.events.sent] == [
        ("release", "AnalysisCompleted", "the analysis passed: 1 of 1 points, 100 %")
    ]
    samples = next(
        family.samples
        for family in ready.metrics.registry.collect()
        if family.name == "keptn_analysis_result"
    )
    labels = {"name": "release", "namespace": ready.namespace, **TIMEFRAME}
    assert [sample.value for sample in samples if sample.labels == labels] == [100]


async def test_a_recent_span_ends_when_it_is_first_seen(ready):
    """The case is Keptn's testanalysis/analysis-controller-with-duration-timeframe."""
    await ready.definition(READY_OBJECTIVE)
    await ready.analysis({"recent": "5m"}, ns="shop")
    status = await ready.verdict()
    assert status["pass"] is True
    (form,) = ready.server.forms[QUERY]
    assert int(form["end"]) - int(form["start"]) == 300
