"""Time-outs as Go writes them, and what is left of them for us."""

from __future__ import annotations

import pytest
from aiohttp.test_utils import make_mocked_request

from harbourmaster.serving.deadline import parse_duration, request_budget, time_budget


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10s", 10),
        ("1m30s", 90),
        ("500ms", 0.5),
        ("1.5s", 1.5),
        (".5s", 0.5),
        ("1.s", 1),
        ("+2s", 2),
        ("1h2m3s4ms5us6ns", 3723.004005006),
        ("7\u00b5s", 7e-6),
        ("7\u03bcs", 7e-6),
    ],
)
def test_go_s_durations_are_read(text, seconds):
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "10",
        "s",
        "10 s",
        "-1s",
        "0s",
        "0",
        "1d",
        "1e3s",
        "0x1s",
        ".s",
        "1s1",
        "\u0661s",
        "9" * 99,
    ],
)
def test_what_is_no_positive_duration_is_none(text):
    assert parse_duration(text) is None


@pytest.mark.parametrize(
    ("timeout", "budget"),
    [
        ("10s", 9.5),
        ("3s", 2.5),
        ("30s", 29.5),
        ("1s", 0.5),
        ("500ms", 0.05),
        ("550ms", 0.055),
        (None, 29.5),
        ("garbage", 29.5),
    ],
)
def test_half_a_second_is_kept_back_and_a_tenth_always_left(timeout, budget):
    assert time_budget(timeout) == pytest.approx(budget)


@pytest.mark.parametrize(
    ("path", "budget"),
    [
        ("/", 29.5),
        ("/?timeout=3s", 2.5),
        ("/?a=b&timeout=3s&timeout=9s", 2.5),
        ("/?timeout=1m", 29.5),
        ("/?timeout=%31s", 0.5),
        ("/?timeout=", 29.5),
        ("/?" + "a=b&" * 50, 29.5),
    ],
)
def test_the_parameter_of_a_request_counts(path, budget):
    assert request_budget(make_mocked_request("POST", path)) == pytest.approx(budget)


def test_the_cap_can_be_lower():
    assert time_budget("10s", 2.0) == pytest.approx(1.5)
