"""Sessions in cookies, requests that wait for a turn, and how many tokens are tried (D2, D8)."""

from __future__ import annotations

import asyncio
import base64
import random

import pytest

from harbourmaster.dashboard.answers import PageRefused
from harbourmaster.dashboard.tokens import (
    AT_ONCE,
    LIFETIME,
    LONGEST_TOKEN,
    MOST_WAITING,
    Rate,
    RateLimit,
    Sealer,
    Turns,
)
from harbourmaster.kube.event_series import Allowance

TOKEN = "eyJhbGciOiJSUzI1NiJ9.e30.c2ln"  # noqa: S105 - of no user


@pytest.fixture
def sealer(clock):
    return Sealer(clock)


def test_what_was_sealed_is_opened(sealer):
    assert sealer.open(sealer.seal(TOKEN)) == TOKEN


@pytest.mark.claim("D2")
def test_the_token_can_not_be_read_in_the_cookie_and_no_two_are_alike(sealer):
    first, second = sealer.seal(TOKEN), sealer.seal(TOKEN)
    assert first != second
    assert TOKEN.encode() not in base64.urlsafe_b64decode(first + "==")


def test_a_session_ends(sealer, clock):
    cookie = sealer.seal(TOKEN)
    clock.now += LIFETIME - 1
    assert sealer.open(cookie) == TOKEN
    clock.now += 1
    assert sealer.open(cookie) is None


def test_every_replica_with_the_key_opens_it(sealer, clock):
    second = Sealer(clock)
    assert second.open(sealer.seal(TOKEN)) is None
    for replica in (sealer, second):
        replica.renew(b"key of the leaf")
    assert second.open(sealer.seal(TOKEN)) == TOKEN


def test_a_renewed_key_opens_what_the_last_one_sealed_and_not_the_one_before(sealer):
    sealer.renew(b"one")
    cookie = sealer.seal(TOKEN)
    sealer.renew(b"two")
    assert sealer.open(cookie) == TOKEN
    sealer.renew(b"two")
    assert sealer.open(cookie) == TOKEN
    sealer.renew(b"three")
    assert sealer.open(cookie) is None


def test_any_other_cookie_is_none(sealer):
    cookie = sealer.seal(TOKEN)
    strange = ["", "=", "a", "ab", "é", "\x00", "A" * 16, "A" * 5000, cookie[:-2], f"A{cookie}"]
    for value in strange:
        assert sealer.open(value) is None
    chosen = random.Random(7)  # noqa: S311 - a test's
    raw = bytearray(base64.urlsafe_b64decode(cookie + "=" * (-len(cookie) % 4)))
    for _ in range(200):
        place = chosen.randrange(len(raw))
        changed = bytearray(raw)
        changed[place] ^= 1 << chosen.randrange(8)
        assert sealer.open(base64.urlsafe_b64encode(changed).decode()) is None


def test_the_longest_token_fits_into_a_cookie(sealer):
    name_and_attributes = 200
    assert len(sealer.seal("x" * LONGEST_TOKEN)) + name_and_attributes < 4096


BURST, PERIOD, BURST_OF_ALL = 10, 6.0, 100
ALLOWED = Rate(Allowance(BURST, PERIOD), Allowance(BURST_OF_ALL, 0.6))


def wrong(attempts, address, times):
    for _ in range(times):
        assert not attempts.delay(address)
        attempts.note(address)


def test_an_address_that_is_wrong_too_often_waits_and_no_other_does(clock):
    attempts = RateLimit(ALLOWED, clock)
    wrong(attempts, "a", BURST)
    assert attempts.delay("a") == pytest.approx(PERIOD)
    assert not attempts.delay("b")
    clock.now += PERIOD
    wrong(attempts, "a", 1)
    assert attempts.delay("a")
    clock.now += PERIOD * BURST * 2
    wrong(attempts, "a", BURST)
    assert attempts.delay("a")


def test_all_addresses_together_have_a_bound_too(clock):
    attempts = RateLimit(ALLOWED, clock)
    for number in range(BURST_OF_ALL):
        wrong(attempts, f"address {number}", 1)
    assert attempts.delay("one more")


def test_no_number_of_addresses_is_remembered_for_ever(clock):
    attempts = RateLimit(ALLOWED, clock)
    for number in range(5000):
        clock.now += PERIOD
        attempts.note(str(number))
    assert len(attempts._single) <= 1024


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
