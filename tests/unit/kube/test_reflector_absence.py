"""A resource whose definition comes and goes (decision D13)."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from harbourmaster.kube.errors import ServerError
from helpers.scripted_api import END, ScriptedApi, Thing, follow
from helpers.virtual_time import virtual


@pytest.fixture
def api():
    return ScriptedApi()


@virtual
async def test_an_absent_resource_is_synced_empty_and_no_error(api):
    api.absent = True
    with capture_logs() as logs:
        async with follow(api) as follower:
            await asyncio.sleep(600)
            assert follower.reflector.absent
            assert follower.reflector.error is None
            assert follower.objects == {}
            assert follower.states == [(None, True, True)]
            assert follower.changes == []
    assert [line["event"] for line in logs] == ["resource not served"]


@virtual
async def test_an_absent_resource_is_looked_for_ever_more_seldom(api):
    api.absent = True
    async with follow(api, chance=lambda: 0.0):
        await asyncio.sleep(3600)
        waits = [b - a for a, b in zip(api.times(), api.times()[1:], strict=False)]
        assert waits[:6] == pytest.approx([1, 2, 4, 8, 16, 32], abs=0.01)
        assert max(waits) == pytest.approx(60, abs=0.01)


@virtual
async def test_a_wake_finds_the_resource_at_once(api):
    api.absent = True
    async with follow(api) as follower:
        await asyncio.sleep(600)
        api.absent = False
        api.put("a", value=1)
        follower.reflector.wake()
        # Never before a second after the request before the last one.
        await asyncio.sleep(1.1)
        assert not follower.reflector.absent
        assert follower.objects == follower.server_state
        assert follower.changes == [frozenset(["prod/a"])]
        assert follower.states == [(None, True, True), (None, False, True)]
        assert api.verbs()[-2:] == ["list", "watch"]


@virtual
async def test_a_wake_during_the_request_that_says_absent_is_not_lost():
    class Racing(ScriptedApi):
        """The resource comes while the answer that it is absent is under way."""

        reflector = None

        async def _answer(self, verb, options):
            try:
                return await super()._answer(verb, options)
            finally:
                if self.reflector is not None:
                    self.absent = False
                    self.reflector.wake()

    racing = Racing()
    racing.absent = True
    async with follow(racing) as follower:
        await asyncio.sleep(600)
        assert follower.reflector.absent
        racing.reflector = follower.reflector
        follower.reflector.wake()
        await asyncio.sleep(1.1)
        assert not follower.reflector.absent


@virtual
async def test_without_a_wake_the_resource_is_found_within_a_minute(api):
    api.absent = True
    async with follow(api) as follower:
        await asyncio.sleep(3600)
        api.absent = False
        await asyncio.sleep(61)
        assert not follower.reflector.absent


@virtual
async def test_a_resource_that_goes_away_empties_the_store_and_is_told(api):
    api.put("a", value=1)
    api.put("b", value=2)
    async with follow(api) as follower:
        await asyncio.sleep(60)
        api.absent = True
        api.send(END)
        await asyncio.sleep(1)
        assert follower.reflector.absent
        assert follower.objects == {}
        assert follower.changes[1:] == [frozenset(["prod/a", "prod/b"])]
        assert follower.states[1:] == [(None, True, True)]
        api.absent = False
        await asyncio.sleep(5)
        assert follower.objects == {"prod/a": Thing(1), "prod/b": Thing(2)}
        assert follower.states[-1] == (None, False, True)


@virtual
async def test_a_resource_that_flaps_makes_no_storm(api):
    async with follow(api) as follower:
        for _ in range(2000):
            api.absent = not api.absent
            api.send(END)
            follower.reflector.wake()
            await asyncio.sleep(0.1)
        times = api.times()
        assert min(later - first for first, later in zip(times, times[2:], strict=False)) >= 0.999


@virtual
async def test_a_fault_while_absent_is_an_error_and_what_was_known_stays(api):
    api.absent = True
    async with follow(api) as follower:
        api.down = ServerError("no", status=500)
        await asyncio.sleep(60)
        assert follower.states[-1] == ("500: no", True, True)
        api.down = None
        await asyncio.sleep(60)
        assert follower.states[-1] == (None, True, True)
