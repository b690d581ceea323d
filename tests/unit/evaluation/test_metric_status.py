"""Answers of providers become the status of a metric (keptn-spec 4.2)."""

from __future__ import annotations

from base64 import b64decode
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from harbourmaster.api.metadata import Metadata
from harbourmaster.api.times import format_rfc3339
from harbourmaster.evaluation.metric_status import (
    KEPT_RAW,
    MAX_RAW,
    Value,
    age_limit,
    aggregate,
    is_fresh,
    measurement_time,
    newest_value,
    question_hash,
    read_metric,
    status_after_answer,
    status_after_fault,
    value_time,
    without_raw,
)
from harbourmaster.evaluation.model import (
    IntervalResult,
    Metric,
    MetricRange,
    MetricSpec,
    MetricStatus,
)
from harbourmaster.evaluation.objectives import Reading

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


NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
INTERVALS = 2.0


def ago(seconds):
    return format_rfc3339(NOW - timedelta(seconds=seconds))


def metric(value="10", age=0, *, every=30, raw="MTA=", fault="", results=()):
    return Metric(
        metadata=Metadata(name="cpus", namespace="prod"),
        spec=MetricSpec(fetch_interval_seconds=every),
        status=MetricStatus(
            value=value,
            raw_value=raw,
            last_updated=age if isinstance(age, str) else ago(age),
            err_msg=fault,
            interval_results=tuple(results),
        ),
    )


def stored_result(value, age, fault=""):
    return IntervalResult(value=value, range=MetricRange(), last_updated=ago(age), err_msg=fault)


def test_a_metric_counts_with_both_values():
    assert read_metric(metric(), INTERVALS, NOW) == Reading("10")


@pytest.mark.parametrize(
    ("unusable", "fault"),
    [
        (metric("", raw=""), "empty value for: cpus"),
        (
            metric("", raw="", fault="no values in query result"),
            "empty value for: cpus: no values ",
        ),
        (metric(raw=""), "empty rawValue for: cpus"),
    ],
)
def test_c74_what_is_not_there_is_named(unusable, fault):
    assert read_metric(unusable, INTERVALS, NOW).fault.startswith(fault)
    assert read_metric(unusable, INTERVALS, NOW).value == ""


def test_a_value_counts_for_its_intervals_and_ten_seconds():
    assert age_limit(metric(every=30), INTERVALS) == 70
    assert read_metric(metric(age=70), INTERVALS, NOW) == Reading("10")
    fault = "the value of cpus is 1m11s old, longer than 1m10s"
    assert read_metric(metric(age=71), INTERVALS, NOW) == Reading(fault=fault)
    assert read_metric(metric(age=71), 3.0, NOW) == Reading("10")


def test_a_failed_query_is_no_harm_while_the_value_is_fresh():
    assert read_metric(metric(age=40, fault="timed out"), INTERVALS, NOW) == Reading("10")
    reading = read_metric(metric(age=100, fault="timed out\nat once"), INTERVALS, NOW)
    assert reading.fault.endswith("longer than 1m10s: timed out at once")
    assert reading.value == ""


@pytest.mark.parametrize("stamped", ["", "yesterday", "2026-13-01T00:00:00Z"])
def test_a_value_without_a_time_does_not_count(stamped):
    reading = read_metric(metric(age=stamped), INTERVALS, NOW)
    assert reading == Reading(fault="the age of the value of cpus is unknown")


def test_a_value_of_a_time_to_come_does_not_count_for_ever():
    assert read_metric(metric(age=-60), INTERVALS, NOW) == Reading("10")
    fault = "the value of cpus has a time in the future, 2099-01-01T00:00:00Z"
    assert read_metric(metric(age="2099-01-01T00:00:00Z"), INTERVALS, NOW) == Reading(fault=fault)


def test_the_newest_stored_result_counts_where_there_is_no_value():
    results = [stored_result("1", 60), stored_result("2", 20), stored_result("", 5, "timed out")]
    tested = metric("", "", raw="", results=results)
    assert newest_value(tested) == Value("2", ago(20))
    assert read_metric(tested, INTERVALS, NOW) == Reading("2")
    assert is_fresh(tested, INTERVALS, NOW)


def test_a_stored_result_with_a_fault_has_no_value_whatever_it_says():
    # Keptn leaves one there.
    tested = metric("", "", results=(stored_result("1", 60), stored_result("2", 30, "refused")))
    assert newest_value(tested) == Value("1", ago(60))


def test_stored_results_grow_old_as_well():
    tested = metric("", "", raw="", results=[stored_result("1", 200)])
    assert "3m20s old" in read_metric(tested, INTERVALS, NOW).fault
    assert not is_fresh(tested, INTERVALS, NOW)


def test_nothing_is_not_fresh():
    assert not is_fresh(metric("", ""), INTERVALS, NOW)
    assert newest_value(metric("", "")) == Value()


def test_a_value_of_another_question_does_not_count():
    tested = metric()
    asked = msgspec.structs.replace(tested.status, question=question_hash(tested.spec))
    tested = msgspec.structs.replace(tested, status=asked)
    assert read_metric(tested, INTERVALS, NOW) == Reading("10")
    slower = msgspec.structs.replace(tested.spec, fetch_interval_seconds=3600)
    assert read_metric(msgspec.structs.replace(tested, spec=slower), INTERVALS, NOW) == Reading(
        "10"
    )
    spec = msgspec.structs.replace(tested.spec, query="other")
    fault = "the value of cpus is from before its query was changed"
    edited = msgspec.structs.replace(tested, spec=spec)
    assert read_metric(edited, INTERVALS, NOW) == Reading(fault=fault)
    assert not is_fresh(edited, INTERVALS, NOW)


def test_c94_a_percentile_is_of_sorted_values():
    assert aggregate("p90", [5, 1, 4, 2, 3]) == 5


@pytest.mark.parametrize(
    ("name", "expected"),
    [("max", 20), ("min", 1), ("avg", 10.5), ("median", 10.5), ("p90", 18), ("p95", 19)],
)
def test_twenty_values(name, expected):
    assert aggregate(name, [*range(20, 10, -1), *range(1, 11)]) == expected


@pytest.mark.parametrize("name", ["max", "min", "avg", "median", "p90", "p95", "p99"])
def test_one_value_is_all_of_them(name):
    assert aggregate(name, [7.25]) == 7.25


def test_p99_of_two_hundred_values_is_the_one_before_the_last_two():
    assert aggregate("p99", range(200, 0, -1)) == 198


def test_the_median_of_an_odd_count_is_the_middle_one():
    assert aggregate("median", [3, 1, 2]) == 2


def test_means_of_the_largest_numbers_are_finite():
    assert aggregate("avg", [1.7e308, 1.7e308, 1.7e308]) == pytest.approx(1.7e308)
    assert aggregate("median", [1.7e308, 1.7e308]) == pytest.approx(1.7e308)
