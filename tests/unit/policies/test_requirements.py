"""When two requirements on a node can't both hold."""

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
from helpers.merging import one_of
from helpers.nodes import satisfies
from helpers.work import lines

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
    found = is_contradictory([constraint(one), constraint(other)])
    assert found is is_contradictory([constraint(other), constraint(one)])
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


def test_contradictory_are_those_that_no_value_satisfies_together():
    wrong = [
        three
        for three in itertools.product(REQUIREMENTS, repeat=3)
        if is_contradictory(list(map(constraint, three)))
        and any(
            all(satisfies({"key": "k", **one}, {"k": value}) for one in three) for value in VALUES
        )
    ]
    assert wrong == []


def test_values_that_are_excluded_one_by_one_are_contradictory():
    excluded = [("NotIn", frozenset(value)) for value in "ab"]
    assert is_contradictory([("In", frozenset("ab")), *excluded])
    assert not is_contradictory([("In", frozenset("abc")), *excluded])


@pytest.mark.parametrize("operator", ["Future", ""])
@pytest.mark.parametrize("other", REQUIREMENTS)
def test_unknown_operator_excludes_nothing(operator, other):
    assert not disjoint({"operator": operator, "values": ["9"]}, other)


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


def excluding(one, other):
    return list(excluding_constraints(constraints_of(one), constraints_of(other)))


def test_every_key_is_named_on_which_both_sides_exclude_each_other():
    one = {EXPRESSIONS: [one_of("a", "1"), one_of("b", "1"), one_of("c", "1")]}
    other = {EXPRESSIONS: [one_of("c", "2"), one_of("a", "1", "2"), one_of("b", "2", "3")]}
    assert excluding(one, other) == [(EXPRESSIONS, "b"), (EXPRESSIONS, "c")]


def test_all_requirements_on_a_key_are_looked_at_together():
    one = {EXPRESSIONS: [one_of("a", "1", "2"), one_of("a", "1")]}
    other = {EXPRESSIONS: [one_of("a", "1", "2"), one_of("a", "2")]}
    assert excluding(one, other) == [(EXPRESSIONS, "a")]


def test_key_that_one_side_does_not_constrain_excludes_nothing():
    contradictory = {EXPRESSIONS: [one_of("a", "1"), one_of("a", "2")]}
    assert excluding(contradictory, {EXPRESSIONS: [one_of("b", "2")]}) == []


def test_ten_thousand_requirements_on_one_key_are_no_trouble():
    def compare(count):
        one, other = (
            {
                EXPRESSIONS: [
                    {"key": "a", "operator": "NotIn", "values": [f"{side}{number}"]}
                    for number in range(count)
                ]
            }
            for side in "pq"
        )
        assert excluding(one, other) == []

    few, many = (lines(lambda count=count: compare(count)) for count in (2500, 10_000))
    # Quadratic would be 16 times.
    assert many < 6 * few


def test_different_keys_exclude_nothing():
    assert excluding({EXPRESSIONS: [one_of("a", "1")]}, {EXPRESSIONS: [one_of("b", "2")]}) == []


def test_label_and_field_of_one_name_exclude_nothing():
    one = {EXPRESSIONS: [one_of("metadata.name", "n1")]}
    assert excluding(one, {FIELDS: [one_of("metadata.name", "n2")]}) == []


def test_fields_exclude_each_other():
    one = {FIELDS: [one_of("metadata.name", "n1")]}
    assert excluding(one, {FIELDS: [one_of("metadata.name", "n2")]}) == [(FIELDS, "metadata.name")]


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
