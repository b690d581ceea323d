from __future__ import annotations

import json
import random

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from harbourmaster.controller.evaluation.collectors import AnalysisCollector, AnalysisResults
from harbourmaster.controller.exposure import plain
from harbourmaster.controller.exposure.plain import PlainHandler, gauge_name, render
from harbourmaster.serving.site import Site
from helpers.exposure import metric, mirror, since, values
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
        await connection.drop()
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
    answer = await connection.rest()
    assert answer.startswith(b"HTTP/1.1 405 ")
    assert b"\r\nAllow: GET\r\n" in answer
    await connection.drop()


async def test_a_body_that_never_comes_is_not_waited_for(ask):
    get = await ask(metric("cpu", "10"))
    connection = await Connection.open(get.site)
    answer = await connection.ask(post(b"", length=10**9, path="/metrics"))
    assert answer.status == 405
    await connection.drop()


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


def render_metrics(*metrics):
    return render(values(*metrics).all()).decode()


def samples(text):
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_each_metric_is_a_gauge_in_keptn_s_shape():
    assert render_metrics(metric("podtatometric", "10"), metric("available-cpus", "0.25")) == (
        "# HELP available_cpus available-cpus\n"
        "# TYPE available_cpus gauge\n"
        "available_cpus 0.25\n"
        "# HELP podtatometric podtatometric\n"
        "# TYPE podtatometric gauge\n"
        "podtatometric 10\n"
    )


def test_nothing_is_a_valid_text():
    assert render_metrics() == ""


def test_what_has_no_value_or_an_old_one_is_not_shown_at_all():
    assert (
        render_metrics(metric("cpu"), metric("memory", "5", age=3600), metric("disk", "NaN")) == ""
    )


@pytest.mark.parametrize(
    ("name", "gauge"),
    [("5xx-rate", "_5xx_rate"), ("a.b-c", "a_b_c"), ("plain", "plain"), ("0", "_0")],
)
def test_names_become_prometheus_names(name, gauge):
    assert gauge_name(name) == gauge


@pytest.mark.parametrize(
    ("text", "shown"),
    [("500m", "0.5"), ("1k", "1000"), ("-3", "-3"), ("1e3", "1000"), ("2Gi", "2147483648")],
)
def test_quantities_become_numbers(text, shown):
    assert render_metrics(metric("cpu", text)).endswith(f"\ncpu {shown}\n")


def test_metrics_of_one_name_are_told_apart_by_labels():
    text = render_metrics(
        metric("cpu", "1"),
        metric("cpu", "2", namespace="dev"),
        metric("a-b", "3"),
        metric("a.b", "4"),
    )
    assert samples(text) == {
        ("cpu", ("name", "cpu"), ("namespace", "prod")): 1,
        ("cpu", ("name", "cpu"), ("namespace", "dev")): 2,
        ("a_b", ("name", "a-b"), ("namespace", "prod")): 3,
        ("a_b", ("name", "a.b"), ("namespace", "prod")): 4,
    }
    assert text.count("# TYPE cpu ") == text.count("# TYPE a_b ") == 1


def test_a_metric_keeps_its_labels_while_another_of_its_name_has_no_value():
    text = render_metrics(metric("cpu", "1"), metric("cpu", namespace="dev"))
    assert samples(text) == {("cpu", ("name", "cpu"), ("namespace", "prod")): 1}


def test_whatever_the_names_the_text_is_valid_and_holds_every_value_once():
    chosen = random.Random(7)  # noqa: S311 - the same names each time
    made = {}
    for number in range(500):
        name = "".join(chosen.choice("ab0.-") for _ in range(3))
        name = f"x{name}x" if name[0] in ".-" or name[-1] in ".-" else name
        namespace = chosen.choice(["prod", "dev"])
        made[namespace, name] = metric(name, str(number), namespace=namespace)
    by_name = samples(render_metrics(*made.values()))
    assert sorted(by_name.values()) == sorted(
        float(obj["status"]["value"]) for obj in made.values()
    )


def test_the_order_of_the_mirror_makes_no_difference():
    metrics = [metric(name, "1", namespace=namespace) for name in "abc" for namespace in ("x", "y")]
    assert render_metrics(*metrics) == render_metrics(*reversed(metrics))


def test_a_value_is_shown_as_it_was_said_with_its_time():
    prod = values(metric("cpu", "0.50", age=3)).get("prod", "cpu")
    assert (prod.text, float(prod.quantity), prod.time) == ("0.50", 0.5, since(3))


@pytest.mark.parametrize(
    "text", ["NaN", "Inf", "ten", "1e999", "0x10", "1 2", "\N{ARABIC-INDIC DIGIT ONE}"]
)
def test_what_is_no_number_is_no_value(text):
    assert values(metric("cpu", text)).get("prod", "cpu") is None


def test_without_a_value_there_is_none():
    assert values(metric("cpu")).get("prod", "cpu") is None
    assert values().get("prod", "cpu") is None


@pytest.mark.parametrize(("age", "is_shown"), [(30, True), (31, False), (-31, False)])
def test_a_value_counts_for_two_intervals_and_ten_seconds(age, is_shown):
    assert (values(metric("cpu", "1", age=age)).get("prod", "cpu") is not None) is is_shown


def test_of_stored_results_the_newest_counts():
    stored = metric("cpu", results=[("1", 20), ("2", 10)])
    assert values(stored).get("prod", "cpu").text == "2"


def test_a_namespace_has_its_own_values_by_name():
    exposed = values(
        metric("b", "1"), metric("a", "2"), metric("c"), metric("a", "3", namespace="dev")
    )
    assert [value.text for value in exposed.within("prod")] == ["2", "1"]
