"""KeptnMetrics on the real API server, fetched from a server that says whatever a test wants."""

from __future__ import annotations

import base64
import time

import pytest

from helpers.cluster import (
    delete_namespace,
    fresh_namespace,
)
from helpers.namespaces import MetricsNamespace, moment
from helpers.scripted_prometheus import Said, ScriptedPrometheus, matrix, vector

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.slow]

PASSWORD = "8c1f-hidden"  # noqa: S105 - not a real one


@pytest.fixture
async def server():
    async with ScriptedPrometheus() as prometheus:
        yield prometheus


@pytest.fixture
async def controlled(admin, namespace):
    metrics_namespace = MetricsNamespace(admin, namespace)
    async with metrics_namespace.control():
        yield metrics_namespace


async def test_a_metric_is_fetched_at_once(controlled, server, kubectl):
    server.say["cpus"] = vector("0.25")
    await controlled.provider(server.url)
    before = time.time()
    await controlled.metric()
    await controlled.until_value("0.25")
    status = (await controlled.stored_metric())["status"]
    assert base64.b64decode(status.pop("rawValue")) == b'"0.25"'
    assert int(before) <= moment(status.pop("lastUpdated")) <= time.time()
    del status["question"]
    assert status == {"value": "0.25"}
    assert server.forms["cpus"][0]["path"] == "/api/v1/query"
    result = kubectl("get", "keptnmetric", "cpus", f"-n={controlled.namespace}")
    assert result.stdout.splitlines()[1].split() == ["cpus", "prometheus", "cpus", "0.25"]
    assert controlled.reasons_of("cpus") == []


async def test_c93_of_five_fetches_three_results_are_stored(controlled, server):
    await controlled.provider(server.url)
    server.say["cpus"] = lambda: matrix(str(len(server.seen["cpus"])))
    span = {"interval": "3m", "storedResults": 3}
    await controlled.metric(fetchIntervalSeconds=1, range=span)
    await controlled.until(
        lambda status: status.interval_results and int(status.interval_results[-1].value) >= 5
    )
    status = (await controlled.stored_metric())["status"]
    assert list(status) == ["intervalResults", "question"]
    values = [int(result["value"]) for result in status["intervalResults"]]
    assert len(values) == 3
    assert values == sorted(values)
    assert status["intervalResults"][-1]["range"] == span


def page():
    return Said(b"<html>a portal</html>", headers={"Content-Type": "text/html"})


@pytest.mark.parametrize(
    ("said", "text"),
    [
        pytest.param(vector("NaN"), "the value is NaN, expected a finite number", id="nan"),
        pytest.param(page(), "text/html instead of JSON", id="portal"),
        pytest.param(Said(b"", 401), "rejected the credentials (HTTP 401)", id="unauthorised"),
        pytest.param(Said(b" " * 2_000_000, cut=True), "has more than 1048576 bytes", id="large"),
    ],
)
async def test_a_bad_answer_is_said(controlled, server, said, text):
    server.say["cpus"] = said
    await controlled.secret(user="a", password=PASSWORD)
    await controlled.provider(server.url, secretKeyRef={"name": "login", "key": "any"})
    await controlled.metric()
    fault = await controlled.until_fault()
    assert text in fault
    assert len(fault.splitlines()) == 1
    assert len(fault) < 400
    assert list((await controlled.stored_metric())["status"]) == ["errMsg"]
    assert PASSWORD not in f"{fault}{controlled.events.sent}"


async def test_a_redirect_to_the_api_server_is_not_followed(controlled, server, control_plane):
    await controlled.secret(user="a", password=PASSWORD)
    secrets = f"{control_plane.server}/api/v1/secrets"
    server.say["cpus"] = Said(b"", 302, {"Location": secrets})
    await controlled.provider(server.url, secretKeyRef={"name": "login", "key": "any"})
    await controlled.metric()
    fault = await controlled.until_fault("redirect")
    assert "secrets" not in fault
    assert PASSWORD not in fault


async def test_a_provider_of_another_namespace_is_none(controlled, server, kubectl, request):
    foreign = fresh_namespace(kubectl, f"{request.node.name}-other")
    there = MetricsNamespace(controlled.client, foreign)
    await there.provider(server.url)
    await controlled.metric()
    assert (
        await controlled.until_fault()
        == f"KeptnMetricsProvider {controlled.namespace}/prometheus not found"
    )
    delete_namespace(kubectl, foreign)
