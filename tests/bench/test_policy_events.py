"""That an event of a policy costs the loop about the same, however many policies there are."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import policy_events

pytestmark = [pytest.mark.slow, pytest.mark.full]


@pytest.mark.parametrize("shape", policy_events.SHAPES)
def test_an_event_costs_much_less_than_an_index_of_all(shape):
    """2 ms are asked for; all are indexed in about 100."""
    few = statistics.median(policy_events.milliseconds(shape, 100, 50))
    many = statistics.median(policy_events.milliseconds(shape))
    # What is copied of each policy costs nanoseconds.
    assert many <= 30 * few
