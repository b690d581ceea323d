"""A queue that never keeps anybody waiting, whatever the collector does."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest

from harbourmaster.telemetry import span_queue
from harbourmaster.telemetry.span_queue import (
    BATCH,
    EXPORTED,
    FAILED,
    QUEUE_FULL,
    QUIET,
    SHUTDOWN,
    SpanQueue,
)
from helpers.logs import captured_log
from helpers.patience import PATIENCE
from helpers.tracing import Outcomes


class Sender:
    """Sends nowhere; ``faults`` are what it says or raises, ``release`` lets it go on."""

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
        self.batches.append(list(batch))
        fault = self.faults.pop(0) if self.faults else None
        if isinstance(fault, Exception):
            raise fault
        return fault

    def close(self):
        self.is_closed = True


@pytest.fixture
def sender():
    found = Sender()
    yield found
    found.release.set()


@pytest.fixture
def outcomes():
    return Outcomes()


@pytest.fixture
def log():
    with captured_log() as stream:
        yield stream


def logged(log):
    return [json.loads(line) for line in log.getvalue().splitlines()]


async def began(sender):
    assert await asyncio.to_thread(sender.began.wait, PATIENCE)
    sender.began.clear()


async def test_spans_are_sent_in_order_and_together(sender, outcomes):
    queue = SpanQueue(sender, outcomes, delay=0.01)
    for number in range(10):
        queue.put(number)
    await began(sender)
    await queue.close()
    assert [number for batch in sender.batches for number in batch] == list(range(10))
    assert len(sender.batches) < 10
    assert outcomes.counts == {EXPORTED: 10}
    assert sender.is_closed


async def test_the_end_waits_for_no_company(sender, outcomes):
    queue = SpanQueue(sender, outcomes, delay=60)
    queue.put("last")
    await queue.close()
    assert sender.batches == [["last"]]


async def test_a_full_batch_waits_for_no_company(sender, outcomes):
    queue = SpanQueue(sender, outcomes, delay=60)
    for number in range(BATCH):
        queue.put(number)
    await began(sender)
    await queue.close()
    assert len(sender.batches[0]) == BATCH


async def test_many_spans_go_in_batches(sender, outcomes):
    queue = SpanQueue(sender, outcomes, delay=60, capacity=10 * BATCH)
    for number in range(3 * BATCH + 1):
        queue.put(number)
    await queue.close()
    assert max(map(len, sender.batches)) == BATCH
    assert sum(map(len, sender.batches)) == 3 * BATCH + 1


async def test_a_full_queue_drops_what_comes_and_never_waits(sender, outcomes):
    sender.release.clear()
    queue = SpanQueue(sender, outcomes, delay=0.001, capacity=5)
    queue.put("under way")
    await began(sender)
    for number in range(1000):
        queue.put(number)
    # All that was while the sender had not come back.
    assert outcomes.counts == {QUEUE_FULL: 995}
    sender.release.set()
    await queue.close()
    assert sender.batches == [["under way"], [0, 1, 2, 3, 4]]


async def test_a_sender_that_hangs_keeps_nobody_from_ending(sender, outcomes, monkeypatch, log):
    monkeypatch.setattr(span_queue, "FLUSH_TIMEOUT", 0.1)
    sender.release.clear()
    queue = SpanQueue(sender, outcomes, delay=0.001)
    queue.put("under way")
    await began(sender)
    queue.put("waiting")
    await queue.close()
    assert outcomes.counts == {SHUTDOWN: 2}
    assert [(line["event"], line["spans"]) for line in logged(log)] == [
        ("spans are lost at the end", 2)
    ]
    queue.put("late")
    assert outcomes.counts == {SHUTDOWN: 3}
    # What comes of it afterwards is nobody's business: the process has ended.
    sender.release.set()
    await asyncio.to_thread(queue._thread.join, PATIENCE)
    assert sender.is_closed
    assert sender.batches == [["under way"]]
    assert outcomes.counts == {SHUTDOWN: 3}


async def test_what_fails_is_counted_and_told_once_in_a_while(sender, outcomes, log):
    now = 0.0
    sender.faults = ["503 Busy", RuntimeError("broken"), "503 Busy", None]
    queue = SpanQueue(sender, outcomes, delay=0.001, clock=lambda: now)
    for number, at in enumerate((0.0, QUIET - 1, QUIET, QUIET + 1)):
        now = at
        queue.put(number)
        await began(sender)
        while sum(outcomes.counts.values()) <= number:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.001)
    await queue.close()
    assert outcomes.counts == {FAILED: 3, EXPORTED: 1}
    told = [(line["event"], line.get("error"), line.get("spans")) for line in logged(log)]
    assert told == [
        ("spans can't be sent, and are dropped", "503 Busy", 1),
        ("spans can't be sent, and are dropped", "503 Busy", 3),
        ("spans are sent again", None, None),
    ]
    assert logged(log)[-1]["lost"] == 3


async def test_it_can_be_closed_twice(sender, outcomes):
    queue = SpanQueue(sender, outcomes)
    await queue.close()
    await queue.close()
    assert sender.batches == []


async def test_a_queue_at_rest_does_nothing(sender, outcomes, monkeypatch):
    looks = []
    monkeypatch.setattr(SpanQueue, "_send_all", lambda _queue: looks.append(1))
    queue = SpanQueue(sender, outcomes, delay=0.001)
    await asyncio.sleep(0.05)
    assert looks == []
    await queue.close()
