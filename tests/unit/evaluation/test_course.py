from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from harbourmaster.evaluation.course import (
    FAILED,
    PENDING,
    PROGRESSING,
    SUCCEEDED,
    Course,
    allowed,
    exhausted,
    measure,
    summary,
    time_left,
    undefined,
)
from harbourmaster.evaluation.objectives import Objective, Reading, Result, missing

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
CPUS = Objective("cpus", ">5")
ERRORS = Objective("errors", "<1")


class Metrics:
    """What is measured, by the metric's name; ``asked`` has the names."""

    def __init__(self, **values):
        self.values = values
        self.asked = []

    def __call__(self, objective):
        self.asked.append(objective.metric)
        value = self.values.get(objective.metric)
        return missing(objective.metric) if value is None else Reading(value)


def test_without_objectives_it_succeeds_at_once():
    assert measure(Course(), [], Metrics()) == Course(1, {}, SUCCEEDED)


def test_it_goes_on_until_all_objectives_are_met():
    metrics = Metrics(cpus="3", errors="0")
    course = measure(Course(), [CPUS, ERRORS], metrics)
    assert (course.tries, course.state, course.is_over) == (1, PROGRESSING, False)
    metrics.values["cpus"] = "6"
    course = measure(course, [CPUS, ERRORS], metrics)
    assert (course.tries, course.state, course.is_over) == (2, SUCCEEDED, True)


def test_c76_an_objective_once_met_stays_met_and_is_not_read_again():
    metrics = Metrics(cpus="6", errors="7")
    course = measure(Course(), [CPUS, ERRORS], metrics)
    metrics.values = {"cpus": "0", "errors": "7"}
    course = measure(course, [CPUS, ERRORS], metrics)
    metrics.values = {"errors": "0"}
    course = measure(course, [CPUS, ERRORS], metrics)
    assert (course.tries, course.state) == (3, SUCCEEDED)
    assert course.results["cpus"] == Result("6", SUCCEEDED, "value '6' met objective '>5'")
    assert metrics.asked == ["cpus", "errors", "errors", "errors"]


def test_a_success_is_measured_again_where_the_target_has_changed():
    course = measure(Course(), [CPUS, ERRORS], Metrics(cpus="6", errors="7"))
    stricter = msgspec.structs.replace(CPUS, target=">50")
    course = measure(course, [stricter, ERRORS], Metrics(cpus="6", errors="0"))
    assert (course.state, course.results["cpus"].status) == (PROGRESSING, FAILED)


def test_without_stickiness_all_are_met_by_the_same_measurement():
    course = measure(Course(), [CPUS, ERRORS], Metrics(cpus="6", errors="7"), is_sticky=False)
    course = measure(course, [CPUS, ERRORS], Metrics(cpus="0", errors="0"), is_sticky=False)
    assert (course.state, course.results["cpus"].status) == (PROGRESSING, FAILED)
    course = measure(course, [CPUS, ERRORS], Metrics(cpus="6", errors="0"), is_sticky=False)
    assert course.state == SUCCEEDED


def test_a_summary_keeps_what_was_not_met_and_what_is_inconclusive_apart():
    third = Objective("time", "<1")
    course = measure(Course(), [CPUS, ERRORS, third], Metrics(cpus="6", errors="7"))
    assert summary(course) == "not met: errors; inconclusive: time"
    assert summary(measure(Course(), [CPUS], Metrics(cpus="6"))) == ""


def test_an_objective_that_is_gone_is_forgotten():
    course = measure(Course(), [CPUS, ERRORS], Metrics(errors="0"))
    course = measure(course, [ERRORS], Metrics())
    assert (course.state, list(course.results)) == (SUCCEEDED, ["errors"])


def test_two_objectives_for_one_metric_are_both_needed():
    course = measure(Course(), [CPUS, Objective("cpus", "<10")], Metrics(cpus="20"))
    assert course.state == PROGRESSING
    assert {each.status for each in course.results.values()} == {SUCCEEDED, FAILED}


def test_the_verdict_after_the_last_try_keeps_what_was_measured():
    course = measure(Course(), [CPUS], Metrics(cpus="3"))
    assert exhausted(course) == Course(1, course.results, FAILED)


@pytest.mark.parametrize(("retries", "tries"), [(-1, 1), (0, 1), (1, 1), (10, 10)])
def test_there_are_as_many_measurements_as_retries_and_one_at_least(retries, tries):
    assert allowed(retries) == tries


def test_without_its_definition_it_waits_and_says_so():
    course = undefined(Course(), "checks")
    waiting = Result("", PENDING, "keptnevaluationdefinition 'checks' not found")
    assert course == Course(0, {"checks": waiting}, PENDING)
    assert undefined(course, "checks") == course


def test_what_was_measured_outlives_the_loss_of_the_definition():
    named = Objective("checks", ">5")
    before = measure(Course(), [named, ERRORS], Metrics(checks="6"))
    after = undefined(before, "checks")
    assert after.results == before.results
    assert measure(after, [named, ERRORS], Metrics(errors="0")).state == SUCCEEDED


def test_the_next_look_is_an_interval_after_the_last():
    last = NOW - timedelta(seconds=1)
    assert time_left(last, 3.0, NOW) == 2.0
    assert time_left(last, 1.0, NOW) == 0.0
    assert time_left(last, 0.5, NOW) == -0.5
