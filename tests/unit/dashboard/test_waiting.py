"""Requests that wait for a turn."""

from __future__ import annotations

import asyncio

import pytest

from harbourmaster.dashboard.answers import PageRefused
from harbourmaster.dashboard.tokens import AT_ONCE, MOST_WAITING, Turns


class Stage:
    """Turns that are held until they are let go; ``held`` has their addresses in order."""

    def __init__(self):
        self.pause = 0.0
        self.turns = Turns(lambda: self.pause)
        self.held = []
        self.free = asyncio.Semaphore(0)

    async def ask(self, address):
        async with self.turns.turn(address):
            self.held.append(address)
            await self.free.acquire()

    async def start(self, *addresses):
        tasks = [asyncio.create_task(self.ask(address)) for address in addresses]
        await settle()
        return tasks

    async def let_go(self, count):
        for _ in range(count):
            self.free.release()
            await settle()


async def settle():
    for _ in range(10):
        await asyncio.sleep(0)


async def test_addresses_take_turns_and_one_keeps_its_order():
    stage = Stage()
    tasks = await stage.start(*["a"] * (AT_ONCE + 3), "b", "b", "c")
    assert stage.held == ["a"] * AT_ONCE
    await stage.let_go(6)
    assert stage.held[AT_ONCE:] == ["a", "b", "c", "a", "b", "a"]
    await stage.let_go(AT_ONCE)
    await asyncio.gather(*tasks)


@pytest.mark.claim("D8")
async def test_a_newcomer_finds_room_where_one_address_has_taken_all():
    stage = Stage()
    crowd = await stage.start(*["a"] * (AT_ONCE + MOST_WAITING))
    (refused,) = await stage.start("a")
    with pytest.raises(PageRefused) as raised:
        await refused
    assert raised.value.retry_after
    (newcomer,) = await stage.start("b")
    assert not newcomer.done()
    assert sum(task.done() for task in crowd) == 1
    with pytest.raises(PageRefused):
        await crowd[-1]
    await stage.let_go(2)
    assert stage.held[-1] == "b"
    await stage.let_go(AT_ONCE + MOST_WAITING)
    assert newcomer.done()


async def test_who_leaves_gives_the_turn_back():
    stage = Stage()
    holders = await stage.start(*["a"] * AT_ONCE)
    waiting = await stage.start("b", "c")
    for task in (waiting[0], *holders[:2]):
        task.cancel()
    await settle()
    assert stage.held[AT_ONCE:] == ["c"]
    await stage.start("d")
    assert stage.held[AT_ONCE:] == ["c", "d"]


async def test_who_leaves_keeps_no_place():
    stage = Stage()
    await stage.start(*["a"] * AT_ONCE)
    crowd = await stage.start(*["b"] * MOST_WAITING)
    for task in crowd:
        task.cancel()
    await asyncio.gather(*crowd, return_exceptions=True)
    (last,) = await stage.start("b")
    assert not last.done()
    await stage.let_go(1)
    assert stage.held[AT_ONCE:] == ["b"]


async def test_turns_begin_after_the_pause():
    stage = Stage()
    stage.pause = 0.01
    tasks = await stage.start("a")
    assert stage.held == []
    stage.pause = 0.0
    await stage.let_go(1)
    await asyncio.gather(*tasks)
    assert stage.held == ["a"]
