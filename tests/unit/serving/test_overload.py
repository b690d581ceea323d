"""Above capacity: quick refusals, the rest is served, health answers, recovery is at once."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace

import pytest

from harbourmaster.serving.limits import HEARTBEAT, Heartbeat, Limits
from harbourmaster.serving.readiness import Readiness, health_app
from harbourmaster.serving.responses import Refusal
from harbourmaster.telemetry.metrics import create_metrics
from helpers.raw_http import Echo, post, post_chunked

pytestmark = pytest.mark.slow


@pytest.fixture
def metrics():
    return create_metrics("0")


def count_shed(metrics, reason):
    return metrics.registry.get_sample_value(
        "harbourmaster_requests_shed_total", {"reason": reason}
    )


def test_a_request_more_than_allowed_is_refused_and_counted(metrics):
    limits = Limits(requests=1, metrics=metrics)
    with limits.admit(), pytest.raises(Refusal) as refusal, limits.admit():
        pass
    assert (refusal.value.status, refusal.value.retry_after) == (429, 1)
    assert count_shed(metrics, "requests") == 1
    with limits.admit():
        assert limits.requests_in_flight == 1


def test_a_request_with_too_many_bytes_is_refused_and_counted(metrics):
    limits = Limits(metrics=metrics)
    client = SimpleNamespace(has_too_much=False)
    with limits.admit(client) as admission:
        admission.check_bytes()
        client.has_too_much = True
        with pytest.raises(Refusal):
            admission.check_bytes()
    assert limits.requests_in_flight == 0
    assert count_shed(metrics, "bytes") == 1


async def test_s40_above_capacity_requests_are_refused_at_once(serve, connect):
    echo = Echo(limits=Limits(requests=2))
    echo.hold = asyncio.Event()
    site = await serve(echo)
    wires = [await connect(site) for _ in range(6)]
    for wire in wires:
        wire.send(post())
    answers = asyncio.as_completed([wire.answer() for wire in wires])
    refused = [await next(answers) for _ in range(4)]
    assert [(each.status, each.headers["retry-after"]) for each in refused] == [(429, "1")] * 4
    echo.hold.set()
    assert [(await answer).status for answer in answers] == [200, 200]


async def test_s40_a_refused_connection_can_be_used_again(serve, connect):
    echo = Echo(limits=Limits(requests=1))
    echo.hold = asyncio.Event()
    site = await serve(echo)
    first, second = await connect(site), await connect(site)
    first.send(post())
    await echo.begun.wait()
    assert (await second.ask(post())).status == 429
    echo.hold.set()
    await first.answer()
    assert (await second.ask(post())).status == 200


async def test_s40_health_answers_under_overload(serve, connect, metrics):
    echo = Echo(limits=Limits(requests=1, metrics=metrics))
    echo.hold = asyncio.Event()
    site, health = await serve(echo), await serve(health_app(Readiness(), metrics.registry))
    held, wire = await connect(site), await connect(health)
    held.send(post())
    await echo.begun.wait()
    assert (await (await connect(site)).ask(post())).status == 429
    for path in ("/healthz", "/readyz", "/metrics"):
        answer = await wire.ask(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert answer.status == 200
    assert b'requests_shed_total{reason="requests"} 1.0' in answer.body
    echo.hold.set()
    await held.answer()


async def test_s40_a_late_event_loop_refuses_until_it_is_on_time_again(
    serve, connect, metrics, monkeypatch
):
    monkeypatch.setattr("harbourmaster.serving.limits.HEARTBEAT", 0.25)
    limits = Limits(lag=0.1, metrics=metrics)
    wire = await connect(await serve(Echo(limits=limits)))
    limits.start()
    assert (await wire.ask(post())).status == 200
    status = 200
    # Again where the machine stood still until the loop was on time.
    while status == 200:
        time.sleep(0.5)  # noqa: ASYNC251 - the fault itself
        await asyncio.sleep(0.001)
        status = (await wire.ask(post())).status
    assert status == 429
    while (await wire.ask(post())).status != 200:
        pass
    limits.stop()
    assert count_shed(metrics, "lag") >= 1


async def test_a_stopped_measurement_leaves_no_timer():
    limits = Limits()
    limits.start()
    limits.stop()
    before = limits.lag = 7.0
    await asyncio.sleep(2 * HEARTBEAT)
    assert limits.lag == before


@pytest.mark.parametrize("is_chunked", [False, True], ids=["length", "chunked"])
async def test_s5_many_bodies_at_the_limit_stay_within_the_bytes_in_flight(
    serve, connect, is_chunked
):
    size, at_once = 100_000, 10
    echo = Echo(limit=size, limits=Limits(body_bytes=size * at_once))
    echo.hold = asyncio.Event()
    site = await serve(echo)
    body = bytes(size)
    data = post_chunked(body) if is_chunked else post(body)
    wires = [await connect(site) for _ in range(100)]
    answers = asyncio.as_completed([wire.ask(data) for wire in wires])
    # Whoever has room is held until all others were answered.
    statuses = [(await next(answers)).status for _ in range(100 - at_once)]
    assert statuses == [429] * (100 - at_once)
    echo.hold.set()
    statuses += [(await answer).status for answer in answers]
    assert {statuses.count(200) + statuses.count(429)} == {100}
    assert 1 <= statuses.count(200) <= at_once
    assert echo.most_bytes <= size * at_once
    assert echo.limits.bytes_in_flight == 0


async def test_each_beat_tells_how_late_it_was():
    lags, twice = [], asyncio.Event()

    def note(lag):
        lags.append(lag)
        if len(lags) == 2:
            twice.set()

    heartbeat = Heartbeat(0.01, note)
    heartbeat.start()
    time.sleep(0.2)  # noqa: ASYNC251 - the fault itself
    await twice.wait()
    heartbeat.stop()
    assert min(lags) >= 0
    assert max(lags) > 0.15


async def test_after_the_stop_nothing_is_told():
    lags = []
    heartbeat = Heartbeat(0.01, lags.append)
    heartbeat.start()
    heartbeat.stop()
    heartbeat.stop()
    await asyncio.sleep(0.03)
    assert lags == []
