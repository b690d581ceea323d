"""Member clusters that send too much get a condition; others keep working (krake-spec 7.11)."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import itertools
import json
from urllib.parse import parse_qsl, urlsplit

import pytest

from harbourmaster.api.resources import NODES
from harbourmaster.controller.placement.session import Session
from harbourmaster.controller.placement.settings import MemberSettings
from harbourmaster.kube import client, peer_bounds
from harbourmaster.kube.connection import Connection
from harbourmaster.kube.peer_bounds import (
    MAX_HELD,
    MAX_LIST,
    MAX_PAGE_ITEMS,
    HeldObjects,
    PeerBounds,
    PeerBudget,
)
from harbourmaster.kube.untrusted_kubeconfig import Access
from harbourmaster.placement.cluster_state import NodeCondition, ObservedNode
from harbourmaster.providers.addresses import AddressFilter
from harbourmaster.providers.connector import make_connector
from harbourmaster.serving.background import running
from helpers.patience import PATIENCE
from helpers.provider_server import LOOPBACK, ProviderServer, http_answer
from helpers.virtual_time import virtual

CONDITIONS = (NodeCondition("NetworkUnavailable", "False"),) * 5
SETTINGS = MemberSettings(probe_interval_seconds=0.05, request_timeout_seconds=PATIENCE)
CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"


def node(number):
    conditions = [{"type": "Ready", "status": "True"}]
    name = f"node-{number:08}-{'x' * 40}"
    return {
        "metadata": {"name": name, "resourceVersion": f"{number}"},
        "status": {"conditions": conditions},
    }


def page(items=(), more=""):
    return {"metadata": {"resourceVersion": "1", "continue": more}, "items": list(items)}


def chunk(data):
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(kind, number):
    document = {"type": kind, "object": node(number)}
    return chunk(json.dumps(document).encode() + b"\n")


class Member:
    """Answers as a cluster without nodes, except for what ``answers`` says."""

    def __init__(self, **answers):
        self.answers = answers
        self.lists = 0
        self.numbers = itertools.count()

    async def __call__(self, request):
        line = request.line
        if "/nodes" not in line:
            yield self._take("groups") or http_answer({"groups": [], "items": [], **page()})
        elif "watch=true" in line:
            yield CHUNKED
            async for piece in self.answers.get("events", quiet)(self):
                yield piece
        elif "PartialObjectMetadata" in request.headers["accept"]:
            # The check whether the cluster answers.
            yield http_answer(page([node(0)]))
        else:
            self.lists += 1
            yield self._take("nodes") or http_answer(page([node(0)]))

    def _take(self, name):
        answer = self.answers.get(name)
        return answer(self) if callable(answer) else answer


async def quiet(_member):
    await asyncio.get_running_loop().create_future()
    yield b""


async def flood(member):
    while True:
        yield b"".join(event("ADDED", number) for number in itertools.islice(member.numbers, 100))


async def endless_line(_member):
    yield chunk(b'{"type":"ADDED","object":"')
    while True:
        yield chunk(b"x" * 60_000)


async def interim(_member):
    while True:
        yield chunk(b"\n") * 4000


def small_pages(member):
    first = next(member.numbers) * 50
    return http_answer(page(map(node, range(first, first + 50)), more=f"t{first}"))


def empty_pages(member):
    return http_answer(page(more=f"t{next(member.numbers)}"))


def broken_pages(member):
    return http_answer(page(["broken"] * 500, more=f"t{next(member.numbers)}"))


GROUPS = [{"versions": [{"groupVersion": f"g{n}.example.com/v1"}]} for n in range(2000)]
START = b'{"metadata":{"resourceVersion":"1"},"items":['
HOSTILE = {
    "a list without end": (
        {"nodes": small_pages},
        "its answers and objects take more than 400000 bytes",
    ),
    "empty pages without end": ({"nodes": empty_pages}, "a list of more than 30 pages"),
    "unreadable objects without end": ({"nodes": broken_pages}, "a list of more than 30 pages"),
    "a million tiny values": (
        {"nodes": http_answer(START + b"0," * 900_000 + b"0]}")},
        "a page of too many values",
    ),
    "many tiny objects": (
        {"nodes": http_answer(START + b'{"name":0},' * 6000 + b"0]}")},
        f"a list of more than {MAX_PAGE_ITEMS} objects in a page",
    ),
    "a huge answer": (
        {"nodes": http_answer(START + b" " * 9_000_000 + b"]}")},
        "an answer of more than 8388608 bytes",
    ),
    "deep objects": (
        {"nodes": http_answer(START + b"[" * 400_000 + b"]" * 400_000 + b"]}")},
        "it is nested too deeply",
    ),
    "events without end": (
        {"events": flood},
        "its answers and objects take more than 400000 bytes",
    ),
    "an event without end": ({"events": endless_line}, "a line is longer than 8388608 bytes"),
    "tiny chunks without end": ({"events": interim}, "headers, interim responses or chunks"),
    "interim responses without end": (
        {"nodes": b"HTTP/1.1 100 Continue\r\n\r\n" * 100_000},
        "headers, interim responses or chunks",
    ),
    "thousands of API groups": (
        {"groups": http_answer({"groups": GROUPS, "items": [], **page()})},
        "more than 1000 versions of API groups",
    ),
}


@contextlib.asynccontextmanager
async def observed(server, budget=None, key="evil/m"):
    """A session with the cluster, and the queue of its changes."""
    changes = asyncio.Queue()
    connection = Connection(
        server=server.url, connector=lambda: make_connector(AddressFilter(LOOPBACK))
    )
    session = Session(
        key,
        Access(connection=connection, namespace="", expires=None),
        SETTINGS,
        discover=True,
        on_change=lambda: changes.put_nowait(None),
        on_objects=lambda _uids: None,
        on_crash=lambda name: pytest.fail(f"{name} crashed"),
        budget=budget,
    )

    async def until(condition):
        async with asyncio.timeout(PATIENCE):
            while not condition(session.observation):
                await changes.get()
        return session.observation

    async with running(session.run()):
        yield session, until


@pytest.fixture(autouse=True)
def _few_pages(monkeypatch):
    monkeypatch.setattr(peer_bounds, "MAX_PAGES", 30)


@pytest.mark.parametrize("case", HOSTILE)
@pytest.mark.claim("P6")
async def test_a_hostile_member_gets_a_condition(case, monkeypatch):
    answers, text = HOSTILE[case]
    if "400000" in text:
        monkeypatch.setattr(peer_bounds, "MAX_HELD", 400_000)
    scanned = []
    monkeypatch.setattr(client, "shallow", lambda body, _level: scanned.append(body) or body)
    member = Member(**answers)
    async with ProviderServer(member) as server, observed(server) as (session, until):
        observation = await until(lambda seen: seen.excess)
        assert text in observation.excess
        # What was read stays within the limits, and the next try comes later.
        assert session.bounds._share.size <= peer_bounds.MAX_HELD
        assert member.lists <= 40
    assert scanned == []


async def test_compressed_answers_are_not_decompressed():
    body = gzip.compress(b'{"metadata":{"resourceVersion":"1"},"items":[' + b" " * 10**6 + b"]}")
    answer = http_answer(body, "200 OK", "Content-Encoding: gzip")
    async with ProviderServer(Member(nodes=answer)) as server, observed(server) as (_, until):
        observation = await until(lambda seen: seen.nodes_fault)
        assert observation.nodes == ()


@pytest.mark.claim("P6")
async def test_members_share_a_limit_and_a_small_one_always_works(monkeypatch):
    monkeypatch.setattr(peer_bounds, "ALL_HELD", 500_000)
    monkeypatch.setattr(peer_bounds, "_FLOOR", 100_000)

    def nodes(count):
        return http_answer(page(map(node, range(count))))

    budget = PeerBudget(asyncio.get_running_loop().time)
    async with (
        ProviderServer(Member(nodes=nodes(400))) as first,
        ProviderServer(Member(nodes=nodes(400))) as second,
        ProviderServer(Member(nodes=nodes(50))) as small,
    ):
        async with observed(first, budget) as (session, until):
            await until(lambda seen: len(seen.nodes) == 400)
            async with observed(second, budget, "evil/n") as (_, until_second):
                seen = await until_second(lambda seen: seen.excess)
                assert "together with all others" in seen.excess
            async with observed(small, budget, "good/m") as (_, until_small):
                seen = await until_small(lambda seen: len(seen.nodes) == 50)
                assert seen.excess == ""
            session.bounds.close()
        assert budget.held.used < 200_000


async def test_objects_that_go_are_counted_no_longer():
    clock = asyncio.get_running_loop().time
    bounds = PeerBounds(PeerBudget(clock), lambda: None)
    held = HeldObjects(bounds, "list nodes")
    nodes = {str(number): ObservedNode(str(number)) for number in range(10)}
    for _ in range(100):
        for value in nodes.values():
            held.replace(None, value)
        held.end_list(nodes.values())
        held.replace(nodes["1"], ObservedNode("other" * 10))
        held.replace(ObservedNode("other" * 10), nodes["1"])
    assert bounds._share.size == sum(map(peer_bounds._weigh, nodes.values()))
    held.end_list(())
    assert bounds._share.size == 0


async def test_work_beyond_the_rate_has_to_wait(monkeypatch):
    now, waits = 0.0, []
    bounds = PeerBounds(PeerBudget(lambda: now), lambda: None)

    async def sleep(seconds):
        waits.append(seconds)

    monkeypatch.setattr("asyncio.sleep", sleep)
    for _ in range(30):
        await bounds.pause(1000, 0)
    assert waits == []
    await bounds.pause(1, 1000 * 4096)
    assert waits == [0.5]
    now = 1.0
    await bounds.pause(1000, 0)
    assert waits == [0.5]


@virtual
async def test_empty_lines_of_a_watch_are_work(monkeypatch):
    chunks = []

    async def answer(*_args, **_options):
        while True:
            await asyncio.sleep(0.01)
            chunks.append(b"\r\n" * 40_000)
            yield chunks[-1]

    bounds = PeerBounds(PeerBudget(asyncio.get_running_loop().time), lambda: None)
    member = client.Client(Connection(server="http://127.0.0.1:1"), bounds=bounds)
    monkeypatch.setattr(member._transport, "chunks", answer)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(60):
            async for _ in member.watch(
                NODES, resource_version="1", timeout_seconds=300, idle_timeout=150.0
            ):
                pass
    assert len(chunks) * 40_000 <= 30_000 + 60 * 2000 + 40_000


def test_five_thousand_nodes_of_16_kib_are_within_the_limits():
    names = [f"ip-10-0-{number // 256}-{number % 256}.compute.internal" for number in range(5000)]
    weights = [peer_bounds._weigh(ObservedNode(name, CONDITIONS)) for name in names]
    assert sum(weights) < MAX_HELD / 3
    assert MAX_LIST / 3 > 5000 * 16 * 1024


async def test_a_server_that_ignores_the_limit_of_a_page_is_read():
    nodes = http_answer(page(map(node, range(4000))))
    async with ProviderServer(Member(nodes=nodes)) as server, observed(server) as (_, until):
        seen = await until(lambda seen: len(seen.nodes) == 4000)
        assert seen.excess == ""


@pytest.mark.full
async def test_five_thousand_nodes_of_16_kib_are_read(monkeypatch):
    monkeypatch.setattr(peer_bounds, "MAX_PAGES", 2000)
    padding = {"annotations": {"padding": "x" * 16_000}}

    async def answer(request):
        query = dict(parse_qsl(urlsplit(request.line.split()[1]).query))
        if "/nodes" not in request.line or "watch" in query:
            async for piece in Member()(request):
                yield piece
            return
        start, limit = int(query.get("continue", 0)), int(query["limit"])
        items = [node(number) for number in range(start, min(start + limit, 5000))]
        for item in items:
            item["metadata"] |= padding
        yield http_answer(page(items, more=str(start + limit) if start + limit < 5000 else ""))

    async with ProviderServer(answer) as server, observed(server) as (_, until):
        seen = await until(lambda seen: len(seen.nodes) == 5000)
        assert seen.excess == ""
