"""Ratios of the costs of reviews that must hold on any machine; the figures are ``make bench``'s.

Recording switched off is a check of one attribute. Switched on, a review that is not picked costs
one random number; a picked one costs an entry in a queue, which is processed with a tenth of a
core.
"""

from __future__ import annotations

import asyncio
import io
import statistics
import time
import timeit

import engine
import msgspec
import policy_events
import pytest

from harbourmaster.telemetry.metrics import create_metrics
from harbourmaster.telemetry.spans import Tracer
from harbourmaster.webhook.handlers import answer
from harbourmaster.webhook.record_files import RecordFiles
from harbourmaster.webhook.recording import Recorder
from harbourmaster.webhook.records import Records
from harbourmaster.webhook.verdict import OUTCOMES
from helpers.objects import body, large_deployment
from helpers.tracing import SAMPLED, UNSAMPLED, Memory, Outcomes

pytestmark = [pytest.mark.slow, pytest.mark.full]


def median_ratio(cases, first, second, *, rounds=5):
    """Return the ratio of the times of two cases, measured in turn."""
    ratios = [
        engine.microseconds(*cases[first], repeats=1, number=500)
        / engine.microseconds(*cases[second], repeats=1, number=500)
        for _ in range(rounds)
    ]
    return statistics.median(ratios)


def test_10_000_policies_cost_at_most_twice_10_policies():
    cases = engine.cases()
    ratio = median_ratio(cases, "five matches of 10,000 policies", "five matches of 10 policies")
    assert ratio <= 2


def test_100_policies_that_do_not_match_cost_at_most_half_more_than_none():
    assert median_ratio(engine.cases(), "100 policies, no match", "no policy") <= 1.5


@pytest.mark.parametrize("case", ["pod, one match, gate", "pod, one match, gate inherited"])
def test_gates_cost_a_pod_that_is_like_the_last_at_most_a_fifth(case):
    """The time is of the engine alone, which is a part of the server's time for a review."""
    cases = engine.gate_cases()
    best = {}
    for name in ("pod, one match", case) * 40:
        question, known = cases[name]
        decides = engine.Engine(known, engine.SETTINGS)
        engine.answer(question, decides)
        taken = timeit.timeit(
            lambda: engine.answer(question, decides),  # noqa: B023 - called at once
            number=200,
            timer=time.process_time,
        )
        best[name] = min(best.get(name, taken), taken)
    assert best[case] <= 1.2 * best["pod, one match"]


def test_a_match_costs_less_than_parsing_the_review_ten_times():
    question = body(large_deployment())
    decode = msgspec.json.Decoder().decode
    timings = timeit.repeat(lambda: decode(question), number=500, repeat=5)
    deciding = engine.microseconds(*engine.cases()["one match"], repeats=5, number=500)
    assert deciding <= 10 * statistics.median(timings) / 500 * 1e6


REVIEWS = 500
ROUNDS = 15
QUESTION = body(large_deployment())


class RecordedReviews:
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


async def recording_cost(directory, share):
    """The median of the ratios of both sides, each pair of timings taken together."""
    files = RecordFiles(directory, max_bytes=1 << 20, max_files=1)
    recorder = Recorder(files, share, create_metrics("0").recorded)
    recorded, plain = RecordedReviews(recorder), RecordedReviews()
    ratios = [recorded.seconds() / plain.seconds() for _ in range(ROUNDS)]
    print(f"share {share}: {statistics.median(ratios):.3f} times the time of none")  # noqa: T201
    return statistics.median(ratios)


@pytest.mark.parametrize("share", [0.0, 0.01])
async def test_a_review_costs_at_most_a_quarter_more_where_few_are_recorded(tmp_path, share):
    assert await recording_cost(tmp_path, share) <= 1.25


async def test_a_review_that_is_recorded_costs_at_most_as_much_as_two_when_it_is_answered(tmp_path):
    assert await recording_cost(tmp_path, 1.0) <= 2


async def test_working_off_what_was_recorded_leaves_most_of_the_time_to_others(tmp_path):
    files = RecordFiles(tmp_path, max_bytes=1 << 20, max_files=1)
    recorder = Recorder(files, 1.0, create_metrics("0").recorded)
    RecordedReviews(recorder).seconds()
    recorder.start()
    began, used = time.perf_counter(), time.thread_time()
    await asyncio.sleep(2.0)
    share = (time.thread_time() - used) / (time.perf_counter() - began)
    await recorder.close()
    print(f"working off takes {share:.3f} of a core")  # noqa: T201
    assert share <= 0.3


class TracedReviews:
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


async def tracing_cost(share, trace, rounds=15):
    """The median of the ratios of both sides, each pair of timings taken together."""
    tracer = Tracer(Memory(), {}, share, Outcomes())
    traced, plain = TracedReviews(tracer, trace), TracedReviews()
    ratios = [traced.seconds() / plain.seconds() for _ in range(rounds)]
    await tracer.close()
    return statistics.median(ratios)


@pytest.mark.parametrize(
    ("share", "trace"),
    [(0.0, None), (0.01, None), (0.01, (UNSAMPLED, ""))],
    ids=["none", "one of 100", "not by the caller"],
)
async def test_a_review_that_is_not_traced_costs_at_most_a_quarter_more(share, trace):
    assert await tracing_cost(share, trace) <= 1.25


async def test_a_review_that_is_traced_costs_at_most_as_much_as_ten():
    assert await tracing_cost(0.0, (SAMPLED, "vendor=1")) <= 10


@pytest.mark.parametrize("shape", policy_events.SHAPES)
def test_an_event_costs_much_less_than_an_index_of_all(shape):
    """2 ms are asked for; all are indexed in about 100."""
    few = statistics.median(policy_events.milliseconds(shape, 100, 50))
    many = statistics.median(policy_events.milliseconds(shape))
    # What is copied of each policy costs nanoseconds.
    assert many <= 30 * few
