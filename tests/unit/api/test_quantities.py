"""Quantities as Kubernetes' Go library reads and prints them."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbourmaster.api.quantities import parse_quantity

SUFFIXES = ["", "n", "u", "m", "k", "M", "G", "T", "P", "Ki", "Mi", "Gi", "Ti", "Pi", "e3", "E-7"]
QUANTITIES = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "-", "+"]),
    st.from_regex(r"[0-9]{1,20}", fullmatch=True),
    st.from_regex(r"(\.[0-9]{0,12})?", fullmatch=True),
    st.sampled_from(SUFFIXES),
)


@pytest.mark.parametrize(
    ("given", "printed", "value"),
    [
        ("0", "0", 0),
        ("-0", "0", 0),
        ("5", "5", 5),
        (5, "5", 5),
        (0.5, "500m", 0.5),
        (" 500m ", "500m", 0.5),
        ("0.5", "500m", 0.5),
        (".5", "500m", 0.5),
        ("1.5", "1500m", 1.5),
        ("1000", "1k", 1000),
        ("1000m", "1", 1),
        ("2000000", "2M", 2e6),
        ("1200", "1200", 1200),
        ("1e3", "1e3", 1000),
        ("1E3", "1E3", 1000),
        ("10e2", "1e3", 1000),
        ("1e4", "10e3", 10000),
        ("1E", "1E", 1e18),
        ("1Ki", "1Ki", 1024),
        ("1024Ki", "1Mi", 2**20),
        ("1.5Gi", "1536Mi", 1.5 * 2**30),
        ("0.5Ki", "512", 512),
        ("1.1Ki", "1126400m", 1126.4),
        ("0.0005Ki", "512m", 0.512),
        ("8Ei", "9223372036854775807", 2.0**63),
        ("0.1n", "1n", 1e-9),
        ("-0.1n", "-1n", -1e-9),
        ("123456789012345678901", "123456789012345678901", 1.2345678901234568e20),
        # Close enough to be printed as they stand.
        ("1.500", "1.500", 1.5),
        ("007", "007", 7),
        ("+5", "+5", 5),
        ("5.", "5.", 5),
        ("-5", "-5", -5),
    ],
)
def test_what_go_makes_of_it(given, printed, value):
    quantity = parse_quantity(given)
    assert (quantity.text, float(quantity)) == (printed, value)


def test_beyond_the_largest_suffix_an_exponent_keeps_the_value():
    # Go prints "1".
    assert parse_quantity("1000E").text == "1e21"


@pytest.mark.parametrize(
    "text",
    ["", ".", "+", "m", "abc", "5 m", "5x", "5e", "1e1.5", "0x5", "1_000", "5kk", "5mi", "NaN",
     "Inf", "--5", "5\n5", "\u0665", "9" * 129, True],
)  # fmt: skip
def test_what_is_no_quantity(text):
    with pytest.raises(ValueError, match=r"is not a quantity: write for example 5"):
        parse_quantity(text)


@pytest.mark.parametrize("text", ["1e301", "1e-301", "1e999999999999"])
def test_an_absurd_exponent_costs_nothing(text):
    with pytest.raises(ValueError, match="is out of range"):
        parse_quantity(text)


@given(QUANTITIES)
def test_what_is_printed_is_the_same_quantity(text):
    quantity = parse_quantity(text)
    again = parse_quantity(quantity.text)
    assert (again.value, parse_quantity(again.text).text) == (quantity.value, again.text)


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**9), max_value=10**9,
                   places=9))  # fmt: skip
def test_no_precision_is_lost(value):
    assert parse_quantity(f"{value:f}").value == value


@given(QUANTITIES)
def test_too_fine_ones_are_rounded_away_from_zero(text):
    value = parse_quantity(text).value
    assert (Fraction(value) * 10**9).denominator == 1
