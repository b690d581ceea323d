"""A real Prometheus is asked as metrics and evaluations ask it."""

from __future__ import annotations

import asyncio
import time
from base64 import b64encode
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from harbourmaster.playground.prometheus import Prometheus
from harbourmaster.providers.errors import (
    BadAnswerError,
    BadQueryError,
    NotFiniteError,
    NoValuesError,
    TooManyValuesError,
    UnauthorizedError,
)
from harbourmaster.providers.http import HttpClient
from harbourmaster.providers.model import Question, Sample, Target
from harbourmaster.providers.query_client import QueryClient
from helpers.cluster import eventually
from helpers.provider_server import LOOPBACK

SECRET = {"user": b"harbour", "password": b"master\n"}


@pytest.fixture
async def client():
    async with HttpClient(LOOPBACK) as http:
        yield QueryClient(http, timeout=10, per_target=4)


@pytest.fixture
def ask(client, prometheus):
    """Ask the shared server: ``await ask(query, start=...)``."""

    async def ask_server(query, **times):
        return await client.ask(Target("prometheus", prometheus.url), Question(query, **times))

    return ask_server


@asynccontextmanager
async def run_proxy(url):
    """A proxy that wants user and password, and takes no forms."""

    async def forward(request):
        expected = f"Basic {b64encode(b'harbour:master').decode()}"
        if request.headers.get("Authorization") != expected:
            return web.Response(status=401, text="who are you?")
        if request.method != "GET":
            return web.Response(status=405)
        path = request.path_qs.removeprefix("/behind")
        async with aiohttp.ClientSession(url) as session, session.get(path) as response:
            return web.Response(
                status=response.status,
                body=await response.read(),
                content_type=response.content_type,
            )

    app = web.Application()
    app.router.add_route("*", "/behind/{path:.*}", forward)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/behind/"
    finally:
        await runner.cleanup()


async def test_the_value_of_now(prometheus, ask):
    await asyncio.to_thread(prometheus.set, "a_tide", 4, harbour="north")
    answer = await ask('a_tide{harbour="north"}')
    assert (answer.value, answer.raw) == ("4", b'"4"')
    assert answer.samples[0].value == 4
    assert abs(answer.samples[0].time - time.time()) < 5
    assert (await ask("sum(a_tide) / 16")).value == "0.25"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((0.1, "0.1"), (123456789.125, "123456789.125"), (-0.0, "-0")),
        # The server writes exponents here, and its client for Go, which Keptn uses, writes none.
        *((1e21, "1000000000000000000000"), (1e-7, "0.0000001")),
    ],
)
async def test_values_are_written_as_keptn_writes_them(prometheus, ask, value, text):
    await asyncio.to_thread(prometheus.set, "a_depth", value)
    answer = await ask("a_depth")
    assert (answer.value, answer.samples[0].value) == (text, value)


async def test_the_values_of_a_range(prometheus, ask):
    await asyncio.to_thread(prometheus.set, "a_wave", 3)
    await asyncio.sleep(1.0)
    await asyncio.to_thread(prometheus.set, "a_wave", 5)
    end = round(time.time(), 3)
    begun = round(end - 1.0, 3)
    answer = await ask("a_wave", start=begun, end=end, step=0.25)
    assert [round(sample.time - begun, 3) for sample in answer.samples] == [0, 0.25, 0.5, 0.75, 1.0]
    assert {sample.value for sample in answer.samples} == {3.0, 5.0}
    first = await ask("a_wave", start=begun, end=end)
    assert first.samples == (Sample(begun, 3.0),)
    assert first.value == answer.value == "3"
    at = await ask("a_wave", end=begun)
    assert at.samples == (Sample(begun, 3.0),)


@pytest.mark.parametrize(
    ("query", "kind", "message"),
    [
        ("a_missing", NoValuesError, "no values in query result"),
        ("a_ship", TooManyValuesError, "too many values in query result"),
        ("scalar(vector(1))", BadAnswerError, "could not cast result"),
        ('"text"', BadAnswerError, "could not cast result"),
        ("a_ship[1m]", BadAnswerError, "could not cast result"),
        ("vector(0) / 0", NotFiniteError, "the value is NaN, expected a finite number"),
        ("vector(1) / 0", NotFiniteError, "the value is +Inf, expected a finite number"),
        ("a_ship{", BadQueryError, "parse error"),
        ("", BadQueryError, "no expression found in input"),
        ("sum(a_ship) + on(x) group_left a_ship", BadQueryError, None),
    ],
)
async def test_what_is_no_value_is_an_error(prometheus, ask, query, kind, message):
    for ship in ("one", "two"):
        await asyncio.to_thread(prometheus.set, "a_ship", 1, ship=ship)
    with pytest.raises(kind, match=message and message.replace("+", r"\+")) as caught:
        await ask(query)
    assert str(caught.value).isprintable()


async def test_user_and_password_go_to_who_asks_for_them(prometheus, client):
    await asyncio.to_thread(prometheus.set, "a_pier", 7)
    async with run_proxy(prometheus.url) as url:
        target = Target("prometheus", url, secret=SECRET)
        assert (await client.ask(target, Question("a_pier"))).value == "7"
        end = time.time()
        ranged = Question("a_pier", start=end - 0.2, end=end, step=0.1)
        assert {sample.value for sample in (await client.ask(target, ranged)).samples} == {7.0}
        for secret in (None, {**SECRET, "password": b"wrong"}):
            with pytest.raises(UnauthorizedError, match=r"\(HTTP 401\)$"):
                await client.ask(Target("prometheus", url, secret=secret), Question("a_pier"))


def test_what_was_measured_outlives_a_restart(prometheus, tmp_path):
    server = Prometheus(tmp_path, {"nobody": "http://127.0.0.1:9/metrics"})
    with server:
        eventually(lambda: server.query("up"))
    with server:
        assert server.query("last_over_time(up[5m])")
