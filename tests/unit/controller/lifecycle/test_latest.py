"""What is remembered of the past."""

from __future__ import annotations

from harbourmaster.controller.lifecycle.latest import LatestValues


def test_the_first_value_counts_and_the_oldest_goes():
    found = LatestValues(2)
    assert found.add("a", 1)
    assert not found.add("a", 2)
    assert found.add("b", 3)
    assert found.add("c", 4)
    assert len(found) == 2
    assert "a" not in found
    assert found.take("b") == 3
    assert found.take("b") is None
    assert "c" in found
