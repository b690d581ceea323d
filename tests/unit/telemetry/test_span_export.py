"""Spans are exported in batches; the caller never waits, whatever the collector does."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext, TraceFlags

from harbourmaster.telemetry import spans as spans_module
from harbourmaster.telemetry.span_model import CAPACITY, EXPORTED, FAILED, QUEUE_FULL, SHUTDOWN
from harbourmaster.telemetry.spans import BATCH, LOG_INTERVAL, SpanBatches
from helpers.logs import captured_log
from helpers.patience import PATIENCE
from helpers.tracing import Outcomes


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
