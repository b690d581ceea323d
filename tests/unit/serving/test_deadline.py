"""The rest of the time-out that the API server sends."""

from __future__ import annotations

import pytest

from harbourmaster.serving.bodies import time_budget


@pytest.mark.parametrize(
    ("query", "budget"),
    [
        ("", 29.5),
        ("timeout=10s", 9.5),
        ("timeout=3s", 2.5),
        ("timeout=30s", 29.5),
        ("timeout=1s", 0.5),
        ("timeout=500ms", 0.05),
        ("timeout=550ms", 0.055),
        ("a=b&timeout=3s&timeout=9s", 2.5),
        ("timeout=1m", 29.5),
        ("timeout=%31s", 0.5),
        ("timeout=", 29.5),
        ("timeout=garbage", 29.5),
        ("timeout=0s", 29.5),
        ("timeout=-1s", 29.5),
        (f"timeout={'9' * 99}s", 29.5),
        ("" + "a=b&" * 50, 29.5),
    ],
)
def test_half_a_second_is_kept_back_and_a_tenth_always_left(query, budget):
    assert time_budget(query) == pytest.approx(budget)
