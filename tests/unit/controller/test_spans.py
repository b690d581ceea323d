from __future__ import annotations

import asyncio
import contextlib
from functools import partial

import pytest
from opentelemetry.trace import SpanKind, StatusCode

from harbourmaster.controller.controller import Controller
from harbourmaster.kube.errors import ConflictError
from harbourmaster.telemetry.spans import Tracer
from helpers.tracing import Memory, Outcomes


def traced_reconcile(name, reconcile, tracer):
    return partial(Controller(name, None, None)._trace, tracer, reconcile)


@pytest.fixture
def memory():
    return Memory()


@pytest.fixture
def tracer(memory):
    return Tracer(memory, {}, 1.0, Outcomes())


async def spans_of(tracer, memory):
    await tracer.close()
    return memory.spans


async def test_a_look_at_a_key_is_a_span(tracer, memory):
    async def reconcile(key):
        await asyncio.sleep(0.02)
        return 7.0

    assert await traced_reconcile("namespaces", reconcile, tracer)("prod\n") == 7.0
    (span,) = await spans_of(tracer, memory)
    assert (span.name, span.kind, span.parent) == ("reconcile", SpanKind.INTERNAL, None)
    assert dict(span.attributes) == {
        "harbourmaster.controller": "namespaces",
        "harbourmaster.key": r"prod\n",
        "harbourmaster.outcome": "done",
    }
    assert 0.01 < (span.end_time - span.start_time) / 1e9 < 1
    assert span.status.status_code is StatusCode.UNSET


async def test_a_failure_is_named_by_its_class_and_passed_on(tracer, memory):
    async def reconcile(_key):
        raise ConflictError("what the object holds", call="")

    with pytest.raises(ConflictError):
        await traced_reconcile("registration", reconcile, tracer)("a")
    (span,) = await spans_of(tracer, memory)
    assert span.attributes["harbourmaster.outcome"] == "failed"
    assert span.attributes["error.type"] == "ConflictError"
    assert span.status.status_code is StatusCode.ERROR
    assert "what the object holds" not in span.to_json()


async def test_a_look_that_is_cut_short_is_told(tracer, memory):
    begun = asyncio.Event()

    async def reconcile(_key):
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(traced_reconcile("registration", reconcile, tracer)("a"))
    await begun.wait()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    (span,) = await spans_of(tracer, memory)
    assert span.attributes["harbourmaster.outcome"] == "cancelled"
    assert span.status.status_code is StatusCode.UNSET


async def test_what_is_not_sampled_has_no_span(memory):
    tracer = Tracer(memory, {}, 0.0, Outcomes())

    async def reconcile(_key):
        return 3.0

    assert await traced_reconcile("registration", reconcile, tracer)("a") == 3.0
    assert not await spans_of(tracer, memory)


async def test_a_controller_traces_what_its_queue_brings(tracer, memory, metrics):
    class Once:
        def __init__(self):
            self.done = asyncio.Event()

        def map_changes(self, _keys):
            return ["all"]

        async def reconcile(self, _key):
            self.done.set()

    once = Once()
    job = Controller("registration", lambda _queue: once, metrics)
    job.tracer = tracer
    task = asyncio.create_task(job.lead())
    await once.done.wait()
    await asyncio.sleep(0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert [span.attributes["harbourmaster.key"] for span in await spans_of(tracer, memory)] == [
        "all"
    ]
