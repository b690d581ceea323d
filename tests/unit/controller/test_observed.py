from __future__ import annotations

import pytest

from harbourmaster.api.resources import NAMESPACES
from helpers.processes import observed
from helpers.tracing import Collector, attributes


@pytest.mark.slow
async def test_the_process_counts_its_requests_and_traces_its_work(api, tmp_path):
    api.put(NAMESPACES, {"metadata": {"name": "harbour"}})
    async with Collector() as collector:
        flags = (f"--tracing-endpoint={collector.url}", "--tracing-sample-ratio=1")
        async with observed("controller", tmp_path, api.port, *flags) as process:
            health = (await process.event("started"))["health"]
            listed = 'harbourmaster_api_requests_total{code="200",verb="list"}'
            assert await process.metric(health, listed) >= 1
            assert await process.metric(health, "harbourmaster_event_loop_lag_seconds") >= 0
            span, resource = await collector.until(lambda span: span.name == "reconcile")
            assert await process.end() == 0
    assert attributes(span)["harbourmaster.controller"] == "registration"
    assert resource["service.name"] == "harbourmaster-controller"
    assert resource["service.instance.id"] == "controller-1"
