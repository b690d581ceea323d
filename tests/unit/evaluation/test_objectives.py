from __future__ import annotations

import pytest

from harbourmaster.evaluation.objectives import (
    FAILED,
    SUCCEEDED,
    Objective,
    Reading,
    Result,
    by_result_key,
    is_inconclusive,
    is_still_met,
    judge,
    missing_metric,
)


def judged(value, target):
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
    assert judged(value, ">5") == result


@pytest.mark.parametrize("target", ["=5", "5", ""])
def test_c72_another_operator_is_invalid(target):
    result = judged("10", target)
    assert (result.value, result.status) == ("10", FAILED)
    assert result.message.startswith(f"invalid operator in objective '{target}': ")


def test_c73_at_least_is_supported():
    assert judged("5", ">=5") == Result("5", SUCCEEDED, "value '5' met objective '>=5'")
    assert judged("4", ">=5") == Result("4", FAILED, "value '4' did not meet objective '>=5'")


@pytest.mark.parametrize("value", ["abc", "5%", " 5", "1,000"])
def test_a_value_that_is_no_number_is_inconclusive(value):
    message = f"inconclusive: value '{value}' is not a number"
    assert judged(value, ">5") == Result(value, FAILED, message)


@pytest.mark.parametrize("value", ["NaN", "Inf", "+Inf", "-Inf"])
def test_a_value_that_is_not_finite_is_inconclusive(value):
    message = f"inconclusive: value '{value}' is not a finite number"
    assert judged(value, ">-Inf") == Result(value, FAILED, message)
    assert judged(value, "!=0") == Result(value, FAILED, message)


def test_a_target_that_cannot_be_read_is_told_whatever_the_value():
    result = judge(Objective("cpus", "5"), missing_metric("cpus", ["shop", "keptn"]))
    assert result.message.startswith("invalid operator")
    assert not is_inconclusive(result)


def test_a_huge_value_is_cut():
    result = judged("x" * 1_000_000, ">5")
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
    assert not is_inconclusive(judged("3", ">5"))


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
        (
            [A, IN_TEST, IN_TEST_LESS],
            {"cpus": A, "cpus/test": IN_TEST_LESS, "cpus#3": IN_TEST},
        ),
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
