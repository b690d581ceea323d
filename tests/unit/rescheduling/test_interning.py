from __future__ import annotations

from harbourmaster.rescheduling.model import Shared, shared_labels


def test_equal_values_are_one_object():
    shared = Shared[list[int]]()
    first = shared("a", [1])
    assert shared("a", [1]) is first
    assert shared("b", [1]) is not first


def test_sharing_restarts_at_the_limit():
    shared = Shared[list[int]](most=2)
    first = [shared(name, []) for name in "ab"]
    assert shared("a", []) is first[0]
    shared("c", [])
    assert shared("a", []) is not first[0]


def test_no_labels_are_one_object():
    assert shared_labels(None) is shared_labels({})
