"""Connections that end for others, and the bytes that count as buffered."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from harbourmaster.serving.connections import Connections, ConnectionShare
from harbourmaster.serving.limits import Limits
from harbourmaster.telemetry.metrics import create_metrics
from helpers.patience import PATIENCE
from helpers.raw_http import Echo, post

API_SERVER = "10.0.0.1"
POD = "10.1.0.1"


@dataclass(eq=False)
class Member:
    """A connection; ``age`` is in seconds."""

    address: str = POD
    age: float = 0
    is_idle: bool = True
    is_answering: bool = False
    held: int = 0
    is_evicted: bool = False

    def evict(self):
        self.is_evicted = True


class Tried:
    """Connections with these limits, and those that were evicted."""

    def __init__(self, *members, **limits):
        self.metrics = create_metrics("0")
        self.limits = Limits(metrics=self.metrics, **limits)
        self.connections = Connections(self.limits)
        self.members = members
        for member in members:
            member.share = ConnectionShare(self.connections, member, member.address)
            member.share.since -= member.age
            self.connections.accept(member.share)
            assert self.connections.hold(member.share, member.held)

    def evicted_members(self):
        return [member for member in self.members if member.is_evicted]

    def count(self, reason):
        return self.metrics.registry.get_sample_value(
            "harbourmaster_connections_evicted_total", {"reason": reason}
        )


async def test_above_the_limit_the_longest_idle_one_of_the_largest_address_ends():
    oldest_of_few = Member(API_SERVER, age=100)
    oldest = Member(age=20)
    tried = Tried(Member(age=10), oldest, oldest_of_few, Member(age=5), Member(), connections=4)
    assert tried.evicted_members() == [oldest]
    assert tried.count("connections") == 1


async def test_an_idle_connection_ends_before_one_with_a_request():
    idle = Member(age=1)
    tried = Tried(Member(age=9, is_idle=False), idle, Member(), connections=2)
    assert tried.evicted_members() == [idle]


async def test_above_the_limit_a_request_that_is_whole_is_still_answered():
    half = Member(age=1, is_idle=False)
    whole = Member(age=9, is_idle=False, is_answering=True)
    tried = Tried(whole, half, whole, Member(API_SERVER), connections=2)
    assert tried.evicted_members() == [half]
    none = Tried(whole, Member(is_answering=True), Member(API_SERVER), connections=2)
    assert none.evicted_members() == []


@pytest.mark.parametrize("count", [1, 7, 4000], ids=["one address", "some", "one each"])
async def test_a_crowd_is_not_looked_at_as_a_whole(count):
    looked_at = []

    class Watched(Member):
        @property
        def is_answering(self):
            looked_at.append(self)
            return False

        @is_answering.setter
        def is_answering(self, value):
            pass

    crowd = [Watched(f"10.1.0.{index % count}") for index in range(4000)]
    busy = Member(API_SERVER)
    tried = Tried(busy, *crowd, connections=4001)
    busy.share.since += 1
    tried.connections.accept(ConnectionShare(tried.connections, Member(), "10.2.0.1"))
    assert len(tried.evicted_members()) == 1
    assert not busy.is_evicted
    assert len(looked_at) < 300


async def test_room_for_bytes_is_made_by_the_address_that_holds_most_for_longest():
    first, second = Member(held=50, age=9), Member(held=45, age=5)
    new = Member(API_SERVER)
    tried = Tried(first, second, Member(API_SERVER, held=5), new, body_bytes=100)
    assert tried.connections.hold(new.share, 30)
    assert tried.evicted_members() == [first]
    assert tried.limits.bytes_in_flight == 80
    assert tried.count("bytes") == 1


async def test_bytes_that_have_just_come_count_less_than_bytes_that_stay():
    pods = [Member(f"10.1.0.{index}", held=10, age=5) for index in range(5)]
    quick = Member(API_SERVER, held=50)
    new = Member("10.2.0.1")
    tried = Tried(quick, *pods, new, body_bytes=100)
    assert tried.connections.hold(new.share, 10)
    assert tried.evicted_members() == [pods[0]]


async def test_an_address_that_holds_most_gets_no_more_and_nothing_is_counted_of_it():
    new = Member()
    tried = Tried(Member(held=60, age=1), Member(API_SERVER, held=40, age=1), new, body_bytes=100)
    assert not tried.connections.hold(new.share, 10)
    assert tried.evicted_members() == []
    assert (tried.limits.bytes_in_flight, new.share.held) == (100, 0)


async def test_for_bytes_a_request_that_is_whole_is_still_answered():
    whole, new = Member(held=100, age=9, is_answering=True), Member(API_SERVER)
    tried = Tried(whole, new, body_bytes=100)
    assert not tried.connections.hold(new.share, 10)
    assert tried.evicted_members() == []


async def test_what_an_ended_connection_held_is_counted_no_more():
    member = Member(held=60)
    tried = Tried(member, body_bytes=100)
    tried.connections.remove(member.share)
    tried.connections.release(member.share, 60)
    assert tried.connections.hold(member.share, 10)
    assert (tried.limits.bytes_in_flight, member.share.held) == (0, 0)


@pytest.mark.parametrize("is_tls", [False, True], ids=["plain", "tls"])
async def test_an_incomplete_head_counts_until_it_ends(serve, connect, holder, trusting, is_tls):
    echo = Echo()
    site = await serve(echo, tls=holder.context if is_tls else None)
    wire = await connect(site, trusting if is_tls else None)
    data = post()
    wire.send(data[:40])
    while echo.limits.bytes_in_flight < 40:  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(0.001)
    wire.send(data[40:])
    assert (await wire.answer()).status == 200
    assert echo.limits.bytes_in_flight == 0


async def test_a_head_without_room_ends_its_connection(serve, connect):
    echo = Echo(limits=Limits(body_bytes=30))
    wire = await connect(await serve(echo))
    wire.send(post()[:40])
    assert await wire.rest() == b""
    assert echo.limits.bytes_in_flight == 0


async def test_an_answer_that_nobody_reads_counts(serve, connect, holder, trusting):
    echo = Echo()
    site = await serve(echo, tls=holder.context, unread=0.3)
    wire = await connect(site, trusting, limit=1024)
    wire.writer.transport.pause_reading()
    wire.send(post(path="/large"))
    while echo.limits.bytes_in_flight < 1024 * 1024:  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(0.001)
    async with asyncio.timeout(PATIENCE):
        await site.wait_until_unused()
    assert echo.limits.bytes_in_flight == 0


@pytest.mark.parametrize(("unread", "ends"), [(0, "closed"), (1, "aborted")])
async def test_an_idle_connection_whose_client_reads_nothing_is_not_waited_for(
    serve, connect, unread, ends
):
    class Socket:
        end = ""

        def get_write_buffer_size(self):
            return unread

        def close(self):
            self.end = "closed"

        def abort(self):
            self.end = "aborted"

    site = await serve(Echo())
    assert (await (await connect(site)).ask(post())).status == 200
    ((member,),) = site._connections._members.values()
    member.connection._socket = Socket()
    member.connection.evict()
    assert member.connection._socket.end == ends


async def test_a_large_request_and_answer_pass_tls(serve, connect, holder, trusting):
    size = 3_000_001
    site = await serve(Echo(limit=size), tls=holder.context)
    wire = await connect(site, trusting)
    body = bytes(range(256)) * (size // 256)
    for _ in range(2):
        answer = await wire.ask(post(body))
        assert (answer.status, answer.body) == (200, body)
