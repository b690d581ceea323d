"""A real Prometheus fetches what an endpoint shows, and answers as its users ask."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from urllib.parse import urlencode
from urllib.request import urlopen

import prometheus_client
import pytest
from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import CollectorRegistry

from harbourmaster.playground.errors import PlaygroundError
from harbourmaster.playground.prometheus import Prometheus

# A first build outlasts a test; for that of the fixture, conftest.py waits before the first one.
pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.usefixtures("prometheus")]
# An address without a listener.
NOWHERE = "http://127.0.0.1:9/metrics"


@pytest.fixture
async def berths(aiohttp_server):
    """The URL at which a server of aiohttp shows 3 free berths at one quay and 5 at another."""
    registry = CollectorRegistry()
    gauge = prometheus_client.Gauge("berths", "Free berths.", ["quay"], registry=registry)
    gauge.labels("east").set(3)
    gauge.labels("west").set(5)

    async def metrics(_):
        content = prometheus_client.generate_latest(registry)
        return web.Response(body=content, headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.router.add_get("/own/metrics", metrics)
    server = await aiohttp_server(app)
    return str(server.make_url("/own/metrics"))


def ask(server, path, **parameters):
    """The data of an answer of Prometheus' API, as any client gets it."""
    with urlopen(f"{server.url}/api/v1/{path}?{urlencode(parameters)}") as response:  # noqa: S310 -- ours
        answer = json.load(response)
    assert answer["status"] == "success"
    return answer["data"]


async def test_it_fetches_and_answers_both_kinds_of_query(tmp_path, berths):
    server = Prometheus(tmp_path, {"quays": berths}, interval="200ms")

    def look():
        with server:
            server.await_targets()
            now = time.time()
            instant = ask(server, "query", query="sum by (job) (berths)")
            ranged = ask(
                server, "query_range", query='berths{quay="west"}', start=now - 5, end=now, step=1
            )
        return instant, ranged

    instant, ranged = await asyncio.to_thread(look)
    assert instant["resultType"] == "vector"
    assert [series["metric"] for series in instant["result"]] == [{"job": "quays"}]
    assert instant["result"][0]["value"][1] == "8"
    assert ranged["resultType"] == "matrix"
    assert ranged["result"][0]["metric"]["quay"] == "west"
    assert {text for _, text in ranged["result"][0]["values"]} == {"5"}


def test_what_was_measured_outlives_a_restart(tmp_path):
    server = Prometheus(tmp_path, {"nobody": NOWHERE})
    with server:
        pid = server.pid
        asked = {"start": time.time() - 60, "end": time.time() + 60, "step": 1}
        deadline = time.monotonic() + 20
        while not server.query("up"):
            assert time.monotonic() < deadline
    with server:
        assert server.pid != pid
        assert ask(server, "query_range", query="up", **asked)["result"]


def test_a_target_that_does_not_answer_is_named(tmp_path, monkeypatch):
    with Prometheus(tmp_path, {"nobody": NOWHERE}, interval="200ms") as server:
        monkeypatch.setattr("harbourmaster.playground.prometheus.READY_SECONDS", 1)
        said = r"not ready after 1 s \(it has nothing of nobody\)"
        with pytest.raises(PlaygroundError, match=said):
            server.await_targets()


def test_a_query_with_a_fault_is_refused_with_its_reason(prometheus):
    with pytest.raises(PlaygroundError, match=r"refuses sum\(: .*parse error"):
        prometheus.server.query("sum(")


def test_a_second_start_in_one_folder_is_refused(tmp_path):
    with (
        Prometheus(tmp_path, {}),
        pytest.raises(PlaygroundError, match="an earlier prometheus is still running"),
    ):
        Prometheus(tmp_path, {}).start()


def test_one_that_ends_says_so_with_the_end_of_its_log(tmp_path):
    with Prometheus(tmp_path, {"nobody": NOWHERE}) as server:
        os.kill(server.pid, signal.SIGKILL)
        with pytest.raises(PlaygroundError, match=r"prometheus ended with exit code -9: see "):
            server.await_targets()
