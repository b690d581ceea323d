from __future__ import annotations

import json

import pytest
from prometheus_client import CollectorRegistry

from harbourmaster.controller.evaluation.collectors import AnalysisCollector, AnalysisResults
from harbourmaster.controller.exposure import plain
from harbourmaster.controller.exposure.plain import PlainHandler
from harbourmaster.serving.site import Site
from helpers.exposure import metric, mirror, values
from helpers.raw_http import Connection, post

NOTHING = CollectorRegistry()


@pytest.fixture
async def ask():
    """Return a function that starts a port for metrics and returns what asks it for a path."""
    sites, connections = [], []

    async def start(*metrics):
        site = Site(PlainHandler(values(*metrics), NOTHING), host="127.0.0.1", port=0)
        sites.append(site)
        await site.start()
        connection = await Connection.open(site)
        connections.append(connection)

        async def get(path, method="GET"):
            return await connection.ask(f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())

        get.site = site
        return get

    yield start
    for connection in connections:
        await connection.gone()
    for site in sites:
        await site.stop()


async def test_the_values_are_a_page_for_prometheus(ask):
    get = await ask(metric("cpu", "10"))
    answer = await get("/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert answer.body == b"# HELP cpu cpu\n# TYPE cpu gauge\ncpu 10\n"
    assert "server" not in answer.headers


async def test_a_value_is_told_as_keptn_tells_it(ask):
    get = await ask(metric("cpu", "10"))
    answer = await get("/api/v1/metrics/prod/cpu")
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert json.loads(answer.body) == {"metric": "cpu", "namespace": "prod", "value": "10"}


@pytest.mark.parametrize("path", ["prod/other", "dev/cpu", "prod/none", "prod/old", "prod/c%2Fpu"])
async def test_what_has_no_value_is_404_with_nothing_in_it(ask, path):
    get = await ask(metric("cpu", "10"), metric("none"), metric("old", "10", age=999))
    answer = await get(f"/api/v1/metrics/{path}")
    assert (answer.status, answer.body) == (404, b"")


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/metric",
        "/metrics/x",
        "//metrics",
        "/api/v1/metrics",
        "/api/v1/metrics/prod",
        "/api/v1/metrics/prod/cpu/x",
        "/api/v1/metrics/prod%2Fcpu",
        "/api/v1/../v1/metrics/prod/cpu",
        "/%6detrics/%00",
        "/%ff",
        "http://other/x",
        "/" + "a" * 4000,
    ],
)
async def test_other_paths_are_refused(ask, path):
    get = await ask(metric("cpu", "10"))
    answer = await get(path)
    assert answer.status == 404
    assert answer.body.startswith(b"404: ")
    assert answer.body.count(b"\n") == 1


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"])
@pytest.mark.parametrize("path", ["/metrics", "/api/v1/metrics/prod/cpu"])
async def test_other_methods_are_refused(ask, path, method):
    get = await ask(metric("cpu", "10"))
    connection = await Connection.open(get.site)
    connection.send(f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    answer = await connection.closed()
    assert answer.startswith(b"HTTP/1.1 405 ")
    assert b"\r\nAllow: GET\r\n" in answer
    await connection.gone()


async def test_a_body_that_never_comes_is_not_waited_for(ask):
    get = await ask(metric("cpu", "10"))
    connection = await Connection.open(get.site)
    answer = await connection.ask(post(b"", length=10**9, path="/metrics"))
    assert answer.status == 405
    await connection.gone()


async def test_results_of_analyses_are_on_the_page_and_no_metric_takes_their_name():
    of = ("up", "quality", "release", "prod", "false", "1", "a", "b")
    results = AnalysisCollector()
    results.set_source(lambda: AnalysisResults({("release", "prod", "a", "b"): 75}, {of: 0.5}))
    shown = values(metric("cpu", "10"), metric("keptn-analysis-result", "1"))
    lines = PlainHandler(shown, results)._metrics_page().body.decode().splitlines()
    labels = 'analysis_name="release",analysis_namespace="prod",from="a",key_objective="false"'
    assert [line for line in lines if not line.startswith("#")] == [
        "cpu 10",
        'keptn_analysis_result{from="a",name="release",namespace="prod",to="b"} 75.0',
        f'keptn_objective_result{{{labels},name="up",namespace="quality",to="b",weight="1"}} 0.5',
    ]


async def test_many_who_ask_are_given_one_page(monkeypatch, ask):
    rendered = []
    original = plain.render
    monkeypatch.setattr(plain, "HELD", 60.0)
    monkeypatch.setattr(plain, "render", lambda metrics: rendered.append(1) or original(metrics))
    get = await ask(metric("cpu", "10"))
    pages = {(await get("/metrics")).body for _ in range(20)}
    assert len(pages) == len(rendered) == 1


async def test_a_page_is_rendered_anew_when_its_time_is_over(monkeypatch):
    monkeypatch.setattr(plain, "HELD", 0.0)
    store = mirror(metric("cpu", "10"))
    shown = values()
    shown._store = store
    handler = PlainHandler(shown, NOTHING)
    assert b"cpu 10" in handler._metrics_page().body
    store.remove("prod/cpu")
    assert handler._metrics_page().body == b""
