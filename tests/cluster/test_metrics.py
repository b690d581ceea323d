"""KeptnMetrics on the real API server, fetched from a server that says whatever a test wants."""

from __future__ import annotations

import asyncio
import base64
import time

import pytest

from harbourmaster.api.resources import METRICS_PROVIDERS
from helpers.cluster import (
    delete_namespace,
    fresh_namespace,
)
from helpers.controller import connected
from helpers.metrics_namespace import MetricsNamespace, moment
from helpers.patience import WAIT
from helpers.scripted_prometheus import Said, ScriptedPrometheus, matrix, vector

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.slow]

PASSWORD = "8c1f-hidden"  # noqa: S105 - nobody's


@pytest.fixture
async def server():
    async with ScriptedPrometheus() as found:
        yield found


@pytest.fixture
async def world(request, control_plane):
    kubectl = control_plane.kubectl
    name = fresh_namespace(kubectl, request.node.name)
    async with connected(control_plane.kubeconfig) as client:
        yield MetricsNamespace(client, name)
    delete_namespace(kubectl, name)


@pytest.fixture
async def controlled(world):
    async with world.controlled():
        yield world


async def test_a_metric_is_fetched_at_once(controlled, server, kubectl):
    server.say["cpus"] = vector("0.25")
    await controlled.provider(server.url)
    before = time.time()
    await controlled.metric()
    await controlled.until_value("0.25")
    status = (await controlled.stored())["status"]
    assert base64.b64decode(status.pop("rawValue")) == b'"0.25"'
    assert int(before) <= moment(status.pop("lastUpdated")) <= time.time()
    del status["question"]
    assert status == {"value": "0.25"}
    assert server.forms["cpus"][0]["path"] == "/api/v1/query"
    found = kubectl("get", "keptnmetric", "cpus", f"-n={controlled.namespace}")
    assert found.stdout.splitlines()[1].split() == ["cpus", "prometheus", "cpus", "0.25"]
    assert controlled.reasons() == []


async def test_a_metric_is_fetched_in_each_interval(controlled, server):
    await controlled.provider(server.url)
    await controlled.metric(fetchIntervalSeconds=1)
    await server.until_seen("cpus", 4)
    times = server.seen["cpus"]
    # The first is at once; from the second on they are in their slots.
    assert times[3] - times[1] == pytest.approx(2, abs=0.5)
    await controlled.until_value("4")


async def test_a_static_metric(controlled):
    await controlled.provider(kind="static", static={"metrics": {"cpus": "500m", "pods": 7}})
    await controlled.metric()
    await controlled.metric("pods", name="pods")
    assert (await controlled.until(lambda status: status.value)).value in {"500m", "0.5"}
    await controlled.until_value("7", "pods")


async def test_c93_of_five_fetches_three_results_are_stored(controlled, server):
    await controlled.provider(server.url)
    server.say["cpus"] = lambda: matrix(str(len(server.seen["cpus"])))
    span = {"interval": "3m", "storedResults": 3}
    await controlled.metric(fetchIntervalSeconds=1, range=span)
    await controlled.until(
        lambda status: status.interval_results and int(status.interval_results[-1].value) >= 5
    )
    status = (await controlled.stored())["status"]
    assert list(status) == ["intervalResults", "question"]
    values = [int(each["value"]) for each in status["intervalResults"]]
    assert len(values) == 3
    assert values == sorted(values)
    assert status["intervalResults"][-1]["range"] == span


async def test_c94_a_percentile_of_a_range(controlled, server):
    server.say["cpus"] = matrix("5", "1", "4", "2", "3")
    await controlled.provider(server.url)
    await controlled.metric(range={"interval": "5m", "step": "1m", "aggregation": "p90"})
    await controlled.until_value("5")
    (form,) = server.forms["cpus"]
    assert (form["path"], form["step"]) == ("/api/v1/query_range", "60")
    assert float(form["end"]) - float(form["start"]) == pytest.approx(300)
    assert float(form["end"]) == pytest.approx(time.time(), abs=30)


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
    assert list((await controlled.stored())["status"]) == ["errMsg"]
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


async def test_a_secret_or_its_keys_that_are_missing_are_said(controlled, server):
    await controlled.provider(server.url, secretKeyRef={"name": "login", "key": "any"})
    await controlled.metric()
    assert await controlled.until_fault() == "secret login not found"
    await controlled.secret(user="a", token=PASSWORD)
    # Nobody watches Secrets; a change of the provider has the metric looked at.
    await asyncio.sleep(5)
    await controlled.edit(METRICS_PROVIDERS, "prometheus", spec={"insecureSkipTlsVerify": True})
    fault = await controlled.until_fault("key")
    assert fault == "secret key does not contain user and password"
    assert server.seen["cpus"] == []


async def test_credentials_may_be_renewed_at_any_time(controlled, server):
    def guarded():
        login = base64.b64encode(f"a:{wanted}".encode()).decode()
        return vector(wanted[-1]) if server.logins[-1] == f"Basic {login}" else Said(b"", 401)

    server.say["cpus"] = guarded
    wanted = f"{PASSWORD}-1"
    await controlled.secret(user="a", password=wanted)
    await controlled.provider(server.url, secretKeyRef={"name": "login", "key": "any"})
    await controlled.metric(fetchIntervalSeconds=1)
    await controlled.until_value("1")
    # Longer than it is taken for what was just read.
    await asyncio.sleep(5)
    wanted = f"{PASSWORD}-2"
    await controlled.secret(user="a", password=wanted)
    await controlled.until_value("2")
    assert PASSWORD not in str(controlled.events.sent)


async def test_a_provider_may_come_late(controlled, server):
    await controlled.metric()
    assert await controlled.until_fault() == "provider prometheus not found"
    await controlled.provider(server.url)
    await controlled.until_value("1")
    await controlled.until_told("MetricFetchFailed", "MetricFetched")


async def test_a_provider_of_another_namespace_is_none(controlled, server, kubectl, request):
    other = fresh_namespace(kubectl, f"{request.node.name}-other")
    there = MetricsNamespace(controlled.client, other)
    await there.provider(server.url)
    await controlled.metric()
    assert await controlled.until_fault() == "provider prometheus not found"
    delete_namespace(kubectl, other)


async def test_a_namespace_that_ends_takes_its_metrics_along(controlled, server, kubectl):
    await controlled.provider(server.url)
    await controlled.metric(fetchIntervalSeconds=1)
    await controlled.until_value("2")
    kubectl("delete", "keptnmetric", "cpus", f"-n={controlled.namespace}", WAIT)
    asked = len(server.seen["cpus"])
    await asyncio.sleep(2.5)
    assert len(server.seen["cpus"]) <= asked + 1
