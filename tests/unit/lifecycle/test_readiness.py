from __future__ import annotations

import pytest

from harbourmaster.lifecycle.readiness import Rollout, has_observed, is_deployed


def rollout(**fields):
    ready = {"generation": 2, "observed_generation": 2, "wanted": 3, "ready": 3, "updated": 3}
    return Rollout(**{**ready, **fields})


@pytest.mark.parametrize(
    ("fields", "result"),
    [
        ({}, True),
        ({"ready": 2}, False),
        ({"ready": 4}, False),
        ({"updated": 2}, False),
        ({"updated": 4}, True),
        ({"observed_generation": 1}, False),
        ({"observed_generation": 3}, True),
        ({"observed_generation": None}, False),
        ({"is_healthy": False}, False),
        ({"is_superseded": True}, False),
        ({"wanted": 0, "ready": 0, "updated": 0}, True),
        ({"wanted": 0, "ready": 0, "updated": 0, "is_superseded": True}, False),
    ],
)
def test_all_pods_must_be_ready_and_of_the_newest_template(fields, result):
    assert is_deployed(rollout(**fields)) is result


@pytest.mark.parametrize(
    ("observed", "result"),
    [("2", True), ("1", False), ("10", True), ("6c9d8f", True), ("", False), (None, False)],
)
def test_argo_writes_its_generation_as_text(observed, result):
    assert has_observed(2, observed) is result
