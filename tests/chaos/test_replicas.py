"""Three replicas under load lose nothing when they are restarted, and little when one is killed."""

from __future__ import annotations

import asyncio

import pytest

from helpers.properties import is_full

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(300)]

RATE, REQUESTS = (500, 10_000) if is_full() else (50, 500)


@pytest.mark.gate
async def test_a_rolling_restart_loses_no_request(harbour):
    async with harbour() as installed:
        authority = await asyncio.to_thread(installed.authority)
        load = installed.load(lambda: authority)
        rolled = asyncio.Event()
        sending = asyncio.create_task(load.run(rate=RATE, until=rolled))
        while load.sent < REQUESTS:
            for name in installed.backends:
                await asyncio.to_thread(installed.installation.restart, name, grace=30.0)
                await installed.all_ready()
        rolled.set()
        await sending
        print(f"{load.answered} reviews, p99 {load.percentile(0.99) * 1000:.0f} ms")  # noqa: T201
        assert load.failures == {}
        assert load.answered == load.sent >= REQUESTS


async def test_a_killed_replica_loses_what_was_on_it_and_no_more(harbour):
    async with harbour() as installed:
        authority = await asyncio.to_thread(installed.authority)
        load = installed.load(lambda: authority)
        killed = asyncio.Event()
        sending = asyncio.create_task(load.run(rate=RATE, until=killed))
        await asyncio.sleep(2)
        load.peak = 0
        await asyncio.to_thread(installed.installation.kill, "webhook-2")
        others = [installed.backends[name] for name in ("webhook", "webhook-3")]
        await installed.balancer.await_ready(*others)
        in_flight = load.peak
        await asyncio.sleep(2)
        killed.set()
        await sending
        assert sum(load.failures.values()) <= in_flight
        assert load.answered >= load.sent - in_flight
