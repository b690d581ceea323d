"""The controller of metrics on a fake API server."""

from __future__ import annotations

import asyncio

import pytest

from harbourmaster.api.resources import DEFINITIONS, KEPTN_METRICS, METRICS_PROVIDERS
from helpers.namespaces import MetricsNamespace
from helpers.scripted_prometheus import HUNG, ScriptedPrometheus

STATIC = {"metrics": {"cpus": 4, "more": 5}}


@pytest.fixture
def world(client):
    return MetricsNamespace(client, "prod")


def define(api, resource):
    """Serve a kind, and say so."""
    name = f"{resource.plural}.{resource.group}"
    status = {"conditions": [{"type": "Established", "status": "True"}]}
    api.define(resource)
    api.put(DEFINITIONS, {"metadata": {"name": name}, "status": status})


async def test_a_metric_has_its_value(world):
    async with world.control():
        await world.provider(kind="static", static=STATIC)
        await world.metric()
        await world.until_value("4")
        await world.edit(spec={"query": "more"})
        await world.until_value("5")


@pytest.mark.parametrize("absent", [(KEPTN_METRICS,), (KEPTN_METRICS, METRICS_PROVIDERS)])
async def test_kinds_may_be_absent_and_come(api, world, absent):
    for resource in absent:
        api.undefine(resource)
    async with world.control() as controller:
        for reflector in controller.caches.reflectors:
            await reflector.synced.wait()
        for resource in absent:
            define(api, resource)
        await world.provider(kind="static", static=STATIC)
        await world.metric()
        await world.until_value("4")


@pytest.mark.slow
async def test_kinds_may_go_and_come_again(api, world):
    async with world.control():
        await world.provider(kind="static", static=STATIC)
        await world.metric()
        await world.until_value("4")
        api.undefine(KEPTN_METRICS)
        await api.until_seen("list", "/keptnmetrics$", 2)
        define(api, KEPTN_METRICS)
        await world.metric("more")
        await world.until_value("5")


async def test_no_question_outlives_the_term(world):
    async with ScriptedPrometheus() as server:
        async with world.control():
            await world.provider(server.url)
            await world.metric(HUNG)
            await server.until_seen(HUNG)
            assert running_queries()
        await asyncio.sleep(0)
        assert running_queries() == []


def running_queries():
    names = (task.get_coro().__qualname__ for task in asyncio.all_tasks())
    return [name for name in names if name.startswith(("SharedQueries.", "QueryClient."))]
