"""Cost of recording for a review, as ratios of the answering thread's time.

Switched off, it is a check of one attribute. Switched on, a review that is not picked costs one
random number; a picked one costs an entry in a queue, which is processed with a tenth of a core.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from pathlib import Path

import pytest

from harbourmaster.telemetry.metrics import create_metrics
from harbourmaster.webhook.handlers import answer
from harbourmaster.webhook.record_files import RecordFiles
from harbourmaster.webhook.recording import Recorder
from helpers.objects import body, large_deployment

sys.path.insert(0, str(Path(__file__).parent))

import engine

pytestmark = [pytest.mark.slow, pytest.mark.full]

REVIEWS = 500
ROUNDS = 15
QUESTION = body(large_deployment())


class Side:
    """Reviews that are answered, as the server does it, and perhaps recorded."""

    def __init__(self, recorder=None):
        self._engine = engine.Engine(engine.snapshot(engine.matching(0)), engine.SETTINGS)
        self._recorder = recorder

    def seconds(self):
        begun = time.thread_time()
        for _ in range(REVIEWS):
            result, decision = answer(QUESTION, self._engine)
            if self._recorder is not None:
                self._recorder.take(QUESTION, result, decision, self._engine, may_patch=True)
        return time.thread_time() - begun


async def cost(directory, share):
    """The median of the ratios of both sides, each pair of timings taken together."""
    files = RecordFiles(directory, max_bytes=1 << 20, max_files=1)
    recorder = Recorder(files, share, create_metrics("0").recorded)
    recorded, plain = Side(recorder), Side()
    ratios = [recorded.seconds() / plain.seconds() for _ in range(ROUNDS)]
    print(f"share {share}: {statistics.median(ratios):.3f} times the time of none")  # noqa: T201
    return statistics.median(ratios)


@pytest.mark.parametrize("share", [0.0, 0.01])
async def test_a_review_costs_at_most_a_quarter_more_where_few_are_recorded(tmp_path, share):
    assert await cost(tmp_path, share) <= 1.25


async def test_a_review_that_is_recorded_costs_at_most_as_much_as_two_when_it_is_answered(tmp_path):
    assert await cost(tmp_path, 1.0) <= 2


async def test_working_off_what_was_recorded_leaves_most_of_the_time_to_others(tmp_path):
    files = RecordFiles(tmp_path, max_bytes=1 << 20, max_files=1)
    recorder = Recorder(files, 1.0, create_metrics("0").recorded)
    Side(recorder).seconds()
    recorder.start()
    began, used = time.perf_counter(), time.thread_time()
    await asyncio.sleep(2.0)
    share = (time.thread_time() - used) / (time.perf_counter() - began)
    await recorder.close()
    print(f"working off takes {share:.3f} of a core")  # noqa: T201
    assert share <= 0.3
