"""Cost of traces for a review, as ratios of the CPU time of all threads."""

from __future__ import annotations

import asyncio
import io
import statistics
import sys
import time
from pathlib import Path

import pytest

from harbourmaster.telemetry.metrics import create_metrics
from harbourmaster.telemetry.spans import Tracer
from harbourmaster.webhook.handlers import answer
from harbourmaster.webhook.records import Records
from harbourmaster.webhook.verdict import OUTCOMES
from helpers.objects import body, large_deployment
from helpers.tracing import SAMPLED, UNSAMPLED, Memory, Outcomes

sys.path.insert(0, str(Path(__file__).parent))

import engine

pytestmark = [pytest.mark.slow, pytest.mark.full]

REVIEWS = 500
QUESTION = body(large_deployment())


class Side:
    """Reviews that are answered, counted, logged and, with a tracer, traced."""

    def __init__(self, tracer=None, trace=None):
        self._engine = engine.Engine(engine.snapshot(engine.matching(0)), engine.SETTINGS)
        self._trace = trace
        loop = asyncio.get_running_loop()
        self._records = Records(create_metrics("0", OUTCOMES), loop, io.BytesIO(), tracer)

    def seconds(self):
        begun = time.process_time()
        for _ in range(REVIEWS):
            _, decision = answer(QUESTION, self._engine)
            self._records.add(decision, 0.0001, self._trace)
        self._records.flush()
        return time.process_time() - begun


async def cost(share, trace, rounds=15):
    """The median of the ratios of both sides, each pair of timings taken together."""
    tracer = Tracer(Memory(), {}, share, Outcomes())
    traced, plain = Side(tracer, trace), Side()
    ratios = [traced.seconds() / plain.seconds() for _ in range(rounds)]
    await tracer.close()
    return statistics.median(ratios)


@pytest.mark.parametrize(
    ("share", "trace"),
    [(0.0, None), (0.01, None), (0.01, (UNSAMPLED, ""))],
    ids=["none", "one of 100", "not by the caller"],
)
async def test_a_review_that_is_not_traced_costs_at_most_a_quarter_more(share, trace):
    assert await cost(share, trace) <= 1.25


async def test_a_review_that_is_traced_costs_at_most_as_much_as_ten():
    assert await cost(0.0, (SAMPLED, "vendor=1")) <= 10
