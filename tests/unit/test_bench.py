"""Benchmarks still run, their ratios are compared by the rule, and the manual shows the record."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.append(str(Path(__file__).parents[1] / "bench"))

import blocking
import engine
import figures
from figures import TOLERATED, interval, list_figures, update_record, worse_ratios

INTERVALS = st.lists(st.floats(0.01, 1000), min_size=6, max_size=30).map(interval)
WAS = {"median": 1.2, "min": 1.1, "max": 1.3}


def part(**ratios):
    return {"review": {"ratios": ratios}}


def test_the_page_shows_the_figures_of_the_record():
    assert figures.PAGE.read_text() == figures.read_page(), (
        "docs/operations/performance.md and tests/bench/record.json differ: change "
        "docs/operations/performance.md.in, and run: .venv/bin/python tests/bench/run.py --page"
    )


@pytest.mark.parametrize(
    ("now", "is_worse"),
    [
        ({"median": 1.4, "min": 1.35, "max": 1.5}, True),
        ({"median": 1.4, "min": 1.3, "max": 1.5}, False),
        ({"median": 1.31, "min": 1.305, "max": 1.5}, False),
        ({"median": 0.5, "min": 0.4, "max": 0.6}, False),
    ],
    ids=["worse", "intervals overlap", "less than a tenth", "better"],
)
def test_a_ratio_is_worse_by_a_tenth_outside_the_intervals(now, is_worse):
    assert bool(worse_ratios(part(cpu=WAS), part(cpu=now))) is is_worse


def test_a_worse_ratio_is_a_line_with_both_values_and_the_next_step():
    now = {"median": 1.4, "min": 1.35, "max": 1.5}
    lines = worse_ratios(part(cpu=WAS), part(cpu=now))
    assert lines["review", "cpu"] == (
        "ratio became worse: review: cpu: was 1.20 (1.10 to 1.30), is 1.40 (1.35 to 1.50): find "
        "the change that caused it, or accept it: make bench PART=review RECORD=1"
    )


def test_a_ratio_that_is_measured_no_longer_is_a_line():
    lines = worse_ratios(part(cpu=WAS), part())
    assert lines["review", "cpu"].startswith("ratio not measured: review: cpu: measure it, or ")


def test_parts_and_ratios_that_only_one_side_has_are_not_compared():
    assert worse_ratios(part(cpu=WAS), {}) == worse_ratios({}, part(cpu=WAS)) == {}


@given(INTERVALS, INTERVALS)
def test_ratios_are_compared_in_one_direction_by_interval_and_median(was, now):
    lines = worse_ratios(part(cpu=was), part(cpu=now))
    assert len(lines) == (now["min"] > was["max"] and now["median"] > TOLERATED * was["median"])
    assert not (lines and worse_ratios(part(cpu=now), part(cpu=was)))
    assert not worse_ratios(part(cpu=was), part(cpu=was))


@given(st.lists(st.floats(0.01, 1000), min_size=6, max_size=30))
def test_an_interval_holds_its_median(values):
    low, middle, high = (interval(values)[name] for name in ("min", "median", "max"))
    assert min(values) <= low <= middle <= high <= max(values)


def test_parts_of_another_machine_leave_the_record():
    record = {"machine": {"cores": 2}, "parts": {"start": {"s": 1}, "review": {"s": 2}}}
    again = update_record(record, {"cores": 2}, {"start": {"s": 1.23456}})
    assert again["parts"] == {"review": {"s": 2}, "start": {"s": 1.235}}
    elsewhere = update_record(record, {"cores": 4}, {"start": {"s": 1}})
    assert elsewhere == {"machine": {"cores": 4}, "parts": {"start": {"s": 1}}}


def test_figures_are_listed_by_their_names():
    measured = {
        "date": "2026-03-01",
        "ms": {"a": 1234.567, "b": {"c": 2}},
        "ratios": {"a / b": WAS},
    }
    assert list(list_figures(measured, "start")) == [
        "start, date: 2026-03-01",
        "start, ms, a: 1,235",
        "start, ms, b, c: 2",
        "start, ratios, a / b: 1.20 (1.10 to 1.30)",
    ]


def test_a_cold_engine_keeps_nothing():
    question, known = engine.gate_cases()["pod, one match, gate inherited"]
    cold, usual = (kind(known, engine.SETTINGS) for kind in (engine.ColdEngine, engine.Engine))
    assert engine.answer(question, cold)[0] == engine.answer(question, usual)[0]
    for decides, are_filled in ((cold, False), (usual, True)):
        contents = [getattr(owner, name) for owner, name in engine.caches(decides)]
        assert any(contents) is are_filled


def test_selectors_of_the_greatest_length_are_timed():
    assert [seconds >= 0 for _, seconds in blocking.of_metrics_api()] == [True] * 4
