"""The criteria of an AnalysisDefinition, decoded and compared with values."""

from __future__ import annotations

import pytest

from harbourmaster.evaluation.criteria import ObjectiveCriteria, decode_target, is_fulfilled
from harbourmaster.evaluation.targets import parse_target


def failure(**operators):
    return decode_target({"failure": operators}).failure


def exactly(limit):
    return {"fixedValue": limit}


def between(low, high):
    return {"lowBound": low, "highBound": high}


@pytest.mark.parametrize(
    ("operator", "bounds", "holding", "others"),
    [
        ("lessThan", exactly("2"), [1.9, -5], [2, 2.1]),
        ("lessThanOrEqual", exactly("2"), [2, 1], [2.1]),
        ("greaterThan", exactly("2"), [2.1], [2, 1.9]),
        ("greaterThanOrEqual", exactly("2"), [2, 3], [1.9]),
        ("equalTo", exactly("2"), [2.0], [2.0001, -2]),
        ("inRange", between("1", "3"), [1, 2, 3], [0.9, 3.1]),
        ("notInRange", between("1", "3"), [0.9, 3.1], [1, 2, 3]),
        ("lessThan", exactly("500m"), [0.4], [0.5]),
        ("greaterThan", exactly("1Ki"), [1025], [1024]),
        ("equalTo", exactly("100m"), [0.1], [0.2]),
        ("equalTo", exactly(5), [5], [5.5]),
    ],
)
def test_when_an_operator_holds(operator, bounds, holding, others):
    criterion = failure(**{operator: bounds})
    assert [value for value in (*holding, *others) if is_fulfilled(criterion, value)] == holding


@pytest.mark.parametrize("given", [None, {}, {"failure": None}])
def test_without_criteria_nothing_is_fulfilled(given):
    target = decode_target(given)
    assert target == ObjectiveCriteria()
    assert target.encode() == {}
    assert not is_fulfilled(target.failure, 0)


def test_an_empty_criterion_is_never_fulfilled_and_printed_as_it_is():
    target = decode_target({"failure": {}})
    assert not is_fulfilled(target.failure, 0)
    assert target.encode() == {"failure": {}}


def test_of_several_operators_any_is_enough():
    criterion = failure(greaterThan=exactly(10), lessThan=exactly(1))
    assert [value for value in (0, 5, 11) if is_fulfilled(criterion, value)] == [0, 11]


def test_quantities_are_printed_as_strings_in_their_canonical_form():
    target = decode_target(
        {"failure": {"lessThan": exactly(2)}, "warning": {"inRange": between("0.5", "1500m")}}
    )
    assert target.encode() == {
        "failure": {"lessThan": {"fixedValue": "2"}},
        "warning": {"inRange": {"lowBound": "500m", "highBound": "1500m"}},
    }


INVALID = [
    "x",
    {"failure": []},
    {"warning": {"lessThan": 5}},
    {"failure": {"lessThan": {}}},
    {"failure": {"inRange": {"lowBound": 1}}},
    {"failure": {"equalTo": exactly("x")}},
    {"failure": {"below": exactly(1)}},
]


def test_what_can_not_be_read_is_told_with_its_place(assert_golden):
    def error(given):
        with pytest.raises(ValueError, match=r"^target") as caught:
            decode_target(given)
        return str(caught.value)

    assert_golden([[given, error(given)] for given in INVALID])


@pytest.mark.parametrize(
    ("failure", "target"),
    [
        ({"greaterThan": {"fixedValue": "50m"}}, "<=0.05"),
        ({"lessThan": {"fixedValue": 1}, "greaterThan": {"fixedValue": 5}}, ">=1,<=5"),
        ({"notInRange": {"lowBound": "1", "highBound": "2k"}}, ">=1,<=2000"),
        ({"inRange": {"lowBound": "1", "highBound": "2"}}, ""),
        ({"equalTo": {"fixedValue": "0"}}, "!=0"),
        (None, ""),
    ],
)
def test_what_is_no_failure_can_be_written_as_the_target_of_an_evaluation(failure, target):
    assert decode_target({"failure": failure}).target == target
    assert not target or parse_target(target)
