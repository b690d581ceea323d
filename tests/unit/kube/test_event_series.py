"""Series of occurrences, allowances, and texts that the API accepts."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harbourmaster.kube.event_series import (
    Allowance,
    Bucket,
    Limiter,
    ObjectReference,
    Series,
    SeriesTable,
    occurrence,
    shorten,
)
from helpers.properties import cases

POD = ObjectReference("v1", "Pod", "a", "prod", uid="1", resource_version="7")


def occurrence_of(note="it happened", regarding=POD, kind="Normal", reason="Done", action="Act"):
    return occurrence(regarding, kind, reason, note, action)


def series(what=None, seen=0.0, told=1, count=1):
    what = what or occurrence_of()
    return Series(what, "name", first="t", last="t", seen=seen, told=told, count=count)


def test_a_reference_is_written_with_the_fields_that_it_has():
    assert msgspec.json.decode(msgspec.json.encode(ObjectReference("v1", "Node", "n"))) == {
        "apiVersion": "v1",
        "kind": "Node",
        "name": "n",
    }
    assert msgspec.json.decode(msgspec.json.encode(POD)) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "a",
        "namespace": "prod",
        "uid": "1",
        "resourceVersion": "7",
    }


@given(st.text(), st.integers(3, 40))
@settings(max_examples=cases(200))
def test_a_cut_text_fits_and_is_text(text, limit):
    cut = shorten(text, limit)
    assert len(cut.encode()) <= limit
    assert cut == text or cut.endswith("…") or "?" in cut
    assert text.startswith(cut.removesuffix("…")) or "?" in cut


def test_a_note_is_cut_to_what_the_api_takes():
    what = occurrence_of(note="ü" * 600, reason="R" * 200, action="A" * 200)
    assert what.note == "ü" * 510 + "…"
    assert (len(what.reason.encode()), len(what.action.encode())) == (128, 128)
    assert occurrence_of(note="ü" * 512).note == "ü" * 512


def test_half_a_character_is_no_error():
    assert occurrence_of(note="\ud800").note == "?"


@pytest.mark.parametrize(
    "changed",
    [
        occurrence_of(note="else"),
        occurrence_of(kind="Warning"),
        occurrence_of(reason="Else"),
        occurrence_of(action="Else"),
        occurrence_of(regarding=msgspec.structs.replace(POD, uid="2")),
        occurrence_of(regarding=msgspec.structs.replace(POD, namespace="test")),
    ],
)
def test_what_differs_is_another_series(changed):
    table = SeriesTable(10, 360)
    table.begin(series())
    assert table.count_again(changed, 1.0, "u") is None


def test_the_same_of_another_version_is_counted():
    table = SeriesTable(10, 360)
    begun = series()
    table.begin(begun)
    newer = msgspec.structs.replace(POD, resource_version="8")
    assert table.count_again(occurrence_of(regarding=newer), 360.0, "u") is begun
    assert (begun.count, begun.first, begun.last, begun.is_behind) == (2, "t", "u", True)


def test_a_series_ends_when_it_was_quiet():
    table = SeriesTable(10, 360)
    table.begin(series())
    assert table.count_again(occurrence_of(), 300.0, "u") is not None
    assert table.count_again(occurrence_of(), 660.0, "u") is not None
    assert table.count_again(occurrence_of(), 1020.1, "u") is None


def test_the_oldest_series_is_forgotten_and_a_lost_count_is_told():
    table = SeriesTable(2, 360)
    first, two, three, four = (series(occurrence_of(note=note)) for note in ("1", "2", "3", "4"))
    assert table.begin(first) is None
    assert table.begin(two) is None
    table.count_again(first.occurrence, 1.0, "u")
    assert table.begin(three) is None
    assert list(table) == [first, three]
    assert table.begin(four) is first


def test_series_that_have_ended_are_forgotten_by_the_next_one_unless_a_count_is_to_be_told():
    table = SeriesTable(10, 360)
    first, two, three, four = (
        series(occurrence_of(note=note), seen=seen, told=told)
        for note, seen, told in (("1", 0.0, 1), ("2", 1.0, 1), ("3", 360.5, 0), ("4", 900.0, 1))
    )
    for entry in (first, two, three):
        table.begin(entry)
    assert list(table) == [two, three]
    table.begin(four)
    assert list(table) == [three, four]


def test_a_series_that_begins_anew_replaces_the_old_one():
    table = SeriesTable(2, 360)
    old, new = series(count=3), series()
    table.begin(old)
    assert table.begin(new) is old
    assert list(table) == [new]
    table.forget(old)
    assert list(table) == [new]
    table.forget(new)
    assert len(table) == 0


def test_an_allowance_is_spent_and_comes_back():
    limiter = Limiter(Allowance(burst=25, period=300), 10)
    taken = 0
    while not limiter.wait("a", 0.0):
        limiter.take("a", 0.0)
        taken += 1
    assert taken == 25
    assert not limiter.wait("b", 0.0)
    assert limiter.wait("a", 299.9) == pytest.approx(0.1)
    assert not limiter.wait("a", 300.0)
    limiter.take("a", 300.0)
    assert limiter.wait("a", 300.0)


def test_no_more_comes_back_than_the_burst():
    allowance = Allowance(burst=2, period=1)
    assert Bucket(0.0, 0.0).refill(allowance, 1e9) == Bucket(2.0, 1e9)


def test_a_clock_that_goes_back_takes_nothing():
    assert Bucket(1.0, 10.0).refill(Allowance(2, 1), 5.0).tokens == 1.0


def test_a_limiter_remembers_the_latest_ones():
    limiter = Limiter(Allowance(1, 300), 2)
    for key in "abc":
        limiter.take(key, 0.0)
    assert len(limiter) == 2
    assert [bool(limiter.wait(key, 0.0)) for key in "abc"] == [False, True, True]


def test_a_limiter_forgets_whose_allowance_is_full_again():
    limiter = Limiter(Allowance(burst=5, period=10.0), 1000)
    for key in range(100):
        limiter.take(key, float(key))
    # Each is full again after ten seconds.
    assert len(limiter) == 10
    limiter.take("late", 1000.0)
    assert len(limiter) == 1
    assert not limiter.wait(99, 1000.0)
