"""JSON as Go writes it: the expectations come from a Go program."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbourmaster.evaluation.go_json import dumps, number

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=("Cs",))),
    lambda inner: st.lists(inner) | st.dictionaries(st.text("ab<\n"), inner),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-0.0, "-0"),
        (4.0, "4"),
        (87.5, "87.5"),
        (-0.25, "-0.25"),
        (100000.0, "100000"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (1.5e22, "1.5e+22"),
        (1e-6, "0.000001"),
        (9.99e-7, "9.99e-7"),
        (1e-7, "1e-7"),
        (5e-324, "5e-324"),
        (123456789.123, "123456789.123"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
    ],
)
def test_numbers(value, text):
    assert number(value) == text


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_no_json(value):
    with pytest.raises(ValueError, match="JSON has no"):
        number(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a<b>&c", r'"a\u003cb\u003e\u0026c"'),
        ("\u2028x\u2029", r'"\u2028x\u2029"'),
        ("\x00\b\f\n\r\t\x1f", r'"\u0000\b\f\n\r\t\u001f"'),
        ("\"\\/'", r'''"\"\\/'"'''),
        ("é", '"é"'),
        ("\x7f", '"\x7f"'),
    ],
)
def test_strings(value, text):
    assert dumps(value) == text


def test_it_is_compact_and_keeps_the_order():
    assert dumps({"b": [1, None, True], "a": {"x": ()}}) == '{"b":[1,null,true],"a":{"x":[]}}'


def test_what_json_has_not():
    with pytest.raises(TypeError, match="JSON has no object"):
        dumps(object())


@given(VALUES)
def test_it_says_what_was_given(value):
    text = dumps(value)
    assert json.loads(text, parse_int=float) == value
    assert not {"<", ">", "&", "\n"} & set(text)
