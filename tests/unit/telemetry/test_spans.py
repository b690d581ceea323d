"""Sampling, content and export of spans; the caller never waits, whatever the collector does."""

from __future__ import annotations

import asyncio
import atexit
import json
import logging
import socket
import threading

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext, SpanKind, StatusCode, TraceFlags

from harbourmaster.telemetry import spans as spans_module
from harbourmaster.telemetry.span_model import (
    CAPACITY,
    EXPORTED,
    FAILED,
    MAX_STATE,
    QUEUE_FULL,
    SHUTDOWN,
    parse_traceparent,
)
from harbourmaster.telemetry.spans import BATCH, LOG_INTERVAL, HttpSender, SpanBatches, Tracer
from helpers.logs import captured_log
from helpers.patience import PATIENCE
from helpers.tracing import SAMPLED, SPAN, TRACE, UNSAMPLED, Collector, Memory, Outcomes, attributes


class Sender:
    """Keeps the names of spans; ``faults`` are its results or errors, ``release`` unblocks it."""

    def __init__(self):
        self.batches = []
        self.faults = []
        self.is_closed = False
        self.release = threading.Event()
        self.release.set()
        self.began = threading.Event()

    def send(self, batch):
        self.began.set()
        assert self.release.wait(PATIENCE)
        self.batches.append([span.name for span in batch])
        fault = self.faults.pop(0) if self.faults else None
        if isinstance(fault, Exception):
            raise fault
        return fault

    def close(self):
        self.is_closed = True


@pytest.fixture
def sender():
    sender = Sender()
    yield sender
    sender.release.set()


@pytest.fixture
def outcomes():
    return Outcomes()


@pytest.fixture
def log():
    with captured_log() as stream:
        yield stream


def logged_lines(log):
    return [json.loads(line) for line in log.getvalue().splitlines()]


def add(batches, *names):
    for name in names:
        context = SpanContext(1, 2, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
        batches.on_end(ReadableSpan(str(name), context))


async def began(sender):
    assert await asyncio.to_thread(sender.began.wait, PATIENCE)
    sender.began.clear()


async def test_spans_are_sent_in_order_and_in_batches(sender, outcomes):
    batches = SpanBatches(sender, outcomes, delay=60)
    add(batches, *range(3 * BATCH + 1))
    await batches.close()
    assert [name for batch in sender.batches for name in batch] == [
        str(number) for number in range(3 * BATCH + 1)
    ]
    assert max(map(len, sender.batches)) == BATCH
    assert outcomes.counts == {EXPORTED: 3 * BATCH + 1}
    assert sender.is_closed


async def test_a_single_span_is_sent_after_the_delay(sender, outcomes):
    batches = SpanBatches(sender, outcomes, delay=0.01)
    add(batches, "only")
    await began(sender)
    await batches.close()
    assert sender.batches == [["only"]]


async def test_a_full_batch_is_sent_at_once(sender, outcomes):
    batches = SpanBatches(sender, outcomes, delay=60)
    add(batches, *range(BATCH))
    await began(sender)
    await batches.close()
    assert len(sender.batches[0]) == BATCH


async def test_a_full_queue_drops_new_spans_and_never_blocks(sender, outcomes):
    sender.release.clear()
    batches = SpanBatches(sender, outcomes, delay=0.001)
    add(batches, "in flight")
    await began(sender)
    add(batches, *range(CAPACITY + 995))
    # The sender was blocked all this time.
    assert outcomes.counts == {QUEUE_FULL: 996}
    sender.release.set()
    await batches.close()
    sent = [name for batch in sender.batches for name in batch]
    assert sent == ["in flight", *(str(number) for number in range(CAPACITY - 1))]
    assert outcomes.counts == {QUEUE_FULL: 996, EXPORTED: CAPACITY}


async def test_a_sender_that_hangs_does_not_delay_shutdown(sender, outcomes, monkeypatch, log):
    monkeypatch.setattr(spans_module, "FLUSH_TIMEOUT", 0.1)
    sender.release.clear()
    batches = SpanBatches(sender, outcomes, delay=0.001)
    add(batches, "in flight")
    await began(sender)
    add(batches, "queued")
    await batches.close()
    assert outcomes.counts == {SHUTDOWN: 2}
    assert [(line["event"], line["spans"]) for line in logged_lines(log)] == [
        ("spans lost at shutdown", 2)
    ]
    add(batches, "late")
    assert outcomes.counts == {SHUTDOWN: 3}
    sender.release.set()
    async with asyncio.timeout(PATIENCE):
        while not sender.is_closed:  # noqa: ASYNC110 - a thread closes it
            await asyncio.sleep(0.001)
    assert sender.batches == [["in flight"]]
    assert outcomes.counts == {SHUTDOWN: 3}


async def test_failures_are_counted_and_logged_once_per_interval(
    sender, outcomes, log, monkeypatch
):
    now = 0.0
    monkeypatch.setattr(spans_module, "monotonic", lambda: now)
    sender.faults = ["503 Busy", RuntimeError("broken"), "503 Busy", None, "503 Busy", None]
    batches = SpanBatches(sender, outcomes, delay=0.001)
    times = (0.0, LOG_INTERVAL - 1, LOG_INTERVAL, *(LOG_INTERVAL + more for more in (1, 2, 3)))
    for number, at in enumerate(times):
        now = at
        add(batches, number)
        await began(sender)
        while sum(outcomes.counts.values()) <= number:  # noqa: ASYNC110 - a thread counts
            await asyncio.sleep(0.001)
    await batches.close()
    assert outcomes.counts == {FAILED: 4, EXPORTED: 2}
    events = [(line["event"], line.get("error"), line.get("spans")) for line in logged_lines(log)]
    assert events == [
        ("span export failed", "503 Busy", 1),
        ("span export failed", "503 Busy", 3),
        ("span export recovered", None, None),
    ]
    assert logged_lines(log)[-1]["lost"] == 3


async def test_it_can_be_closed_twice(sender, outcomes):
    batches = SpanBatches(sender, outcomes)
    await batches.close()
    await batches.close()
    assert sender.batches == []


async def test_the_environment_does_not_change_the_limits(sender, outcomes, monkeypatch):
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "1")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1")
    batches = SpanBatches(sender, outcomes, delay=60)
    add(batches, *range(10))
    await batches.close()
    assert len(sender.batches) == 1


RESOURCE = {
    "service.name": "harbourmaster-webhook",
    "service.version": "1",
    "service.instance.id": "pod-1",
}
BEGUN, ENDED = 1_800_000_000.5, 1_800_000_000.75


@pytest.fixture
def memory():
    return Memory()


@pytest.fixture
async def tracer_with():
    """Return a function that makes a tracer."""
    made = []

    def make(sender, ratio=0.0, outcomes=None, **options):
        made.append(Tracer(sender, RESOURCE, ratio, outcomes or Outcomes(), **options))
        return made[-1]

    yield make
    for tracer in made:
        await tracer.close()


async def record_span(tracer, memory, context, **options):
    """The one span that comes of recording in that context."""
    trace_id = tracer.record(context, "review", (BEGUN, ENDED), {"a": 1}, **options)
    await tracer.close()
    (span,) = memory.spans
    assert trace_id == f"{span.context.trace_id:032x}"
    return span


async def test_a_span_is_the_child_of_its_caller_and_of_its_trace(tracer_with, memory):
    tracer = tracer_with(memory)
    context = tracer.sample(SAMPLED, "a=1,b=2")
    span = await record_span(tracer, memory, context, is_server=True)
    assert f"{span.context.trace_id:032x}" == TRACE
    assert f"{span.parent.span_id:016x}" == SPAN
    assert span.parent.is_remote
    assert span.context.trace_state.to_header() == "a=1,b=2"
    assert span.context.span_id not in {0, span.parent.span_id}
    assert span.kind is SpanKind.SERVER


async def test_times_are_as_given_and_the_resource_says_who_we_are(tracer_with, memory):
    tracer = tracer_with(memory)
    span = await record_span(tracer, memory, tracer.sample(SAMPLED))
    assert (span.start_time, span.end_time) == (int(BEGUN * 1e9), int(ENDED * 1e9))
    assert RESOURCE.items() <= dict(span.resource.attributes).items()
    assert dict(span.attributes) == {"a": 1}
    assert span.kind is SpanKind.INTERNAL
    assert span.status.status_code is StatusCode.UNSET


async def test_a_failure_is_the_status(tracer_with, memory):
    tracer = tracer_with(memory)
    span = await record_span(tracer, memory, tracer.sample(SAMPLED), error="ConflictError")
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description == "ConflictError"


@pytest.mark.parametrize("ratio", [0.0, 1.0])
async def test_the_caller_s_decision_is_ours(tracer_with, memory, ratio):
    tracer = tracer_with(memory, ratio)
    assert tracer.sample(UNSAMPLED) is None
    assert tracer.sample(SAMPLED) is not None


@pytest.mark.parametrize("header", [None, "", "nonsense", f"00-{TRACE}-{SPAN}"])
@pytest.mark.parametrize(("chance", "is_traced"), [(0.29, True), (0.3, False)])
async def test_without_a_caller_a_share_begins_a_trace(
    tracer_with, memory, header, chance, is_traced
):
    tracer = tracer_with(memory, 0.3, chance=lambda: chance)
    context = tracer.sample(header, "a=1")
    assert (context is not None) is is_traced
    if is_traced:
        span = await record_span(tracer, memory, context)
        assert span.parent is None
        assert span.context.trace_id
        assert not span.context.trace_state


@pytest.mark.parametrize("chance", [0.0, 0.999999])
async def test_none_is_none_and_all_are_all(tracer_with, memory, chance):
    assert tracer_with(memory, 0.0, chance=lambda: chance).sample() is None
    assert tracer_with(memory, 1.0, chance=lambda: chance).sample() is not None


async def test_roots_have_traces_of_their_own(tracer_with, memory):
    tracer = tracer_with(memory, 1.0)
    seen = {tracer.record(tracer.sample(), "x", (BEGUN, ENDED), {}) for _ in range(50)}
    assert len(seen) == 50


async def test_a_span_of_somebody_else_around_us_is_not_taken_for_a_parent(tracer_with, memory):
    from opentelemetry.trace import NonRecordingSpan, SpanContext, use_span  # noqa: PLC0415

    tracer = tracer_with(memory, 1.0)
    with use_span(NonRecordingSpan(SpanContext(1, 2, is_remote=False))):
        span = await record_span(tracer, memory, tracer.sample())
    assert span.parent is None


@pytest.mark.parametrize("state", ["nonsense", "a=1,a=2", "=", "a=" + "b" * 5000])
async def test_a_malformed_state_costs_nothing_but_itself(tracer_with, memory, state, caplog):
    tracer = tracer_with(memory)
    span = await record_span(tracer, memory, tracer.sample(SAMPLED, state))
    assert f"{span.context.trace_id:032x}" == TRACE
    assert not span.context.trace_state
    assert not caplog.records


async def test_a_collector_gets_them_by_otlp(tracer_with):
    async with Collector() as collector:
        outcomes = Outcomes()
        tracer = tracer_with(HttpSender(collector.url), outcomes=outcomes)
        context = tracer.sample(SAMPLED, "a=1")
        tracer.record(context, "review", (BEGUN, ENDED), {"n": 1, "list": ("x", "y"), "none": ()})
        await tracer.close()
        ((span, resource),) = collector.spans()
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, SPAN)
    assert span.trace_state == "a=1"
    assert attributes(span) == {"n": 1, "list": ["x", "y"], "none": []}
    assert RESOURCE.items() <= resource.items()
    assert outcomes.counts == {EXPORTED: 1}


async def send(url, *, timeout=PATIENCE, spans=1):  # noqa: ASYNC109 - of the sender
    """Return the error of the sender for a batch."""
    memory = Memory()
    tracer = Tracer(memory, RESOURCE, 1.0, Outcomes())
    for _ in range(spans):
        tracer.record(tracer.sample(), "review", (BEGUN, ENDED), {})
    await tracer.close()
    sender = HttpSender(url, timeout)
    fault = await asyncio.to_thread(sender.send, memory.spans)
    sender.close()
    return fault


@pytest.mark.parametrize(
    ("status", "fault"),
    [
        (200, None),
        (204, None),
        (302, "302 Found"),
        (400, "400 Bad Request"),
        (401, "401 Unauthorized"),
        (429, "429 Too Many Requests"),
        (500, "500 Internal Server Error"),
        (503, "503 Service Unavailable"),
    ],
)
async def test_what_a_collector_answers_is_what_is_said(status, fault):
    async with Collector() as collector:
        collector.status = status
        assert await send(collector.url) == fault
        # A redirect is not followed, because it could lead anywhere.
        assert len(collector.requests) == 1


async def test_a_collector_that_hangs_is_left_in_time():
    async with Collector() as collector:
        collector.release.clear()
        assert await send(collector.url, timeout=0.3) == "timed out"


@pytest.fixture
def one_try(monkeypatch):
    monkeypatch.setattr("opentelemetry.exporter.otlp.common.http._MAX_RETRIES", 1)


@pytest.mark.usefixtures("one_try")
async def test_a_collector_that_is_away_is_one_short_line():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        fault = await send(f"http://127.0.0.1:{free.getsockname()[1]}/v1/traces")
    assert fault == "Connection refused"


@pytest.mark.usefixtures("one_try")
async def test_a_collector_that_speaks_no_tls_is_one_short_line():
    async with Collector() as collector:
        fault = await send(collector.url.replace("http:", "https:"))
    assert "SSL" in fault
    assert "/v1/traces" not in fault


async def test_a_collector_that_comes_back_gets_what_comes_then(tracer_with):
    async with Collector() as collector:
        collector.status = 500
        outcomes = Outcomes()
        tracer = tracer_with(HttpSender(collector.url), outcomes=outcomes)
        tracer.record(tracer.sample(SAMPLED), "lost", (BEGUN, ENDED), {})
        async with asyncio.timeout(PATIENCE):
            await collector.until(lambda span: span.name == "lost")
            while FAILED not in outcomes.counts:  # noqa: ASYNC110 - a thread counts
                await asyncio.sleep(0.001)
        collector.status = 200
        tracer.record(tracer.sample(SAMPLED), "kept", (BEGUN, ENDED), {})
        await tracer.close()
    assert outcomes.counts == {FAILED: 1, EXPORTED: 1}


async def test_headers_come_from_the_usual_variable_and_no_proxy_is_asked(monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20token")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    async with Collector() as collector:
        assert await send(collector.url) is None
        assert collector.headers[0]["Authorization"] == "Bearer token"


async def test_the_libraries_log_nothing_of_their_own(caplog):
    with caplog.at_level(logging.DEBUG):
        async with Collector() as collector:
            collector.status = 503
            await send(collector.url)
    assert not [
        record for record in caplog.records if record.name.startswith(("opentel", "urllib3"))
    ]


async def test_nothing_is_installed_for_the_whole_process(tracer_with, memory):
    from opentelemetry import trace  # noqa: PLC0415

    before = threading.active_count(), atexit._ncallbacks()
    tracer = tracer_with(memory, 1.0)
    assert type(trace.get_tracer_provider()).__name__ == "ProxyTracerProvider"
    assert atexit._ncallbacks() == before[1]
    await tracer.close()
    # One of the loop's own waited for ours.
    assert threading.active_count() <= before[0] + 1
    assert memory.is_closed


@pytest.mark.parametrize(("flags", "is_sampled"), [("00", False), ("01", True), ("03", True)])
def test_a_traceparent_has_ids_flags_and_state(flags, is_sampled):
    caller = parse_traceparent(f"00-{TRACE}-{SPAN}-{flags}", "vendor=value")
    assert (caller.trace_id, caller.span_id) == (int(TRACE, 16), int(SPAN, 16))
    assert caller.state == "vendor=value"
    assert caller.is_sampled is is_sampled


@pytest.mark.parametrize(
    "header",
    [f"cc-{TRACE}-{SPAN}-01", f"cc-{TRACE}-{SPAN}-01-what-comes"],
    ids=["as long", "longer"],
)
def test_a_later_version_of_traceparent_is_accepted(header):
    assert parse_traceparent(header).is_sampled


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "nonsense",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-01\n",
        f" 00-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01.",
        f"cc-{TRACE}-{SPAN}-01.",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE[1:]}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}0-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[:-1]}g-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-\N{ARABIC-INDIC DIGIT ONE}1",
        f"00_{TRACE}_{SPAN}_01",
        "0" * 8000,
    ],
)
def test_a_malformed_traceparent_is_ignored(header):
    assert parse_traceparent(header, "vendor=value") is None


def test_a_tracestate_that_is_too_long_is_dropped():
    longest = "a=" + "b" * (MAX_STATE - 2)
    assert parse_traceparent(f"00-{TRACE}-{SPAN}-01", longest).state == longest
    assert parse_traceparent(f"00-{TRACE}-{SPAN}-01", longest + "b").state == ""
