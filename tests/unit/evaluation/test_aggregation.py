from __future__ import annotations

import pytest

from harbourmaster.evaluation.aggregation import aggregate


def test_c94_a_percentile_is_of_sorted_values():
    assert aggregate("p90", [5, 1, 4, 2, 3]) == 5


@pytest.mark.parametrize(
    ("name", "expected"),
    [("max", 20), ("min", 1), ("avg", 10.5), ("median", 10.5), ("p90", 18), ("p95", 19)],
)
def test_twenty_values(name, expected):
    assert aggregate(name, [*range(20, 10, -1), *range(1, 11)]) == expected


@pytest.mark.parametrize("name", ["max", "min", "avg", "median", "p90", "p95", "p99"])
def test_one_value_is_all_of_them(name):
    assert aggregate(name, [7.25]) == 7.25


def test_p99_of_two_hundred_values_is_the_one_before_the_last_two():
    assert aggregate("p99", range(200, 0, -1)) == 198


def test_the_median_of_an_odd_count_is_the_middle_one():
    assert aggregate("median", [3, 1, 2]) == 2


def test_means_of_the_largest_numbers_are_finite():
    assert aggregate("avg", [1.7e308, 1.7e308, 1.7e308]) == pytest.approx(1.7e308)
    assert aggregate("median", [1.7e308, 1.7e308]) == pytest.approx(1.7e308)
