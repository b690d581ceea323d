"""A thousand pods whose checks passed, on a hundred nodes: what asking us costs a scheduler.

The short form has fewer of them, and lets the others on the machine have their part.
"""

from __future__ import annotations

import asyncio
import os

import pytest

from helpers.load.scheduling import measure_placing, report

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(1800)]

IS_LONG = bool(os.environ.get("HARBOURMASTER_CHAOS_LONG"))
PODS, NODES, RUNS, LIMIT = (1000, 100, 5, 1.25) if IS_LONG else (200, 20, 3, 2.5)


async def test_ready_pods_are_placed_nearly_as_fast_as_without_us(
    throwaway_control_plane, tmp_path
):
    plane = await asyncio.to_thread(throwaway_control_plane, optional=("kwok",))
    found = await measure_placing(plane, tmp_path / "certs", PODS, NODES, RUNS)
    print(f"\n{report(found)}")  # noqa: T201 - figures to note
    assert found.ratio <= LIMIT
