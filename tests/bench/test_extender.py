"""Answers to a scheduler about 5,000 nodes: as ratios to decoding the question, and a guard."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import extending

pytestmark = [pytest.mark.slow, pytest.mark.full]

GUARD_MS = 10
"""Tenfold: 1 ms is asked for."""


@pytest.mark.parametrize("name", ["pod of no workload", "pod whose checks passed"])
def test_a_free_pod_costs_no_more_than_twice_its_question_decoded(name):
    cases = extending.cases()
    ratios = [
        extending.milliseconds(cases[name], repeats=1)
        / extending.milliseconds(cases[extending.DECODING], repeats=1)
        for _ in range(9)
    ]
    assert statistics.median(ratios) <= 2


@pytest.mark.parametrize("name", list(extending.cases()))
def test_five_thousand_nodes_are_answered_in_milliseconds(name):
    assert extending.milliseconds(extending.cases()[name], number=5) <= GUARD_MS
