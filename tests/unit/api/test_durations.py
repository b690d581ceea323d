"""Durations in Go's syntax."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbourmaster.api.durations import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("5m", 300),
        ("5m0s", 300),
        ("1h30m", 5400),
        ("300ms", 0.3),
        ("1.5s", 1.5),
        (".5s", 0.5),
        ("2us", 2e-6),
        ("2µs", 2e-6),
        ("7\u03bcs", 7e-6),
        ("1.s", 1),
        ("1h2m3s4ms5us6ns", 3723.004005006),
        ("100ns", 1e-7),
        ("+3s", 3),
        ("-3s", -3),
    ],
)
def test_what_go_parses(text, seconds):
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    [
        *("", "5", "m", "5mins", "5 m", "five minutes", "0x", "5m-3s", ".s", "1e3s", "5\n"),
        *("1d", "1s1", "\u0661s"),
    ],
)
def test_what_go_refuses(text):
    with pytest.raises(ValueError, match="is not a duration: write for example 30s, 5m or 1h30m"):
        parse_duration(text)


def test_a_longer_duration_than_go_knows_is_refused():
    with pytest.raises(ValueError, match="292 years"):
        parse_duration("9999999h")


def test_an_error_shows_no_more_than_a_line():
    with pytest.raises(ValueError, match=r"xxx\.\.\." + '" is not a duration') as caught:
        parse_duration("x" * 10_000)
    assert len(str(caught.value)) < 150


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (300, "5m0s"),
        (30, "30s"),
        (90, "1m30s"),
        (3600, "1h0m0s"),
        (5400, "1h30m0s"),
        (1.5, "1.5s"),
        (0.3, "300ms"),
        (2e-6, "2µs"),
        (1e-7, "100ns"),
        (-3, "-3s"),
    ],
)
def test_as_go_prints(seconds, text):
    assert format_duration(seconds) == text


@given(st.integers(0, 10**15))
def test_what_is_printed_is_parsed_again(microseconds):
    seconds = microseconds / 1e6
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, abs=1e-9, rel=1e-12)
