"""Tests of requirements on a node that cannot both hold."""

from __future__ import annotations

import itertools

import pytest

from harbourmaster.policies.requirements import (
    EXPRESSIONS,
    FIELDS,
    constraints_of,
    describe,
    is_contradictory,
)
from harbourmaster.policies.requirements import excluding as excluding_constraints
from helpers.oracles import satisfies
from helpers.policies import one_of
from helpers.virtual_time import lines

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


def disjoint(first, second):
    is_disjoint = is_contradictory([constraint(first), constraint(second)])
    assert is_disjoint is is_contradictory([constraint(second), constraint(first)])
    return is_disjoint


def both_hold(first, second, value):
    fields = {"k": value}
    return satisfies({"key": "k", **first}, fields) and satisfies({"key": "k", **second}, fields)


def test_disjoint_are_those_that_no_value_satisfies():
    wrong = [
        (first, second)
        for first, second in itertools.product(REQUIREMENTS, repeat=2)
        if disjoint(first, second) is any(both_hold(first, second, value) for value in VALUES)
    ]
    assert wrong == []


def test_contradictory_are_those_that_no_value_satisfies_together():
    wrong = [
        three
        for three in itertools.product(REQUIREMENTS, repeat=3)
        if is_contradictory(list(map(constraint, three)))
        and any(
            all(satisfies({"key": "k", **requirement}, {"k": value}) for requirement in three)
            for value in VALUES
        )
    ]
    assert wrong == []


def test_values_that_are_excluded_one_by_one_are_contradictory():
    excluded = [("NotIn", frozenset(value)) for value in "ab"]
    assert is_contradictory([("In", frozenset("ab")), *excluded])
    assert not is_contradictory([("In", frozenset("abc")), *excluded])


@pytest.mark.parametrize("operator", ["Future", ""])
@pytest.mark.parametrize("requirement", REQUIREMENTS)
def test_unknown_operator_excludes_nothing(operator, requirement):
    assert not disjoint({"operator": operator, "values": ["9"]}, requirement)


@pytest.mark.parametrize("bound", [["x"], ["1", "2"], []])
def test_bound_that_is_no_integer_excludes_nothing(bound):
    assert not disjoint({"operator": "Gt", "values": bound}, {"operator": "In", "values": ["1"]})
    assert not disjoint({"operator": "Gt", "values": bound}, {"operator": "Lt", "values": ["1"]})


@pytest.mark.parametrize("value", ["", "x", "1.5", "9" * 5000])
def test_value_that_is_no_integer_is_on_no_side_of_a_bound(value):
    assert disjoint({"operator": "In", "values": [value]}, {"operator": "Gt", "values": ["1"]})


@pytest.mark.parametrize("value", ["1_0", "\u0667", " 7", "7 ", "0x7", str(2**63)])
def test_integers_are_those_of_the_scheduler(value):
    assert disjoint({"operator": "In", "values": [value]}, {"operator": "Gt", "values": ["1"]})


def excluding(first, second):
    return list(excluding_constraints(constraints_of(first), constraints_of(second)))


def test_every_key_is_named_on_which_both_sides_exclude_each_other():
    first = {EXPRESSIONS: [one_of("a", "1"), one_of("b", "1"), one_of("c", "1")]}
    second = {EXPRESSIONS: [one_of("c", "2"), one_of("a", "1", "2"), one_of("b", "2", "3")]}
    assert excluding(first, second) == [(EXPRESSIONS, "b"), (EXPRESSIONS, "c")]


def test_all_requirements_on_a_key_are_looked_at_together():
    first = {EXPRESSIONS: [one_of("a", "1", "2"), one_of("a", "1")]}
    second = {EXPRESSIONS: [one_of("a", "1", "2"), one_of("a", "2")]}
    assert excluding(first, second) == [(EXPRESSIONS, "a")]


def test_key_that_one_side_does_not_constrain_excludes_nothing():
    contradictory = {EXPRESSIONS: [one_of("a", "1"), one_of("a", "2")]}
    assert excluding(contradictory, {EXPRESSIONS: [one_of("b", "2")]}) == []


def test_ten_thousand_requirements_on_one_key_are_no_trouble():
    def compare(count):
        first, second = (
            {
                EXPRESSIONS: [
                    {"key": "a", "operator": "NotIn", "values": [f"{side}{number}"]}
                    for number in range(count)
                ]
            }
            for side in "pq"
        )
        assert excluding(first, second) == []

    few, many = (lines(lambda count=count: compare(count)) for count in (2500, 10_000))
    # Quadratic would be 16 times.
    assert many < 6 * few


def test_different_keys_exclude_nothing():
    assert excluding({EXPRESSIONS: [one_of("a", "1")]}, {EXPRESSIONS: [one_of("b", "2")]}) == []


def test_label_and_field_of_one_name_exclude_nothing():
    term = {EXPRESSIONS: [one_of("metadata.name", "n1")]}
    assert excluding(term, {FIELDS: [one_of("metadata.name", "n2")]}) == []


def test_fields_exclude_each_other():
    term = {FIELDS: [one_of("metadata.name", "n1")]}
    assert excluding(term, {FIELDS: [one_of("metadata.name", "n2")]}) == [(FIELDS, "metadata.name")]


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
        ("In", ["a\nb", "c"], 'zone In ["a\\nb", c]'),
        ("In\n", ["a"], 'zone "In\\n" [a]'),
    ],
)
def test_constraint_reads_as_people_write_it(operator, values, text):
    assert describe((EXPRESSIONS, "zone"), [(operator, frozenset(values))]) == text


def test_key_that_does_not_print_is_escaped():
    assert describe((EXPRESSIONS, "a\tb"), [("Exists", frozenset())]) == '"a\\tb" Exists'


def test_several_constraints_are_listed_up_to_a_few():
    constraints = [("NotIn", frozenset(value)) for value in "abcd"]
    assert describe((EXPRESSIONS, "z"), constraints[:2]) == "z NotIn [a] and z NotIn [b]"
    assert describe((EXPRESSIONS, "z"), constraints).endswith("z NotIn [c] and more")
