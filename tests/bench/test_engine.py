"""Ratios that must hold on any machine; the figures themselves are ``make bench``'s."""

from __future__ import annotations

import statistics
import sys
import time
import timeit
from pathlib import Path

import msgspec
import pytest

from helpers.objects import body, large_deployment

sys.path.insert(0, str(Path(__file__).parent))

import engine

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
