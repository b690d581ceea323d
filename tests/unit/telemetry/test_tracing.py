"""Tracers by settings, and by collectors that come, go and change."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from harbourmaster.telemetry import tracing
from harbourmaster.telemetry.span_model import FAILED, PhaseSpan
from harbourmaster.telemetry.spans import GrpcSender, HttpSender, SpanBatches, Tracer
from harbourmaster.telemetry.tracing import (
    PhaseTracer,
    TracingError,
    check_collector,
    create_tracer,
)
from helpers.logs import captured_log
from helpers.patience import PATIENCE
from helpers.tracing import Collector, Memory, Outcomes, attributes

TRACE, ROOT, CHILD = int("a" * 32, 16), int("b" * 16, 16), int("c" * 16, 16)


def span(number=CHILD, parent=ROOT, **more):
    return PhaseSpan("scope", "AppDeploy", TRACE, number, parent, 1.5, 2.5, {"a": "1"}, **more)


@pytest.fixture(autouse=True)
def log():
    with captured_log() as stream:
        yield stream


@pytest.fixture(autouse=True)
def prompt(monkeypatch):
    """Batches of a moment."""
    monkeypatch.setitem(SpanBatches.__init__.__kwdefaults__, "delay", 0.05)


class GrpcCollector(trace_service_pb2_grpc.TraceServiceServicer):
    """A collector that takes OTLP over gRPC."""

    def __init__(self):
        self.loop = asyncio.get_running_loop()
        self.came = asyncio.Queue()
        self.server = grpc.server(ThreadPoolExecutor(1))
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(self, self.server)
        self.address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.server.start()

    def Export(self, request, context):  # noqa: N802 - gRPC's name
        self.loop.call_soon_threadsafe(self.came.put_nowait, request)
        return ExportTraceServiceResponse()

    async def close(self):
        await asyncio.to_thread(self.server.stop(None).wait)


@pytest.fixture
async def switching():
    """A tracer whose collector is in ``url``."""

    class Switched:
        def __init__(self):
            self.url = ""
            self.outcomes = Outcomes()
            self.own = None

        def start(self, own=None):
            self.tracer = PhaseTracer(lambda: self.url, {}, self.outcomes, own)
            return self.tracer

    switching = Switched()
    switching.start()
    yield switching
    await switching.tracer.close()


async def record(*spans):
    memory = Memory()
    tracer = Tracer(memory, {}, 0.0, Outcomes())
    for span in spans:
        tracer.record_phase(span)
    await tracer.close()
    return memory.spans


async def test_ids_are_as_given():
    root, child = await record(span(ROOT, 0), span())
    assert (root.context.trace_id, root.context.span_id) == (TRACE, ROOT)
    assert root.parent is None
    assert (child.context.trace_id, child.context.span_id) == (TRACE, CHILD)
    assert (child.parent.trace_id, child.parent.span_id) == (TRACE, ROOT)
    assert (child.start_time, child.end_time) == (1_500_000_000, 2_500_000_000)


async def test_the_spans_that_have_no_given_ids_have_random_ones():
    memory = Memory()
    tracer = Tracer(memory, {}, 1.0, Outcomes())
    tracer.record_phase(span())
    for _ in range(2):
        tracer.record(tracer.sample(), "reconcile", (1.0, 2.0), {})
    await tracer.close()
    _, first, two = memory.spans
    assert len({TRACE, first.context.trace_id, two.context.trace_id}) == 3
    assert len({CHILD, first.context.span_id, two.context.span_id}) == 3


async def test_links_that_are_malformed_are_left_out():
    (exported,) = await record(span(links=("", "nonsense", f"00-{'d' * 32}-{'e' * 16}-01\n")))
    (link,) = exported.links
    assert f"{link.context.trace_id:x}" == "d" * 32


async def test_a_host_and_a_port_take_otlp_over_grpc_in_plain_text(switching):
    collector = GrpcCollector()
    try:
        switching.url = collector.address
        assert switching.tracer.is_on
        switching.tracer.record(span())
        async with asyncio.timeout(PATIENCE):
            request = await collector.came.get()
    finally:
        await switching.tracer.close()
        await collector.close()
    (resource,) = request.resource_spans
    assert attributes(resource.resource)["service.name"] == "lifecycle-operator"
    (scope,) = resource.scope_spans
    assert scope.scope.name == "scope"
    assert scope.spans[0].span_id == CHILD.to_bytes(8, "big")


@pytest.mark.parametrize("path", ["/v1/traces", "", "/"])
async def test_a_url_takes_otlp_over_http_at_the_usual_path(switching, path):
    async with Collector() as collector:
        switching.url = collector.url.removesuffix("/v1/traces") + path
        switching.tracer.record(span())
        async with asyncio.timeout(PATIENCE):
            exported, resource = await collector.until(lambda span: span.name == "AppDeploy")
    assert exported.trace_id == TRACE.to_bytes(16, "big")
    assert resource["service.name"] == "lifecycle-operator"


async def test_it_follows_a_change(switching):
    async with Collector() as collector, Collector() as two:
        switching.url = collector.url
        switching.tracer.record(span(1))
        async with asyncio.timeout(PATIENCE):
            await collector.until(lambda span: span.name == "AppDeploy")
        switching.url = two.url
        switching.tracer.record(span(2))
        async with asyncio.timeout(PATIENCE):
            exported, _ = await two.until(lambda span: span.name == "AppDeploy")
        assert exported.span_id == (2).to_bytes(8, "big")
        switching.url = ""
        assert not switching.tracer.is_on
        switching.tracer.record(span(3))
        await switching.tracer.close()
        assert len(collector.spans()) == len(two.spans()) == 1


async def test_a_change_while_it_is_dialled_goes_to_the_last_one(switching):
    async with Collector() as collector, Collector() as two:
        switching.url = collector.url
        assert switching.tracer.is_on
        switching.tracer.record(span(1))
        switching.url = two.url
        switching.tracer.record(span(2))
        async with asyncio.timeout(PATIENCE):
            await two.until(lambda span: span.span_id == (2).to_bytes(8, "big"))
        assert collector.spans() == []


async def test_one_that_takes_long_to_dial_comes_too_late(switching, monkeypatch):
    made, slow = {}, threading.Event()

    class Dialled:
        def __init__(self):
            self.spans, self.came, self.closed = [], asyncio.Event(), asyncio.Event()

        def record_phase(self, phase):
            self.spans.append(phase.span)
            self.came.set()

        async def close(self):
            self.closed.set()

    def create(url, _resource, _on_outcome):
        if url.endswith("/one"):
            slow.wait(10)
        return made[url]

    first, two = "http://collector/one", "http://collector/two"
    made.update({first: Dialled(), two: Dialled()})
    monkeypatch.setattr(tracing, "create_collector_tracer", create)
    switching.url = first
    switching.tracer.record(span(1))
    await asyncio.sleep(0)
    switching.url = two
    switching.tracer.record(span(2))
    async with asyncio.timeout(PATIENCE):
        await made[two].came.wait()
        slow.set()
        await made[first].closed.wait()
    switching.tracer.record(span(3))
    assert made[first].spans == []
    assert made[two].spans == [1, 2, 3]
    assert not made[two].closed.is_set()


async def test_without_a_collector_the_tracer_of_the_process_is_used(switching):
    memory = Memory()
    own = Tracer(memory, {}, 0.0, Outcomes())
    tracer = switching.start(own)
    tracer.record(span(1))
    async with Collector() as collector:
        switching.url = collector.url
        tracer.record(span(2))
        async with asyncio.timeout(PATIENCE):
            await collector.until(lambda span: span.span_id == (2).to_bytes(8, "big"))
        switching.url = ""
        tracer.record(span(3))
    await own.close()
    assert [each.context.span_id for each in memory.spans] == [1, 3]


@pytest.mark.parametrize("scheme", ["", "http://"])
async def test_a_dead_collector_costs_a_log_line_and_is_counted(
    switching, log, monkeypatch, scheme
):
    for sender in (HttpSender, GrpcSender):
        monkeypatch.setattr(sender.__init__, "__defaults__", (0.3,))
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        switching.url = f"{scheme}127.0.0.1:{unused.getsockname()[1]}"
        switching.tracer.record(span(1))
        switching.tracer.record(span(2))
        await switching.tracer.close()
    lost = sum(switching.outcomes.counts.values())
    assert lost == 2
    assert switching.outcomes.counts.keys() <= {FAILED, "shutdown"}
    assert log.getvalue().count(b"\n") == 1


@pytest.mark.parametrize("url", ["nonsense", "grpc://host:1", "http://", "host:", "a b:1", "h:1/x"])
async def test_what_is_no_collector_is_told_and_off(switching, log, url):
    switching.url = url
    assert not switching.tracer.is_on
    switching.tracer.record(span())
    assert not switching.tracer.is_on
    assert log.getvalue().count(b"phase tracing disabled") == 1


async def test_credentials_in_a_url_are_refused_and_not_repeated(switching, log):
    switching.url = "http://user:canary@collector:4318"
    assert not switching.tracer.is_on
    assert b"canary" not in log.getvalue()


async def test_packages_that_are_missing_are_named(switching, log, monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.grpc.trace_exporter", None)
    switching.url = "127.0.0.1:4317"
    switching.tracer.record(span())
    await switching.tracer.close()
    assert b"pip install 'harbourmaster[tracing]'" in log.getvalue()
    assert switching.outcomes.counts == {"shutdown": 1}


@pytest.mark.parametrize("url", ["collector:4317", "10.0.0.1:4317", "[::1]:4317", "https://c/x"])
def test_collectors_as_keptn_names_them(url):
    assert check_collector(url) is None


def test_what_is_none_says_what_is_expected():
    with pytest.raises(
        TracingError, match="OTelCollectorUrl: invalid URL, expected one like http://"
    ):
        check_collector("nonsense")


def test_nothing_of_it_is_imported_before_it_is_asked_for():
    code = (
        "import sys; from harbourmaster.controller.lifecycle import signals; "
        "print({'grpc', 'opentelemetry'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.strip() == "set()"


URL = "http://collector.example.com:4318/v1/traces"


def create(endpoint):
    return create_tracer(endpoint, 1.0, {}, lambda *_: None)


@pytest.mark.parametrize(
    "endpoint",
    [
        "",
        "grpc://collector:4317",
    ],
)
def test_an_invalid_url_is_an_error(endpoint):
    with pytest.raises(TracingError, match=r"^--tracing-endpoint: invalid URL, expected "):
        create(endpoint)


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://user:secret@collector/v1/traces",
        "http://secret@collector/v1/traces",
        f"{URL}?token=secret",
        f"{URL}#secret",
    ],
)
def test_credentials_in_the_url_are_rejected_and_not_repeated(endpoint):
    with pytest.raises(TracingError, match="OTEL_EXPORTER_OTLP_HEADERS") as raised:
        create(endpoint)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    "missing", ["opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http"]
)
def test_without_the_packages_the_extra_is_named(monkeypatch, missing):
    for module in ("spans",):
        monkeypatch.delitem(sys.modules, f"harbourmaster.telemetry.{module}", raising=False)
    for name in [name for name in sys.modules if name.startswith(missing)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(TracingError, match=r"pip install 'harbourmaster\[tracing\]'$") as raised:
        create(URL)
    assert missing in str(raised.value)
    assert "\n" not in str(raised.value)


async def test_with_the_packages_there_is_a_tracer():
    tracer = create(URL)
    assert type(tracer).__name__ == "Tracer"
    await tracer.close()


@pytest.mark.slow
def test_without_tracing_the_packages_are_not_imported():
    code = (
        "import sys, harbourmaster.controller.process\n"
        "from harbourmaster.webhook import process, standalone\n"
        "print(*(name for name in sys.modules if name.startswith(('opentelemetry', 'requests'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout == "\n"
