"""A review's span: the child of the API server's, made after the answer, with nothing secret."""

from __future__ import annotations

import asyncio

import pytest
from opentelemetry.trace import SpanKind, StatusCode

from harbourmaster.telemetry.metrics import create_metrics
from harbourmaster.telemetry.spans import Tracer
from harbourmaster.webhook.records import Records
from helpers.admission import Admission, policy_engine
from helpers.objects import body, cluster_policy, workload
from helpers.raw_http import post
from helpers.tracing import SAMPLED, SPAN, TRACE, UNSAMPLED, Memory, Outcomes

CANARY = "canary-value"


class Traced:
    """An admission that serves the review paths, with its spans and its log."""

    def __init__(self, log, ratio, policies):
        self.memory = Memory()
        self.tracer = Tracer(self.memory, {}, ratio, Outcomes())
        self.admission = Admission(log, policy_engine(*policies), tracer=self.tracer)

    async def ask(self, *requests):
        """Send the requests; return their answers' statuses, the spans and the log's lines."""
        async with self.admission.connect() as wire:
            statuses = [(await wire.ask(request)).status for request in requests]
        lines = self.admission.lines()
        await self.tracer.close()
        return statuses, self.memory.spans, lines


@pytest.fixture
async def traced(log):
    """Return a function that makes a traced admission."""

    def make(ratio=0.0, policies=None):
        default = cluster_policy("web", pods={"app": "web"}, nodeSelector={"disk": "ssd"})
        return Traced(log, ratio, [default] if policies is None else policies)

    return make


def mutate(document=None, *headers, uid="u-1"):
    headers = ("Content-Type: application/json", *headers)
    return post(body(document or workload(), uid=uid), *headers, path="/mutate")


def with_trace(traceparent=SAMPLED, state=None):
    headers = [f"Traceparent: {traceparent}"]
    if state is not None:
        headers.append(f"Tracestate: {state}")
    return mutate(None, *headers)


async def test_a_review_of_a_traced_request_is_a_span_of_its_trace(traced):
    statuses, (span,), (line,) = await traced().ask(with_trace(state="vendor=1"))
    assert statuses == [200]
    assert f"{span.context.trace_id:032x}" == TRACE
    assert f"{span.parent.span_id:016x}" == SPAN
    assert span.context.trace_state.to_header() == "vendor=1"
    assert (span.name, span.kind) == ("review", SpanKind.SERVER)
    assert span.status.status_code is StatusCode.UNSET
    assert line["trace_id"] == TRACE


async def test_its_times_are_those_of_the_review(traced):
    _, (span,), (line,) = await traced().ask(with_trace())
    assert abs((span.end_time - span.start_time) / 1000 - line["microseconds"]) < 2


async def test_it_says_what_was_decided(traced):
    _, (span,), (line,) = await traced().ask(with_trace())
    assert dict(span.attributes) == {
        "k8s.namespace.name": line["namespace"],
        "harbourmaster.review.uid": "u-1",
        "harbourmaster.review.kind": line["kind"],
        "harbourmaster.review.operation": "CREATE",
        "harbourmaster.outcome": "mutated",
        "harbourmaster.operations": line["operations"],
        "harbourmaster.codes": (),
        "harbourmaster.policies": ("ClusterPodSchedulingPolicy web",),
    }
    assert line["operations"] > 0


async def test_s25_nothing_of_the_object_and_no_header_is_told(traced):
    document = workload()
    document["metadata"]["annotations"] = {"note": CANARY}
    document["metadata"]["name"] = CANARY
    headers = (f"Traceparent: {SAMPLED}", f"Authorization: Bearer {CANARY}", f"Cookie: {CANARY}")
    _, (span,), _ = await traced().ask(mutate(document, *headers))
    assert CANARY not in span.to_json()


async def test_at_most_sixteen_policies_are_named(traced):
    policies = [
        cluster_policy(f"web-{index:02}", pods={"app": "web"}, nodeSelector={f"k{index}": "v"})
        for index in range(20)
    ]
    _, (span,), (line,) = await traced(policies=policies).ask(with_trace())
    assert len(line["policies"]) == 20
    assert list(span.attributes["harbourmaster.policies"]) == line["policies"][:16]


async def test_hostile_names_are_cut_and_escaped(traced):
    hostile = f"u\n{'x' * 5000}"
    headers = (f"Traceparent: {SAMPLED}",)
    _, (span,), _ = await traced().ask(mutate(None, *headers, uid=hostile))
    uid = span.attributes["harbourmaster.review.uid"]
    assert uid.isprintable()
    assert len(uid) < 1100


@pytest.mark.parametrize("traceparent", [UNSAMPLED, "nonsense", f"00-{TRACE}-{SPAN}", "x" * 8000])
async def test_what_is_not_sampled_leaves_no_trace(traced, traceparent):
    statuses, spans, (line,) = await traced().ask(with_trace(traceparent))
    assert statuses == [200]
    assert spans == []
    assert "trace_id" not in line


async def test_two_parents_are_none_and_a_state_in_pieces_is_one(traced):
    parent = f"Traceparent: {SAMPLED}"
    twice = mutate(None, parent, parent)
    pieces = mutate(None, parent, "Tracestate: a=1", "Tracestate: b=2")
    statuses, (span,), _ = await traced().ask(twice, pieces)
    assert statuses == [200, 200]
    assert span.context.trace_state.to_header() == "a=1,b=2"


async def test_a_request_without_a_trace_begins_one_by_the_ratio(traced):
    _, (span,), (line,) = await traced(ratio=1.0).ask(mutate())
    assert span.parent is None
    assert line["trace_id"] == f"{span.context.trace_id:032x}"


async def test_a_defect_of_ours_is_an_error_and_a_bad_question_is_none(traced, monkeypatch):
    admission = traced(ratio=1.0)
    monkeypatch.setattr("harbourmaster.webhook.engine.Engine.merge", lambda *_, **__: 1 / 0)
    bad = post(b"nonsense", path="/mutate")
    statuses, (defect, question), _ = await admission.ask(mutate(), bad)
    assert statuses == [200, 200]
    assert defect.status.status_code is StatusCode.ERROR
    assert defect.status.description == "internal-error"
    assert question.attributes["harbourmaster.outcome"] == "malformed"
    assert question.status.status_code is StatusCode.UNSET


async def test_a_review_without_a_log_line_has_a_span_too(traced):
    _, (span,), lines = await traced(policies=[]).ask(with_trace())
    assert span.attributes["harbourmaster.outcome"] == "unmatched"
    assert lines == []


async def test_the_console_s_line_has_the_trace_too(traced):
    admission = traced(ratio=1.0)
    admission.admission.records._stream = None
    _, _, (line,) = await admission.ask(mutate())
    assert len(line["trace_id"]) == 32
    assert line["component"] == "admission"


def test_without_a_tracer_nothing_is_kept_of_the_headers(log):
    loop = asyncio.new_event_loop()
    assert not Records(create_metrics("0"), loop, log).are_traced
    loop.close()
