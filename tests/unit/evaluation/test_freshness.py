"""The values of metrics, and their age."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from harbourmaster.api.metadata import Metadata
from harbourmaster.api.times import format_rfc3339
from harbourmaster.evaluation.freshness import Value, age_limit, is_fresh, newest_value, read_metric
from harbourmaster.evaluation.metric_status import question_hash
from harbourmaster.evaluation.model import (
    IntervalResult,
    Metric,
    MetricRange,
    MetricSpec,
    MetricStatus,
)
from harbourmaster.evaluation.objectives import Reading

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


def stored(value, age, fault=""):
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
    results = [stored("1", 60), stored("2", 20), stored("", 5, "timed out")]
    tested = metric("", "", raw="", results=results)
    assert newest_value(tested) == Value("2", ago(20))
    assert read_metric(tested, INTERVALS, NOW) == Reading("2")
    assert is_fresh(tested, INTERVALS, NOW)


def test_a_stored_result_with_a_fault_has_no_value_whatever_it_says():
    # Keptn leaves one there.
    tested = metric("", "", results=(stored("1", 60), stored("2", 30, "refused")))
    assert newest_value(tested) == Value("1", ago(60))


def test_stored_results_grow_old_as_well():
    tested = metric("", "", raw="", results=[stored("1", 200)])
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
