from __future__ import annotations

from base64 import b64decode

import msgspec

from harbourmaster.evaluation.metric_status import (
    KEPT_RAW,
    MAX_RAW,
    measurement_time,
    question_hash,
    status_after_answer,
    status_after_fault,
    value_time,
    without_raw,
)
from harbourmaster.evaluation.model import IntervalResult, MetricRange, MetricSpec, MetricStatus

PLAIN = MetricSpec()
SPAN = MetricRange(interval="3m", stored_results=3)
STORING = MetricSpec(range=SPAN)
TIME = "2026-03-01T12:00:00Z"
LATER = "2026-03-01T12:01:00Z"
GOOD = MetricStatus(value="4", raw_value="IjQi", last_updated=TIME, question=question_hash(PLAIN))


def test_an_answer_is_value_raw_value_and_time():
    assert status_after_answer(MetricStatus(), PLAIN, "4", b'"4"', TIME) == GOOD


def test_c92_a_fault_leaves_value_and_time_as_they_are():
    status = status_after_fault(GOOD, PLAIN, "no values in query result", LATER)
    assert status == msgspec.structs.replace(GOOD, err_msg="no values in query result")
    assert status_after_answer(status, PLAIN, "4", b'"4"', TIME) == GOOD


def test_c93_of_five_results_the_last_three_are_kept():
    status = MetricStatus()
    for second in range(5):
        status = status_after_answer(
            status, STORING, str(second), b"-", f"2026-03-01T12:00:0{second}Z"
        )
    assert [result.value for result in status.interval_results] == ["2", "3", "4"]
    assert status.interval_results[-1] == IntervalResult(
        value="4", range=SPAN, last_updated="2026-03-01T12:00:04Z"
    )
    assert (status.value, status.raw_value, status.last_updated) == ("", "", "")


def test_a_fault_is_a_stored_result_without_a_value():
    status = status_after_fault(
        status_after_answer(MetricStatus(), STORING, "4", b"", TIME), STORING, "gone", LATER
    )
    assert status.err_msg == "gone"
    assert status.interval_results[-1] == IntervalResult(
        value="", range=SPAN, last_updated=LATER, err_msg="gone"
    )
    assert value_time(status) == TIME


def test_another_fault_takes_the_place_of_the_one_before():
    status = status_after_fault(
        status_after_answer(MetricStatus(), STORING, "4", b"", TIME), STORING, "gone", LATER
    )
    status = status_after_fault(status, STORING, "refused", LATER)
    assert [result.err_msg for result in status.interval_results] == ["", "refused"]


def test_fewer_results_are_wanted():
    status = MetricStatus()
    for value in "123":
        status = status_after_answer(status, STORING, value, b"", TIME)
    fewer = MetricSpec(range=MetricRange(stored_results=1))
    assert [
        result.value
        for result in status_after_answer(status, fewer, "4", b"", TIME).interval_results
    ] == ["4"]
    assert (
        len(
            status_after_fault(
                status_after_fault(status, STORING, "a", TIME), fewer, "a", TIME
            ).interval_results
        )
        == 1
    )


def test_what_is_stored_no_more_or_from_now_on_leaves_nothing_of_the_other():
    stored = status_after_answer(GOOD, STORING, "5", b"", LATER)
    assert (stored.value, stored.raw_value) == ("", "")
    assert status_after_answer(stored, PLAIN, "4", b'"4"', TIME) == GOOD
    assert status_after_fault(stored, PLAIN, "gone", LATER) == MetricStatus(err_msg="gone")


def test_a_provider_that_says_nothing_but_the_value_has_said_the_value():
    assert b64decode(status_after_answer(MetricStatus(), PLAIN, "4", b"", TIME).raw_value) == b"4"


def test_the_first_megabyte_of_what_was_said_is_kept_and_little_of_it_in_memory():
    status = status_after_answer(MetricStatus(), PLAIN, "4", b"x" * (MAX_RAW + 1), TIME)
    assert b64decode(status.raw_value) == b"x" * MAX_RAW
    kept = without_raw(status)
    assert len(kept.raw_value) == KEPT_RAW
    assert kept.value == "4"
    assert without_raw(GOOD) is GOOD


def test_a_sample_from_long_ago_keeps_its_own_time():
    assert measurement_time(1000.0, 1000.0, 0.0) == 1000.0
    assert measurement_time(700.0, 1000.0, 0.0) == 1000.0
    assert measurement_time(699.0, 1000.0, 0.0) == 699.0
    assert measurement_time(101.0, 1000.0, 600.0) == 1000.0
    assert measurement_time(99.0, 1000.0, 600.0) == 99.0
