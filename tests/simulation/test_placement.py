"""Placement comes to rest beside autoscalers, Jobs with a TTL and slow clusters (krake-spec 7.8).

At rest it writes nothing: after resyncs, when watches end or list again, and under another leader.
"""

from __future__ import annotations

import pytest

from simulation.test_simulation import simulate

pytestmark = pytest.mark.timeout(900)


@pytest.mark.gate
def test_an_application_comes_to_rest_and_writes_nothing_without_a_change():
    code, output = simulate("--applications=24", "--clusters=5", "--seed=1")
    assert code == 0, output


@pytest.mark.full
def test_applications_come_to_rest_for_many_seeds():
    code, output = simulate("--applications=40", "--clusters=6", "--seed=1000-1040")
    assert code == 0, output


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_a_thousand_applications_on_a_hundred_clusters_come_to_rest():
    code, output = simulate("--applications=1000", "--clusters=100", "--seed=1")
    assert code == 0, output
