"""Objectives are measured until they are met (keptn-spec 4.1)."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from harbourmaster.evaluation.model import PENDING, PROGRESSING
from harbourmaster.evaluation.objectives import (
    FAILED,
    SUCCEEDED,
    Objective,
    Progress,
    Reading,
    Result,
    by_result_key,
    fail_after_tries,
    is_inconclusive,
    is_still_met,
    judge,
    max_tries,
    measure,
    missing_metric,
    summarize_unmet,
    wait_for_definition,
)


def judge_value(value, target):
    return judge(Objective("cpus", target), Reading(value))


@pytest.mark.parametrize(
    ("value", "result"),
    [
        ("10", Result("10", SUCCEEDED, "value '10' met objective '>5'")),
        ("5", Result("5", FAILED, "value '5' did not meet objective '>5'")),
        ("3", Result("3", FAILED, "value '3' did not meet objective '>5'")),
    ],
)
def test_c71_the_comparison_is_strict_and_its_message_exact(value, result):
    assert judge_value(value, ">5") == result


@pytest.mark.parametrize("target", ["=5", "5", ""])
def test_c72_another_operator_is_invalid(target):
    result = judge_value("10", target)
    assert (result.value, result.status) == ("10", FAILED)
    assert result.message.startswith(f"invalid operator in objective '{target}': ")


def test_c73_at_least_is_supported():
    assert judge_value("5", ">=5") == Result("5", SUCCEEDED, "value '5' met objective '>=5'")
    assert judge_value("4", ">=5") == Result("4", FAILED, "value '4' did not meet objective '>=5'")


@pytest.mark.parametrize("value", ["abc", "5%", " 5", "1,000"])
def test_a_value_that_is_no_number_is_inconclusive(value):
    message = f"inconclusive: value '{value}' is not a number"
    assert judge_value(value, ">5") == Result(value, FAILED, message)


@pytest.mark.parametrize("value", ["NaN", "Inf", "+Inf", "-Inf"])
def test_a_value_that_is_not_finite_is_inconclusive(value):
    message = f"inconclusive: value '{value}' is not a finite number"
    assert judge_value(value, ">-Inf") == Result(value, FAILED, message)
    assert judge_value(value, "!=0") == Result(value, FAILED, message)


def test_a_target_that_cannot_be_read_is_told_whatever_the_value():
    result = judge(Objective("cpus", "5"), missing_metric("cpus", ["shop", "keptn"]))
    assert result.message.startswith("invalid operator")
    assert not is_inconclusive(result)


def test_a_huge_value_is_cut():
    result = judge_value("x" * 1_000_000, ">5")
    assert len(result.value) == 128
    assert len(result.message) < 200


def test_c74_what_is_not_there_is_inconclusive_and_says_so():
    result = judge(Objective("cpus", ">5"), missing_metric("cpus", ["shop", "keptn"]))
    message = (
        "inconclusive: KeptnMetric cpus not found in namespace shop or keptn: "
        "create it there, or set keptnMetricRef.namespace"
    )
    assert result == Result("", FAILED, message)
    assert is_inconclusive(result)
    assert not is_inconclusive(judge_value("3", ">5"))


A = Objective("cpus", ">5")
B = Objective("cpus", "<10")
IN_PROD = Objective("cpus", ">5", "prod")
IN_TEST = Objective("cpus", ">5", "test")
IN_TEST_LESS = Objective("cpus", "<9", "test")
OTHER = Objective("errors", "<1")


@pytest.mark.parametrize(
    ("objectives", "keys"),
    [
        ([], {}),
        ([A], {"cpus": A}),
        ([IN_PROD], {"cpus": IN_PROD}),
        ([A, OTHER], {"cpus": A, "errors": OTHER}),
        ([A, B], {"cpus#2": A, "cpus": B}),
        ([A, IN_PROD], {"cpus": A, "cpus/prod": IN_PROD}),
        ([IN_PROD, IN_TEST], {"cpus": IN_PROD, "cpus/test": IN_TEST}),
        ([A, IN_TEST, IN_TEST_LESS], {"cpus": A, "cpus/test": IN_TEST_LESS, "cpus#3": IN_TEST}),
        ([A, A], {"cpus": A}),
    ],
)
def test_objectives_for_one_metric_do_not_collide(objectives, keys):
    assert by_result_key(objectives) == keys
    assert by_result_key(reversed(objectives)) == keys


@pytest.mark.parametrize(
    ("result", "holds"),
    [
        (None, False),
        (Result("10", SUCCEEDED, "value '10' met objective '>5'"), True),
        # Keptn's statuses are adopted, and so are those that other clients wrote.
        (Result("10", SUCCEEDED, ""), True),
        (Result("10", SUCCEEDED, "value '10' met objective '>50'"), False),
        (Result("10", SUCCEEDED, "value '10' met objective '>=>5'"), False),
        (Result("3", FAILED, "value '3' did not meet objective '>5'"), False),
        (Result("", "Pending", ""), False),
    ],
)
def test_a_success_stays_one_until_its_target_changes(result, holds):
    assert is_still_met(A, result) is holds


NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
CPUS = Objective("cpus", ">5")
ERRORS = Objective("errors", "<1")


class Metrics:
    """The values of metrics by name; ``asked`` has the names that were read."""

    def __init__(self, **values):
        self.values = values
        self.asked = []

    def __call__(self, objective):
        self.asked.append(objective.metric)
        value = self.values.get(objective.metric)
        return missing_metric(objective.metric, ["shop"]) if value is None else Reading(value)


def test_without_objectives_it_succeeds_at_once():
    assert measure(Progress(), [], Metrics()) == Progress(1, {}, SUCCEEDED)


def test_it_goes_on_until_all_objectives_are_met():
    metrics = Metrics(cpus="3", errors="0")
    progress = measure(Progress(), [CPUS, ERRORS], metrics)
    assert (progress.tries, progress.state, progress.is_over) == (1, PROGRESSING, False)
    metrics.values["cpus"] = "6"
    progress = measure(progress, [CPUS, ERRORS], metrics)
    assert (progress.tries, progress.state, progress.is_over) == (2, SUCCEEDED, True)


def test_c76_an_objective_once_met_stays_met_and_is_not_read_again():
    metrics = Metrics(cpus="6", errors="7")
    progress = measure(Progress(), [CPUS, ERRORS], metrics)
    metrics.values = {"cpus": "0", "errors": "7"}
    progress = measure(progress, [CPUS, ERRORS], metrics)
    metrics.values = {"errors": "0"}
    progress = measure(progress, [CPUS, ERRORS], metrics)
    assert (progress.tries, progress.state) == (3, SUCCEEDED)
    assert progress.results["cpus"] == Result("6", SUCCEEDED, "value '6' met objective '>5'")
    assert metrics.asked == ["cpus", "errors", "errors", "errors"]


def test_a_success_is_measured_again_where_the_target_has_changed():
    progress = measure(Progress(), [CPUS, ERRORS], Metrics(cpus="6", errors="7"))
    stricter = msgspec.structs.replace(CPUS, target=">50")
    progress = measure(progress, [stricter, ERRORS], Metrics(cpus="6", errors="0"))
    assert (progress.state, progress.results["cpus"].status) == (PROGRESSING, FAILED)


def test_without_stickiness_all_are_met_by_the_same_measurement():
    progress = measure(Progress(), [CPUS, ERRORS], Metrics(cpus="6", errors="7"), is_sticky=False)
    progress = measure(progress, [CPUS, ERRORS], Metrics(cpus="0", errors="0"), is_sticky=False)
    assert (progress.state, progress.results["cpus"].status) == (PROGRESSING, FAILED)
    progress = measure(progress, [CPUS, ERRORS], Metrics(cpus="6", errors="0"), is_sticky=False)
    assert progress.state == SUCCEEDED


def test_a_summary_keeps_what_was_not_met_and_what_is_inconclusive_apart():
    third = Objective("time", "<1")
    progress = measure(Progress(), [CPUS, ERRORS, third], Metrics(cpus="6", errors="7"))
    assert summarize_unmet(progress) == "not met: errors; inconclusive: time"
    assert summarize_unmet(measure(Progress(), [CPUS], Metrics(cpus="6"))) == ""


def test_an_objective_that_is_gone_is_forgotten():
    progress = measure(Progress(), [CPUS, ERRORS], Metrics(errors="0"))
    progress = measure(progress, [ERRORS], Metrics())
    assert (progress.state, list(progress.results)) == (SUCCEEDED, ["errors"])


def test_two_objectives_for_one_metric_are_both_needed():
    progress = measure(Progress(), [CPUS, Objective("cpus", "<10")], Metrics(cpus="20"))
    assert progress.state == PROGRESSING
    assert {result.status for result in progress.results.values()} == {SUCCEEDED, FAILED}


def test_the_verdict_after_the_last_try_keeps_what_was_measured():
    progress = measure(Progress(), [CPUS], Metrics(cpus="3"))
    assert fail_after_tries(progress) == Progress(1, progress.results, FAILED)


@pytest.mark.parametrize(("retries", "tries"), [(-1, 1), (0, 1), (1, 1), (10, 10), (2**31, 10_000)])
def test_there_are_as_many_measurements_as_retries_and_one_at_least(retries, tries):
    assert max_tries(retries) == tries


def test_without_its_definition_it_waits_and_says_so():
    progress = wait_for_definition(Progress(), "checks")
    waiting = Result("", PENDING, "keptnevaluationdefinition 'checks' not found")
    assert progress == Progress(0, {"checks": waiting}, PENDING)
    assert wait_for_definition(progress, "checks") == progress


def test_what_was_measured_outlives_the_loss_of_the_definition():
    named = Objective("checks", ">5")
    before = measure(Progress(), [named, ERRORS], Metrics(checks="6"))
    after = wait_for_definition(before, "checks")
    assert after.results == before.results
    assert measure(after, [named, ERRORS], Metrics(errors="0")).state == SUCCEEDED
