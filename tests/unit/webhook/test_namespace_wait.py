"""Reviews that wait for a namespace, each in its own time (decision D7)."""

from __future__ import annotations

import asyncio

import pytest

from harbourmaster.api.resources import NAMESPACES
from harbourmaster.webhook.cluster_state import ClusterState
from harbourmaster.webhook.engine import Engine, EngineHolder
from harbourmaster.webhook.settings import WatchSettings, WebhookSettings
from harbourmaster.webhook.snapshot import Snapshot
from helpers.tasks import background

WAIT = 0.1
LONG = 60.0
"""The wait in tests in which no time must run out, however slow the machine."""


@pytest.fixture
def longest_wait():
    return WAIT


@pytest.fixture
async def cluster(api, longest_wait):
    holder = EngineHolder(Engine(Snapshot(namespaces={}), WebhookSettings()))
    settings = WatchSettings(namespace_wait_seconds=longest_wait)
    async with api.client() as client:
        state = ClusterState(client, holder, settings, on_policies=lambda _: None)
        async with background(state.run()):
            await state.wait_until_synced()
            yield state


def later(seconds):
    return asyncio.get_running_loop().time() + seconds


async def test_who_comes_later_waits_longer(cluster):
    first = asyncio.create_task(cluster.arrival("never", later(LONG)))
    await asyncio.sleep(WAIT / 2)
    begun = later(0)
    second = asyncio.create_task(cluster.arrival("never", later(LONG)))
    assert await first is False
    assert not second.done()
    assert await second is False
    assert later(0) - begun >= WAIT * 0.9
    assert cluster._awaited == {}


@pytest.mark.parametrize("longest_wait", [LONG])
async def test_who_comes_later_is_told_when_the_first_is_gone(api, cluster):
    hasty = asyncio.create_task(cluster.arrival("new", later(0.01)))
    patient = asyncio.create_task(cluster.arrival("new", later(LONG)))
    assert await hasty is False
    api.put(NAMESPACES, {"metadata": {"name": "new"}})
    assert await patient is True


@pytest.mark.parametrize("longest_wait", [LONG])
async def test_a_caller_that_hangs_up_leaves_nothing_behind(cluster):
    waits = [asyncio.create_task(cluster.arrival(f"n-{i}", later(LONG))) for i in range(100)]
    task = asyncio.create_task(cluster.arrival("n-0", later(LONG)))
    await asyncio.sleep(0)
    for wait in waits:
        wait.cancel()
    await asyncio.wait(waits)
    assert list(cluster._awaited) == ["n-0"]
    task.cancel()
    await asyncio.wait([task])
    assert cluster._awaited == {}


async def test_a_thousand_unknown_namespaces_wait_side_by_side(cluster):
    begun = later(0)
    waits = [cluster.arrival(f"n-{i}", later(LONG)) for i in range(1000)]
    assert not any(await asyncio.gather(*waits))
    assert later(0) - begun < 1000 * WAIT / 4
    assert cluster._awaited == {}
