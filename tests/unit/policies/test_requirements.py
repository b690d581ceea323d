"""When two requirements on a node can't both hold."""

from __future__ import annotations

import itertools

import pytest

from helpers.merging import one_of
from helpers.nodes import satisfies
from policies.requirements import EXPRESSIONS, FIELDS, are_disjoint, constraints_of, describe
from policies.requirements import excluding as excluding_constraints

VALUES = (None, *map(str, range(7)))
REQUIREMENTS = [
    *({"operator": operator} for operator in ("Exists", "DoesNotExist")),
    *(
        {"operator": operator, "values": list(values)}
        for operator in ("In", "NotIn")
        for values in (["1"], ["2"], ["1", "2"], ["2", "4"], ["3", "4", "5"])
    ),
    *({"operator": operator, "values": [v]} for operator in ("Gt", "Lt") for v in "12345"),
]


def constraint(requirement):
    return requirement["operator"], frozenset(requirement.get("values", ()))


def disjoint(one, other):
    found = are_disjoint(constraint(one), constraint(other))
    assert found is are_disjoint(constraint(other), constraint(one))
    return found


def both_hold(one, other, value):
    fields = {"k": value}
    return satisfies({"key": "k", **one}, fields) and satisfies({"key": "k", **other}, fields)


def test_disjoint_are_those_that_no_value_satisfies():
    wrong = [
        (one, other)
        for one, other in itertools.product(REQUIREMENTS, repeat=2)
        if disjoint(one, other) is any(both_hold(one, other, value) for value in VALUES)
    ]
    assert wrong == []


@pytest.mark.parametrize("operator", ["Future", ""])
@pytest.mark.parametrize("other", REQUIREMENTS)
def test_unknown_operator_excludes_nothing(operator, other):
    if other["operator"] != "DoesNotExist":
        assert not disjoint({"operator": operator, "values": ["9"]}, other)


@pytest.mark.parametrize("bound", [["x"], ["1", "2"], []])
def test_bound_that_is_no_integer_excludes_nothing(bound):
    assert not disjoint({"operator": "Gt", "values": bound}, {"operator": "In", "values": ["1"]})
    assert not disjoint({"operator": "Gt", "values": bound}, {"operator": "Lt", "values": ["1"]})


@pytest.mark.parametrize("value", ["", "x", "1.5", "9" * 5000])
def test_value_that_is_no_integer_is_on_no_side_of_a_bound(value):
    assert disjoint({"operator": "In", "values": [value]}, {"operator": "Gt", "values": ["1"]})


@pytest.mark.xfail(reason="int() reads what the scheduler's parser refuses", strict=True)
@pytest.mark.parametrize("value", ["1_0", "\u0667"])
def test_integers_are_those_of_the_scheduler(value):
    assert disjoint({"operator": "In", "values": [value]}, {"operator": "Gt", "values": ["1"]})


def excluding(one, other):
    return excluding_constraints(constraints_of(one), constraints_of(other))


def test_excluding_pair_is_named_from_both_sides():
    one = {EXPRESSIONS: [one_of("a", "1"), one_of("b", "1")]}
    other = {EXPRESSIONS: [one_of("b", "2", "3")]}
    found = ((EXPRESSIONS, "b"), ("In", frozenset("1")), ("In", frozenset("23")))
    assert excluding(one, other) == found


def test_each_of_several_requirements_on_a_key_is_compared():
    one = {EXPRESSIONS: [one_of("a", "1", "2"), one_of("a", "1")]}
    other = {EXPRESSIONS: [one_of("a", "1", "2"), one_of("a", "2")]}
    assert excluding(one, other) is not None


def test_different_keys_exclude_nothing():
    assert excluding({EXPRESSIONS: [one_of("a", "1")]}, {EXPRESSIONS: [one_of("b", "2")]}) is None


def test_label_and_field_of_one_name_exclude_nothing():
    one = {EXPRESSIONS: [one_of("metadata.name", "n1")]}
    assert excluding(one, {FIELDS: [one_of("metadata.name", "n2")]}) is None


def test_fields_exclude_each_other():
    one = {FIELDS: [one_of("metadata.name", "n1")]}
    assert excluding(one, {FIELDS: [one_of("metadata.name", "n2")]}) is not None


@pytest.mark.parametrize("term", [{}, {EXPRESSIONS: None, FIELDS: []}])
def test_empty_term_has_no_constraints(term):
    assert constraints_of(term) == {}


def test_constraints_are_only_those_of_the_keys_asked_for():
    term = {EXPRESSIONS: [one_of("a", "1"), one_of("b", "1")], FIELDS: [one_of("a", "n")]}
    assert constraints_of(term, {(EXPRESSIONS, "a"): None}) == {
        (EXPRESSIONS, "a"): [("In", frozenset("1"))]
    }


@pytest.mark.parametrize(
    ("operator", "values", "text"),
    [
        ("In", ["b", "a"], "zone In [a, b]"),
        ("Exists", [], "zone Exists"),
        ("Gt", ["5"], "zone Gt [5]"),
        ("NotIn", list("edcba"), "zone NotIn [a, b, c, ...]"),
    ],
)
def test_constraint_reads_as_people_write_it(operator, values, text):
    assert describe((EXPRESSIONS, "zone"), (operator, frozenset(values))) == text
