"""Thousands of waiting pods and hundreds of applications: how fast, how large, and how quiet.

The short form has a tenth of them. Times are compared with several times the limit where others
share the machine; the long form keeps to the limits of a machine of its own.
"""

from __future__ import annotations

import asyncio
import os

import pytest

from bench.draining import compare, fail_over
from helpers.load.gates import (
    BOUND_BY,
    measure_apps,
    measure_availability,
    measure_jobs,
    measure_release,
)

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(1500)]

IS_LONG = bool(os.environ.get("HARBOURMASTER_CHAOS_LONG"))
WAITING, SINGLE, FOR_ONE = (1000, 100, 5000) if IS_LONG else (200, 20, 500)
DRAINED, IDLE = (10_000, 10_000) if IS_LONG else (1000, 1000)
VERSIONS, APPS, QUIET = (1000, 500, 10.0) if IS_LONG else (100, 50, 3.0)
GUARD = 1 if IS_LONG else 5
RELEASE_SECONDS = 0.5
DRAIN_SECONDS = 60 / 5000
"""For each pod."""
RECONCILE_SECONDS = 300 / 500
"""For each application of five workloads."""
AVAILABLE_SECONDS = 30 / 5000
"""For each pod that waits for a Deployment."""
REQUESTS_EACH = 1.5
REQUESTS = 1.0
MEMORY_MB = 300
DRAIN_RATIO = 1.2
"""Maximum time, as a multiple of that of a plain client for the same patches."""
PATCHES_EACH = 1.1
NEIGHBOUR_SHARE = 0.2
"""Maximum time until a pod of another namespace is released, as a share of that of all."""
HANDOVER_SECONDS, EXPIRY_SECONDS = 10, 25
"""Seconds from a leader's SIGTERM or SIGKILL to the next release."""


async def test_gated_pods_go_at_once_and_versions_that_wait_ask_for_nothing(
    throwaway_control_plane,
):
    plane = await asyncio.to_thread(throwaway_control_plane, optional=())
    result = await measure_release(plane, VERSIONS, QUIET)
    print(f"\n{result}")  # noqa: T201 - figures to note
    assert result.idle <= REQUESTS
    assert result.p99 <= RELEASE_SECONDS * GUARD
    assert result.drained <= DRAIN_SECONDS * result.pods * GUARD
    assert result.memory_mb <= MEMORY_MB


async def test_applications_of_five_workloads_are_reconciled(throwaway_control_plane):
    plane = await asyncio.to_thread(throwaway_control_plane, optional=())
    result = await measure_apps(plane, APPS)
    print(f"\n{result}")  # noqa: T201 - figures to note
    assert result.seconds <= RECONCILE_SECONDS * APPS * GUARD
    assert result.memory_mb <= MEMORY_MB


async def test_pods_that_wait_for_jobs_are_bound_soon_after_their_end(throwaway_control_plane):
    plane = await asyncio.to_thread(throwaway_control_plane, optional=BOUND_BY)
    result = await measure_jobs(plane, WAITING, SINGLE)
    print(f"\n{result}")  # noqa: T201 - figures to note
    assert result.bound_p99 <= RELEASE_SECONDS * GUARD
    assert result.memory_mb <= MEMORY_MB


async def test_pods_that_wait_for_one_deployment_go_together(throwaway_control_plane):
    plane = await asyncio.to_thread(throwaway_control_plane, optional=())
    result = await measure_availability(plane, FOR_ONE)
    print(f"\n{result}")  # noqa: T201 - figures to note
    assert result.seconds <= AVAILABLE_SECONDS * result.pods * GUARD
    assert result.requests_each <= REQUESTS_EACH
    assert result.memory_mb <= MEMORY_MB


async def test_pods_of_one_condition_go_as_fast_as_a_plain_client_patches_them(
    throwaway_control_plane,
):
    plane = await asyncio.to_thread(throwaway_control_plane, optional=BOUND_BY)
    result = await compare(plane, DRAINED, rounds=1 if IS_LONG else 3)
    print(f"\n{result}")  # noqa: T201 - figures to note
    assert result["patches_per_pod"] <= PATCHES_EACH
    assert result["ratio"] <= DRAIN_RATIO
    assert result["neighbour_share"] <= NEIGHBOUR_SHARE


async def test_another_leader_releases_pods_while_thousands_wait(throwaway_control_plane):
    plane = await asyncio.to_thread(throwaway_control_plane, optional=())
    result = await fail_over(plane, IDLE)
    print(f"\n{result}")  # noqa: T201 - figures to note
    assert result["seconds_after_sigterm"] <= HANDOVER_SECONDS
    assert result["seconds_after_sigkill"] <= EXPIRY_SECONDS
