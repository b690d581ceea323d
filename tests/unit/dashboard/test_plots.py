"""Plots of measurements: marks, lines and bounds, and the sentence that stands for them."""

from __future__ import annotations

import pytest

from harbourmaster.dashboard.plots import HEIGHT, MOST, WIDTH, plot
from harbourmaster.lifecycle.model import Try

TIME = "2026-03-01T12:{:02}:00Z"


def series(*values, **fields):
    return [
        Try(value=value, time=TIME.format(number), **fields) for number, value in enumerate(values)
    ]


def test_nothing_measured_is_no_plot():
    assert plot("p95", []) is None


def test_one_outlier_differs_from_a_value_that_gets_worse():
    outlier = plot("p95", series("180", "412.5", "190"), "<200")
    worse = plot("p95", series("180", "250", "412.5"), "<200")
    assert outlier.summary == ("1 of 3 measurements did not meet the target; the last value is 190")
    assert worse.summary == (
        "2 of 3 measurements did not meet the target, the last 2 in a row; the last value is 412.5"
    )
    assert [mark.kind for mark in worse.marks] == ["met", "unmet", "unmet"]
    assert [mark.y for mark in worse.marks] == sorted((m.y for m in worse.marks), reverse=True)
    assert worse.lines == ("8,100 160,74 312,14",)
    ((y, label),) = worse.rules
    assert label == "<200"
    assert worse.marks[1].y < y < worse.marks[0].y


def test_a_failed_query_is_missing_and_not_zero():
    # Keptn's bridge drew a query that failed as 0, which met the target.
    fault = Try(time=TIME.format(1), message="inconclusive: 503", status="Failed")
    drawn = plot("p95", [*series("180"), fault, *series("190", "195")], "<200")
    assert [mark.kind for mark in drawn.marks] == ["met", "none", "met", "met"]
    assert drawn.marks[1].measured.message == "inconclusive: 503"
    assert len(drawn.lines) == 1
    assert "1 without a value" in drawn.summary
    for text in ("", "NaN", "Inf", "-Inf", "1e999", "many"):
        (mark,) = plot("p95", series(text), "<200").marks
        assert mark.kind == "none"


def test_places_are_those_of_times_if_all_are_known():
    late = [Try(value="1", time=TIME.format(minute)) for minute in (0, 1, 4)]
    assert [mark.x for mark in plot("p", late).marks] == [8, 84, 312]
    for times in (("", TIME.format(1), TIME.format(4)), (TIME.format(4),) * 3, ("x", "y", "z")):
        shown = [Try(value="1", time=time) for time in times]
        assert [mark.x for mark in plot("p", shown).marks] == [8, 160, 312]
    # Clocks of two replicas may differ.
    assert [mark.x for mark in plot("p", late[::-1]).marks] == [8, 160, 312]


@pytest.mark.parametrize(
    "values",
    [("5",), ("5", "5"), ("1e308", "-1e308"), ("1e-320", "0"), ("0", "0.0", "-0")],
)
@pytest.mark.parametrize("target", ["", "<5", ">=1e308,<1e309", ">5,<3", "<Inf", "nonsense"])
def test_every_mark_is_within_the_drawing(values, target):
    drawn = plot("p", series(*values), target)
    for y in (*(mark.y for mark in drawn.marks), *(y for y, _ in drawn.rules)):
        assert 0 <= y <= HEIGHT
    assert all(0 <= mark.x <= WIDTH for mark in drawn.marks)


def test_the_state_of_a_try_counts_before_the_target():
    # The target may have changed since.
    (mark,) = plot("p", series("5", status="Failed"), "<10").marks
    assert mark.kind == "unmet"
    (mark,) = plot("p", series("5")).marks
    assert mark.kind == "plain"
    (mark,) = plot("p", series("5"), "nonsense").marks
    assert mark.kind == "plain"


def test_the_newest_measurements_are_shown():
    drawn = plot("p", [Try(value=str(number)) for number in range(MOST + 10)])
    assert len(drawn.marks) == MOST
    assert drawn.marks[-1].measured.value == str(MOST + 9)
