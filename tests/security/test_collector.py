"""A collector of traces that is away or hangs, and callers that abuse their traces' headers."""

from __future__ import annotations

import asyncio
import socket

import pytest

from helpers.certificates import strict_client
from helpers.objects import body, cluster_policy, workload
from helpers.raw_http import Connection, post
from helpers.server import WatchedServer
from helpers.tracing import SAMPLED, SPAN, TRACE, Collector

POLICY = cluster_policy(pods={"app": "web"}, nodeSelector={"disk": "ssd"})
REVIEWS = 200


def traced_review(headers=(f"Traceparent: {SAMPLED}",), **options):
    question = body(workload(), **options)
    return post(question, "Content-Type: application/json", *headers, path="/mutate")


async def ask_often(server):
    """Send reviews on one connection, again if the server says that the machine is too busy."""
    wire = await Connection.open(server, strict_client(server.bundle))
    for number in range(REVIEWS):
        review = traced_review(uid=f"u-{number}")
        while (answer := await wire.ask(review)).status == 429:  # noqa: ASYNC110
            await asyncio.sleep(int(answer.headers["retry-after"]))
        assert answer.status == 200
    await wire.drop()


def serving(directory, url):
    return asyncio.to_thread(
        WatchedServer, directory, POLICY, options=(f"--tracing-endpoint={url}",)
    )


@pytest.mark.slow
async def test_a_collector_that_hangs_keeps_no_review_and_not_the_end(tmp_path):
    async with Collector() as collector:
        collector.release.clear()
        with await serving(tmp_path, collector.url) as server:
            await ask_often(server)
            await collector.until(lambda span: span.trace_id.hex() == TRACE)
            await ask_often(server)
            # It has not said a word yet.
            assert await asyncio.to_thread(server.stop) == 0
    lost = server.log_lines("spans lost at shutdown")
    assert [line["spans"] for line in lost] == [2 * REVIEWS]


@pytest.mark.slow
async def test_a_collector_that_is_away_is_one_line_of_log(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1/traces"
        with await serving(tmp_path, url) as server:
            await ask_often(server)
            fault = await asyncio.to_thread(server.await_event, "span export failed")
            await ask_often(server)
            assert await asyncio.to_thread(server.stop) == 0
    assert fault["error"] == "Connection refused"
    assert len(server.log_lines("span export failed")) == 1
    assert '"component":"opentelemetry' not in "".join(server.lines)


HOSTILE = {
    "long": "x" * 8000,
    "two": f"{SAMPLED}, {SAMPLED}",
    "no text": "\xff\xfe",
    "zeros": f"00-{'0' * 32}-{SPAN}-01",
    "more": f"00-{TRACE}-{SPAN}-01-{'a' * 4000}",
}


async def test_s25_hostile_headers_are_answered_and_neither_logged_nor_sent(tmp_path):
    async with Collector() as collector:
        with await serving(tmp_path, collector.url) as server:
            tls = strict_client(server.bundle)
            for value in HOSTILE.values():
                data = traced_review((f"Traceparent: {value}", "Tracestate: canary=canary-value"))
                assert (await server.ask(data, tls)).status in {200, 400}
            state = f"Tracestate: {'canary-value' * 300}"
            answer = await server.ask(traced_review((f"Traceparent: {SAMPLED}", state)), tls)
            assert answer.status == 200
            span, _ = await collector.until(lambda span: span.trace_id.hex() == TRACE)
            await asyncio.to_thread(server.stop)
    assert len(collector.spans()) == 1
    assert "canary-value" not in str(span)
    assert "canary-value" not in "".join(server.lines)
