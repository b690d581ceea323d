from __future__ import annotations

from datetime import UTC, datetime

import pytest

from harbourmaster.certs.store import ensure
from helpers.certificates import strict_client
from helpers.fake_api import FakeApi
from helpers.objects import body, workload
from helpers.processes import observe
from helpers.raw_http import Connection, post
from helpers.tracing import SAMPLED, TRACE, Collector


class Address:
    """The address that a client connects to."""

    host = "127.0.0.1"

    def __init__(self, url):
        self.port = int(url.rpartition(":")[2])


@pytest.mark.slow
async def test_the_process_counts_its_requests_and_traces_reviews_to_its_end(tmp_path):
    certificates = tmp_path / "certs"
    bundle = ensure(certificates, ("localhost",), datetime.now(UTC))
    (certificates / "ca.key").unlink()
    question = post(
        body(workload()),
        "Content-Type: application/json",
        f"Traceparent: {SAMPLED}",
        path="/mutate",
    )
    async with FakeApi() as api, Collector() as collector:
        flags = (
            f"--cert-dir={certificates}",
            "--port=0",
            "--drain-seconds=0",
            f"--tracing-endpoint={collector.url}",
        )
        async with observe("webhook", tmp_path, api.port, *flags) as process:
            serving = await process.event("serving")
            listed = 'harbourmaster_api_requests_total{code="200",verb="list"}'
            assert await process.metric(serving["health"], listed) >= 1
            tls = strict_client(bundle.files.ca_crt)
            wire = await Connection.open(Address(serving["reviews"]), tls)
            assert (await wire.ask(question)).status == 200
            await wire.drop()
            # What waits for company is sent at the end.
            assert await process.end() == 0
        ((span, resource),) = collector.spans()
    assert span.trace_id.hex() == TRACE
    assert resource["service.name"] == "harbourmaster-webhook"
    assert resource["service.instance.id"] == "webhook-1"
