from __future__ import annotations

from harbourmaster.api.field_tests import describe_condition, describe_field, field_of


def test_fields_of_any_shape_are_read():
    document = {"a": {"b": [1, {"c": None}, True]}}
    assert field_of(document, "a.b.0") == "1"
    assert field_of(document, "a.b.1.c") == "null"
    assert field_of(document, "a.b.2") == "true"
    assert [field_of(document, path) for path in ("", "a.x", "a.b.x", "a.b.0.c", "a..b")] == [
        None
    ] * 5


def test_one_of_the_values_is_enough():
    assert describe_field("a.b", ("green", "yellow"), "yellow") == ""
    assert describe_field("a.b", ("green", "yellow"), None) == "a.b is not green or yellow"
    assert describe_condition("Ready", ("True", "Unknown"), "true", "") == ""
    text = "condition Ready is missing (NotSeen)"
    assert describe_condition("Ready", ("True",), "missing", "NotSeen") == text
