"""S40 on a real server: requests beyond the limit are refused at once, and soon freed."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from helpers.certificates import strict_client
from helpers.objects import body, cluster_policy, workload
from helpers.patience import PATIENCE, TEST_SECONDS
from helpers.raw_http import Connection, post
from helpers.server import WatchedServer, is_behind

PLACES = 8
POLICY = cluster_policy(nodeSelector={"disk": "ssd"}, tolerations=[{"operator": "Exists"}])
GOOD = post(body(workload()), path="/mutate")
HALF = post(body(workload()), "Content-Type: application/json", "X-Slow: 1", path="/mutate")[:-1]
"""A request that takes its place once; one without unusual header takes it again after 50 ms."""
TOLERATIONS = [{"key": f"key-{index}", "operator": "Exists"} for index in range(10_000)]
CROWD = 40


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A server with room for a few requests only."""
    # Places that are held are held until their clients let them go.
    options = (f"--max-in-flight={PLACES}", f"--body-timeout-seconds={TEST_SECONDS}")
    with WatchedServer(tmp_path_factory.mktemp("small"), POLICY, options=options) as server:
        yield server
    assert server.errors == []


@pytest.fixture
async def wires(small):
    """Open connections: ``await wires(count)``."""
    opened = []

    async def connect(count):
        context = strict_client(small.bundle)
        connections = [await Connection.open(small, context) for _ in range(count)]
        opened.extend(connections)
        return connections

    yield connect
    await asyncio.gather(*(wire.drop() for wire in opened))


@pytest.fixture
async def full(small, wires):
    """Connections whose requests take all places until their last byte comes."""
    connections = await wires(PLACES)
    for wire in connections:
        wire.send(HALF)
    (probe,) = await wires(1)
    async with asyncio.timeout(PATIENCE):
        while (answer := await probe.ask(GOOD)).status == 200 or is_behind(answer):
            pass
    return connections


@pytest.mark.claim("W7")
async def test_s40_above_capacity_every_request_is_refused_at_once(small, full, wires):
    for wire in await wires(20):
        answer = await wire.ask(GOOD)
        assert (answer.status, answer.headers["retry-after"]) == (429, "1")
    assert small.metric('harbourmaster_requests_shed_total{reason="requests"}') >= 20


@pytest.mark.claim("W7")
async def test_s40_a_flood_is_shed_health_answers_and_it_recovers(small, wires):
    data = post(body(workload("Pod", nodeName="@@@@", tolerations=TOLERATIONS)), path="/mutate")
    numbers = itertools.count()
    stop = asyncio.Event()
    answers = []

    async def flood(wire):
        while not stop.is_set():
            # Each pod is another one, so that each has to be worked out.
            asked = data.replace(b"@@@@", b"%04d" % next(numbers))
            try:
                answers.append(await wire.ask(asked))
            except (asyncio.IncompleteReadError, ConnectionError):
                # The rest of a refused body must come within two seconds.
                (wire,) = await wires(1)

    flooding = [asyncio.create_task(flood(wire)) for wire in await wires(CROWD)]
    healthy = await asyncio.to_thread(lambda: [small.get("/healthz") for _ in range(3)])
    while not any(answer.status == 429 for answer in answers):
        await asyncio.wait(flooding, timeout=0.05)
    stop.set()
    await asyncio.gather(*flooding)
    assert healthy == ["ok\n"] * 3
    assert {answer.status for answer in answers} == {200, 429}
    (wire,) = await wires(1)
    statuses = [0]
    async with asyncio.timeout(PATIENCE):
        while statuses[-1] != 200:
            statuses.append((await wire.ask(GOOD)).status)
    assert set(statuses) <= {0, 429, 200}
    assert small.get("/readyz") == "ok\n"
