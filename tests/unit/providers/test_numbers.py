"""Numbers as Go prints them, and what counts as a number."""

from __future__ import annotations

import math

import pytest

from harbourmaster.providers.errors import BadAnswerError, NotFiniteError
from harbourmaster.providers.numbers import (
    format_fixed6,
    format_general,
    format_shortest,
    parse_finite,
)

# What Go 1.25 prints with 'f' and -1, 'g' and 5, and %f.
GO = [
    (0.0, "0", "0", "0.000000"),
    (-0.0, "-0", "-0", "-0.000000"),
    (4.0, "4", "4", "4.000000"),
    (0.25, "0.25", "0.25", "0.250000"),
    (12.5, "12.5", "12.5", "12.500000"),
    (100.0, "100", "100", "100.000000"),
    (99999.5, "99999.5", "1e+05", "99999.500000"),
    (100000.5, "100000.5", "1e+05", "100000.500000"),
    (123456.0, "123456", "1.2346e+05", "123456.000000"),
    (0.0001, "0.0001", "0.0001", "0.000100"),
    (0.00001, "0.00001", "1e-05", "0.000010"),
    (1e21, "1000000000000000000000", "1e+21", "1000000000000000000000.000000"),
    (0.1 + 0.2, "0.30000000000000004", "0.3", "0.300000"),
    (-1795297536.307, "-1795297536.307", "-1.7953e+09", "-1795297536.307000"),
]


@pytest.mark.parametrize(("number", "shortest", "general", "fixed"), GO)
def test_numbers_are_printed_as_by_go(number, shortest, general, fixed):
    assert (format_shortest(number), format_general(number, 5), format_fixed6(number)) == (
        shortest,
        general,
        fixed,
    )


def test_an_integer_is_printed_like_the_same_float():
    assert format_shortest(4) == "4"


@pytest.mark.parametrize(
    ("given", "number"),
    [
        *(("4", 4.0), ("-0.25", -0.25), ("+1.5e3", 1500.0), (".5", 0.5), ("5.", 5.0)),
        *((4, 4.0), (2.5, 2.5), ("1e-400", 0.0)),
    ],
)
def test_numbers_and_texts_of_numbers_count(given, number):
    assert parse_finite(given) == number


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        *((text, "NaN") for text in ("NaN", "nan", "-nan", math.nan)),
        *((text, "+Inf") for text in ("+Inf", "inf", "Infinity", "1e999", 10**400, math.inf)),
        *((text, "-Inf") for text in ("-Inf", "-infinity", "-1e999", -(10**400), -math.inf)),
    ],
)
def test_a_number_must_be_finite(given, shown):
    with pytest.raises(NotFiniteError) as caught:
        parse_finite(given)
    assert str(caught.value) == f"the value is {shown}, expected a finite number"


@pytest.mark.parametrize(
    "given",
    [
        *("", " ", "abc", "1 2", " 1", "1\n", "1_0", "0x10", "1e", "e5", ".", "٣", "1,5", "500m"),
        *("--1", "+-1", "1" * 5000, None, True, False, b"1", [], {}),
    ],
)
def test_everything_else_is_not_a_number(given):
    with pytest.raises(BadAnswerError) as caught:
        parse_finite(given)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 100
