"""A large cluster is simulated, and a broken invariant is found where it breaks."""

from __future__ import annotations

import json

import pytest

from simulation.test_simulation import simulate

SMALL = ("--pods=100", "--nodes=20", "--apps=4", "--releases-per-minute=10", "--hours=0.02")
pytestmark = pytest.mark.gate


def test_a_simulation_counts_requests_queues_and_pauses():
    code, output = simulate(*SMALL)
    assert code == 0, output
    figures = json.loads(output)
    assert figures["releases"] > 3
    assert figures["pods_released"] >= 10
    assert figures["requests"]["patch pods"] >= figures["pods_released"]
    assert figures["queues"]["gates"]["maximum"] >= 10
    assert figures["longest_pause_ms"]["ms"] > 0
    # What the controller has just written, or requested and fulfilled, it does not repeat.
    repeated = [name for name in figures["failed_requests"] if "keptnapp" in name and "409" in name]
    assert repeated == []
    assert figures["requests"]["get keptnapps"] <= 2 * figures["releases"]


def test_a_planted_violation_is_found_by_the_check_of_one_change():
    code, output = simulate(*SMALL, "--plant")
    assert code == 1
    assert "breaks an invariant: Pod team-0/" in output
    assert "is released" in output
