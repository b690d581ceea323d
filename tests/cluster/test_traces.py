"""The API server's trace goes on in ours."""

from __future__ import annotations

import asyncio
import contextlib
import json

import aiohttp
import pytest

from harbourmaster.playground import api as playground_api
from helpers.cluster import bare_pod, eventually, keep_registered, webhook_configuration
from helpers.objects import cluster_policy
from helpers.patience import PATIENCE
from helpers.server import Server
from helpers.tracing import SAMPLED, SPAN, TRACE, Collector, attributes

NAMESPACE = "default"
ALL = 1_000_000
"""Requests of a million that the API server traces."""


@pytest.fixture
def plane_with(throwaway_control_plane, tmp_path):
    """Return a function that starts a control plane that traces so many of a million requests.

    None is one that is not told to trace.
    """

    def start(rate):
        if rate is None:
            return throwaway_control_plane(optional=())
        configuration = tmp_path / "tracing.yaml"
        # The API server's own spans go nowhere, which only its log mentions.
        content = {
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "TracingConfiguration",
            "endpoint": "127.0.0.1:9",
            "samplingRatePerMillion": rate,
        }
        configuration.write_text(json.dumps(content))
        return throwaway_control_plane(
            optional=(), flags=(f"--tracing-config-file={configuration}",)
        )

    return start


@pytest.fixture
async def collector():
    async with Collector() as collector:
        yield collector


def pod(name):
    return bare_pod(name, {"namespace": NAMESPACE, "labels": {"app": "traced"}})


async def create_pod(plane, name, headers=None):
    """Create a pod as administrator, whose trace the API server trusts."""
    connector = aiohttp.TCPConnector(
        ssl=playground_api.client_context(plane.layout.pki, "admin"), force_close=True
    )
    async with (
        aiohttp.ClientSession(plane.server, connector=connector, headers=headers) as session,
        session.post(f"/api/v1/namespaces/{NAMESPACE}/pods", json=pod(name)) as answer,
    ):
        assert answer.status == 201, await answer.text()


@contextlib.asynccontextmanager
async def run_server(plane, directory, collector, *options):
    """A server that traces, when the API server asks it about pods."""
    policy = cluster_policy("traced", pods={"app": "traced"}, nodeSelector={"disk": "ssd"})

    def try_pod():
        manifest = json.dumps(pod("tried"))
        result = plane.kubectl("create", "--dry-run=server", "-o=json", "-f=-", stdin=manifest)
        return json.loads(result.stdout)["spec"].get("nodeSelector")

    endpoint = f"--tracing-endpoint={collector.url}"
    server = await asyncio.to_thread(
        lambda: Server(directory, endpoint, *options, policies=[policy])
    )
    with server:
        configuration = webhook_configuration("Mutating", server.url, server.bundle)
        with keep_registered(plane.kubectl, configuration):
            await asyncio.to_thread(eventually, try_pod)
            yield server


async def test_a_traced_request_to_the_api_server_has_our_review_in_its_trace(
    plane_with, collector, tmp_path
):
    plane = await asyncio.to_thread(plane_with, ALL)
    async with (
        run_server(plane, tmp_path / "server", collector) as server,
        asyncio.timeout(PATIENCE),
    ):
        await create_pod(plane, "given", {"traceparent": SAMPLED, "tracestate": "vendor=1"})
        span, resource = await collector.until(lambda obj: obj.trace_id.hex() == TRACE)
        line = await asyncio.to_thread(server.await_event, "mutated", trace_id=TRACE)
        # What brings no trace is traced by the API server, and so by us.
        await create_pod(plane, "own")
        own = await asyncio.to_thread(server.await_event, "mutated", name="own")
        second, _ = await collector.until(lambda obj: obj.trace_id.hex() == own["trace_id"])
    # Between the client's span and ours stand the API server's own.
    assert span.parent_span_id.hex() not in {"", SPAN}
    assert span.trace_state == "vendor=1"
    assert attributes(span)["harbourmaster.outcome"] == "mutated"
    assert attributes(span)["harbourmaster.review.uid"] == line["uid"]
    assert line["name"] == "given"
    assert resource["service.name"] == "harbourmaster-webhook"
    assert second.parent_span_id
    assert second.trace_id != span.trace_id


@pytest.mark.parametrize(("rate", "is_traced"), [(None, True), (0, False)])
async def test_the_ratio_counts_where_the_api_server_does_not_decide(
    plane_with, collector, tmp_path, rate, is_traced
):
    plane = await asyncio.to_thread(plane_with, rate)
    all_of_them = "--tracing-sample-ratio=1"
    async with run_server(plane, tmp_path / "server", collector, all_of_them) as server:
        await create_pod(plane, "own")
        line = await asyncio.to_thread(server.await_event, "mutated", name="own")
    assert ("trace_id" in line) is is_traced
