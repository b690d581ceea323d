"""The latest values are remembered, and the oldest are dropped."""

from __future__ import annotations

from harbourmaster.controller.lifecycle.latest import LatestValues


def test_the_first_value_counts_and_the_oldest_goes():
    values = LatestValues(2)
    assert values.add("a", 1)
    assert not values.add("a", 2)
    assert values.add("b", 3)
    assert values.add("c", 4)
    assert len(values) == 2
    assert "a" not in values
    assert values.take("b") == 3
    assert values.take("b") is None
    assert "c" in values
