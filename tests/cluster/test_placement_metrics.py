"""Two members that differ by the value of one metric alone, with a real Prometheus."""

from __future__ import annotations

import asyncio

import pytest

from harbourmaster.api.resources import CLUSTERS, GLOBAL_METRICS, GLOBAL_PROVIDERS
from harbourmaster.cli import main as cli
from helpers.placement_flow import config_map, flow_in

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture
async def flow(request, control_plane):
    async with flow_in(control_plane, request.node.name) as flow, flow.watching():
        yield flow


async def give(flow, scraped, **values):
    """Give members values of the metric, at the same time."""
    await asyncio.gather(
        *(
            asyncio.to_thread(scraped.set, flow.query("carbon"), value, cluster=name)
            for name, value in values.items()
        )
    )


def shown(status):
    """The value of each candidate, as the decision's record has it."""
    return {
        candidate["cluster"]: candidate["terms"][0]["value"]
        for candidate in status["lastDecision"]["candidates"]
    }


@pytest.mark.parametrize(
    "source",
    [
        {"metric": "avg by (cluster) (CARBON)", "byLabel": "cluster"},
        {"metric": 'avg(CARBON{cluster="$(cluster.name)"})'},
        {"metric": 'avg(CARBON{cluster="$(cluster.labels.site)"})'},
    ],
    ids=["label", "name", "labels"],
)
async def test_it_follows_the_value_of_the_clusters(flow, planes, members, scraped, capsys, source):
    first, two = members
    provider, metric = f"{flow.namespace}-prometheus", flow.metric_name("carbon")
    url = {"type": "prometheus", "prometheus": {"url": scraped.url}}
    await flow.make(GLOBAL_PROVIDERS, provider, url)
    query = source["metric"].replace("CARBON", flow.query("carbon"))
    source = {**source, "name": provider, "metric": query}
    await flow.make(GLOBAL_METRICS, metric, {"min": 0, "max": 1, "provider": source})
    await give(flow, scraped, one=0.9, two=0.2)
    async with flow.placing():
        for name, plane in zip(("one", "two"), planes, strict=True):
            await flow.cluster(name, plane, metrics=flow.weights(carbon=1))
            await flow.change(CLUSTERS, name, {"metadata": {"labels": {"site": name}}})
        await flow.until_online("one", "two")
        await flow.application(config_map("first", first.namespace))
        await flow.until_running("one")
        assert shown((await flow.fetch())["status"]) == {"one": 0.9, "two": 0.2}
        await give(flow, scraped, one=0.2, two=0.9)
        await flow.until_running("two")
        status = (await flow.fetch())["status"]
        assert status["lastDecision"]["outcome"] == "Moved"
        assert shown(status) == {"one": 0.2, "two": 0.9}
        assert await first.names() == set()
        assert await two.names() == {"first"}
        assert await asyncio.to_thread(cli.main, flow.why()) == 0
        told = capsys.readouterr().out
        assert "  * two: 0.9\n" in told
        assert f"{metric} 0.2" in told
