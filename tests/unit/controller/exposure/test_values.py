from __future__ import annotations

import pytest

from helpers.exposure import metric, since, values


def test_a_value_is_shown_as_it_was_said_with_its_time():
    prod = values(metric("cpu", "0.50", age=3)).get("prod", "cpu")
    assert (prod.text, float(prod.quantity), prod.time) == ("0.50", 0.5, since(3))


@pytest.mark.parametrize(
    "text", ["NaN", "Inf", "ten", "1e999", "0x10", "1 2", "\N{ARABIC-INDIC DIGIT ONE}"]
)
def test_what_is_no_number_is_no_value(text):
    assert values(metric("cpu", text)).get("prod", "cpu") is None


def test_without_a_value_there_is_none():
    assert values(metric("cpu")).get("prod", "cpu") is None
    assert values().get("prod", "cpu") is None


@pytest.mark.parametrize(("age", "is_shown"), [(30, True), (31, False), (-31, False)])
def test_a_value_counts_for_two_intervals_and_ten_seconds(age, is_shown):
    assert (values(metric("cpu", "1", age=age)).get("prod", "cpu") is not None) is is_shown


def test_of_stored_results_the_newest_counts():
    stored = metric("cpu", results=[("1", 20), ("2", 10)])
    assert values(stored).get("prod", "cpu").text == "2"


def test_a_namespace_has_its_own_values_by_name():
    exposed = values(
        metric("b", "1"), metric("a", "2"), metric("c"), metric("a", "3", namespace="dev")
    )
    assert [value.text for value in exposed.within("prod")] == ["2", "1"]
