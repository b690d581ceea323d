"""The timeframe of an analysis, and the values of its status."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from harbourmaster.evaluation.analysis_progress import (
    by_status_key,
    from_status,
    range_step,
    resolve_timeframe,
    retry_delay,
    template_references,
    timeframe_bounds,
)
from harbourmaster.evaluation.model import (
    AnalysisObjective,
    ObjectReference,
    StoredValue,
    Timeframe,
)

NOW = datetime(2026, 3, 1, 12, 0, 0, 700_000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("wanted", "begin", "end"),
    [
        (Timeframe(recent="5m"), "2026-03-01T11:55:00Z", "2026-03-01T12:00:00Z"),
        (Timeframe(recent="1h30m"), "2026-03-01T10:30:00Z", "2026-03-01T12:00:00Z"),
        (Timeframe(recent="1ms"), "2026-03-01T11:59:59Z", "2026-03-01T12:00:00Z"),
        (
            Timeframe(from_="2026-01-01T01:00:00+01:00", to="2026-01-01T00:05:00.9Z", recent="0s"),
            "2026-01-01T00:00:00Z",
            "2026-01-01T00:05:00Z",
        ),
    ],
)
def test_the_time_is_frozen_in_whole_seconds(wanted, begin, end):
    assert resolve_timeframe(wanted, NOW) == Timeframe(from_=begin, to=end)


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (Timeframe(), "timeframe: give recent, or both from and to"),
        (Timeframe(from_="2026-01-01T00:00:00Z"), "timeframe: give recent, or both from and to"),
        (
            Timeframe(recent="5m", to="2026-01-01T00:00:00Z"),
            "timeframe: give recent, or both from and to",
        ),
        (
            Timeframe(from_="2026-01-01T00:00:00Z", to="2026-01-01T00:00:00Z"),
            "timeframe.to must be after from, which is 2026-01-01T00:00:00Z",
        ),
        (
            Timeframe(from_="yesterday", to="2026-01-01T00:00:00Z"),
            "timeframe.from is not a time: write for example 2026-01-31T12:00:00Z",
        ),
        (
            Timeframe(recent="five minutes"),
            'timeframe.recent "five minutes" is not a duration: write for example 30s, 5m or 1h30m',
        ),
        (Timeframe(recent="-5m"), "timeframe.recent must not be negative"),
    ],
)
def test_c95_a_time_that_is_none(wanted, text):
    with pytest.raises(ValueError, match=r"^timeframe") as caught:
        resolve_timeframe(wanted, NOW)
    assert str(caught.value) == text


def test_the_bounds_are_seconds():
    begin, end = timeframe_bounds(
        Timeframe(from_="1970-01-01T00:01:00Z", to="1970-01-01T00:05:00Z")
    )
    assert (begin, end) == (60, 300)


@pytest.mark.parametrize(
    ("minutes", "expected"), [(1, 60), (5, 60), (4999, 60), (5001, 120), (525_600, 106 * 60)]
)
def test_a_value_a_minute_unless_there_are_too_many(minutes, expected):
    assert range_step(1000, 1000 + minutes * 60) == expected
    assert minutes * 60 / expected <= 5000


def test_waits_grow_to_a_limit():
    assert [retry_delay(attempt) for attempt in (0, 1, 2, 3, 4, 5, 1000)] == [
        10,
        20,
        40,
        80,
        160,
        300,
        300,
    ]


def named(name, namespace=""):
    return ObjectReference(name=name, namespace=namespace)


def stored(reference, **fields):
    return StoredValue(objective_reference=reference, **fields)


def test_each_template_is_needed_once():
    objectives = [
        AnalysisObjective(analysis_value_template_ref=reference)
        for reference in (named("a"), named("b"), named("a"), named("a", "x"))
    ]
    assert template_references(objectives) == (named("a"), named("b"), named("a", "x"))


def test_values_are_stored_by_template_and_namespace():
    values = {
        reference: stored(reference) for reference in (named("a"), named("a", "x"), named("a-x"))
    }
    by_key = by_status_key(values)
    assert list(by_key) == ["a", "a-x", "a-x#2"]
    assert [reference.objective_reference for reference in by_key.values()] == list(values)


def test_what_was_stored_is_recalled_but_for_faults():
    good, bad = stored(named("a"), query="q", value="1"), stored(named("b"), err_msg="no")
    assert from_status({"a": good, "b": bad, "c": StoredValue(value="1")}) == {named("a"): good}
