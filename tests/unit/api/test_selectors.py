"""Label selectors, compiled."""

from __future__ import annotations

import pytest

from harbourmaster.api.selectors import LabelSelector, LabelSelectorRequirement, compile_selector


def matches(labels, match_labels=None, *expressions):
    requirements = [LabelSelectorRequirement(*expression) for expression in expressions]
    matcher = compile_selector(LabelSelector(match_labels, requirements or None))
    assert matcher is not None
    return matcher.matches(labels)


def test_absent_selector_compiles_to_none():
    assert compile_selector(None) is None


@pytest.mark.parametrize("selector", [LabelSelector(), LabelSelector({}, [])])
@pytest.mark.parametrize("labels", [{}, {"a": "1"}])
def test_empty_selector_matches_everything(selector, labels):
    matcher = compile_selector(selector)
    assert matcher is not None
    assert matcher.matches(labels)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({"a": "1", "b": "2"}, True),
        ({"a": "1", "b": "2", "c": "3"}, True),
        ({"a": "1"}, False),
        ({"a": "1", "b": "3"}, False),
        ({}, False),
    ],
)
def test_all_match_labels_must_hold(labels, expected):
    assert matches(labels, {"a": "1", "b": "2"}) is expected


def test_empty_label_value_is_a_value():
    assert matches({"a": ""}, {"a": ""})
    assert not matches({}, {"a": ""})


@pytest.mark.parametrize(
    ("operator", "values", "absent", "listed", "unlisted"),
    [
        ("In", ["1", "2"], False, True, False),
        ("NotIn", ["1", "2"], True, False, True),
        ("Exists", None, False, True, True),
        ("DoesNotExist", None, True, False, False),
    ],
)
def test_operator(operator, values, absent, listed, unlisted):
    expression = ("a", operator, values)
    assert matches({"b": "1"}, None, expression) is absent
    assert matches({"a": "2"}, None, expression) is listed
    assert matches({"a": "3"}, None, expression) is unlisted


@pytest.mark.parametrize(
    "labels",
    [
        {"a": "0", "b": "1", "c": "1"},
        {"a": "1", "b": "0", "c": "1"},
        {"a": "1", "b": "1"},
        {"a": "1", "b": "1", "c": "1", "d": "1"},
    ],
)
def test_each_part_alone_can_fail_the_match(labels):
    parts = [("b", "NotIn", ["0"]), ("c", "Exists", None), ("d", "DoesNotExist", None)]
    assert matches({"a": "1", "b": "1", "c": "1"}, {"a": "1"}, *parts)
    assert not matches(labels, {"a": "1"}, *parts)


def test_several_expressions_on_one_key_must_all_hold():
    parts = [("a", "In", ["1", "2"]), ("a", "NotIn", ["2"])]
    assert matches({"a": "1"}, None, *parts)
    assert not matches({"a": "2"}, None, *parts)


class CountingLabels(dict):
    lookups = 0

    def get(self, key, default=None):
        self.lookups += 1
        return super().get(key, default)

    def __contains__(self, key):
        self.lookups += 1
        return super().__contains__(key)


def test_each_of_10000_requirements_looks_up_its_label_once():
    labels = CountingLabels({f"k{index}": "v" for index in range(10_000)})
    expressions = [(key, "In", ["v"]) for key in labels]
    assert matches(labels, None, *expressions)
    assert labels.lookups == 10_000
