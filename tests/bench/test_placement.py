"""Many applications are decided about within one pass; the figures themselves are a trial's."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from placing import APPLICATIONS, many, run_pass

pytestmark = [pytest.mark.slow, pytest.mark.full]

LIMIT = 10.0
"""Seconds: ten times what a pass may take, for machines that are slow or busy."""

SOURCES = ({}, {"by_label": "cluster"}, {"query": 'load{cluster="$(cluster.name)"}'})


@pytest.mark.parametrize("source", SOURCES, ids=["shared", "label", "name"])
def test_a_pass_over_1000_applications_and_100_clusters_takes_no_ten_seconds(source):
    apps, snapshot = many(**source)
    _, taken, decisions, statuses = run_pass(apps, snapshot)
    outcomes = {decision.outcome for decision in decisions}
    assert outcomes >= {"Placed", "Moved", "Stayed", "MoveLimited"}
    assert any(decision.failed for decision in decisions)
    assert len(statuses) == APPLICATIONS
    assert taken < LIMIT


def test_ten_times_the_applications_cost_at_most_twenty_times_the_time():
    apps, snapshot = many()
    run_pass(apps[:100], snapshot)
    small = min(run_pass(apps[:100], snapshot)[1] for _ in range(5))
    large = min(run_pass(apps, snapshot)[1] for _ in range(3))
    assert large <= 20 * small
