"""The clients of metric providers, and recorded exchanges with these.

A server replays them, and expects exactly their requests.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from aiohttp import web
from msgspec.structs import replace

from harbourmaster.providers.datadog import Datadog
from harbourmaster.providers.dynatrace import Dynatrace
from harbourmaster.providers.elastic import Elastic
from harbourmaster.providers.errors import ProviderError
from harbourmaster.providers.http import HttpClient
from harbourmaster.providers.kafka import Kafka
from harbourmaster.providers.model import Answer, Question, Table, Target
from harbourmaster.providers.prometheus import Prometheus
from harbourmaster.providers.query_client import QueryClient
from harbourmaster.providers.requests import Reply

RECORDED = Path(__file__).parents[1] / "fixtures/providers"
CANARY = "canary"
LOOPBACK = ("127.0.0.0/8",)


class ReplayServer:
    """``async with ReplayServer("datadog", "success") as server``: a server at ``server.url``.

    Each request must be the next of the recording; ``then`` are further recordings. At the end
    all of them must have come.
    """

    def __init__(self, kind, *cases):
        self._left = deque(
            exchange
            for case in cases
            for exchange in json.loads((RECORDED / kind / f"{case}.json").read_text())["exchanges"]
        )
        self.wrong = []
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        # A hanging request must not delay the end.
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.01)
        self.url = ""

    async def __aenter__(self):
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, kind, *_error):
        await self._runner.cleanup()
        assert not self.wrong
        assert kind is not None or not self._left, "not everything was asked for"

    async def _answer(self, request):
        if not self._left:
            self.wrong.append(f"a request too many: {request.method} {request.path_qs}")
            return web.Response(status=500)
        exchange = self._left.popleft()
        body = await request.read()
        self.wrong += differences(exchange["request"], request, body)
        response = exchange["response"]
        text = response["text"] if "text" in response else json.dumps(response["body"])
        return web.Response(
            status=response["status"], headers=response["headers"], body=text.encode()
        )


def differences(wanted, request, body):
    """The parts of a request that differ from ``wanted``."""
    obj = {
        "method": request.method,
        "path": request.path,
        "params": dict(request.query),
        "headers": {name: request.headers.get(name) for name in wanted.get("headers", ())},
        "Authorization": request.headers.get("Authorization"),
        "body": None if "json" in wanted or not body else body.decode(),
        "json": json.loads(body) if "json" in wanted else None,
    }
    expected = {
        "method": wanted["method"],
        "path": wanted["path"],
        "params": wanted.get("params", {}),
        "headers": wanted.get("headers", {}),
        "Authorization": wanted.get("headers", {}).get("Authorization"),
        "body": wanted.get("body"),
        "json": wanted.get("json"),
    }
    return [
        f"{name}: {obj[name]!r} instead of {value!r}"
        for name, value in expected.items()
        if obj[name] != value
    ]


class FakeHttp:
    """Replaces HttpClient: returns the replies one after the other, and repeats the last one."""

    def __init__(self, *bodies, status=200, kind="application/json"):
        self._replies = deque(Reply(status, {"content-type": kind}, body) for body in bodies)
        self.sent = []

    async def send(self, method, url, **options):
        self.sent.append((method, url, options))
        return self._replies.popleft() if len(self._replies) > 1 else self._replies[0]


async def replay_and_hang(provider, target, question, *cases):
    """Return the error if the server replays the cases and then never answers."""

    class HangingServer(ReplayServer):
        async def _answer(self, request):
            if self._left:
                return await super()._answer(request)
            await request.read()
            return await asyncio.get_running_loop().create_future()

    async with (
        HangingServer(target("").type, *cases) as server,
        HttpClient(allowed=LOOPBACK) as http,
    ):
        own = target(server.url)
        client = QueryClient(http, timeout=0.2, per_target=1, providers={own.type: provider})
        with pytest.raises(ProviderError) as caught:
            await client.ask(own, question)
    assert not server.wrong
    assert CANARY not in str(caught.value).lower()
    return caught.value


async def replay(provider, target, question, kind, *cases):
    """Return the answer or the error of ``provider`` in recorded exchanges.

    ``target`` returns the target for the URL of the server.
    """
    async with ReplayServer(kind, *cases) as server, HttpClient(allowed=LOOPBACK) as http:
        return await outcome(provider, http, target(server.url), question)


async def outcome(provider, http, target, question):
    """Return the answer or the error, and check that neither has a credential."""
    assert CANARY not in repr(target).lower()
    try:
        result = await provider.ask(http, target, question)
    except ProviderError as error:
        result = error
    else:
        assert isinstance(result, Answer)
    if isinstance(result, ProviderError):
        assert CANARY not in str(result).lower()
        assert str(result).isprintable()
    return result


GARBAGE = [
    b"",
    b"null",
    b"[]",
    b"{}",
    b'"text"',
    b"true",
    b"\xff\xfe",
    b'{"a": 1',
    b"<html>",
    b"[" * 100_000,
    b"1" * 5000,
    b'{"result": [], "series": [], "hits": [], "state": 1, "row": []}',
]


NOW = 1772366400.5
URL = "https://metrics.example.com"


class ProviderClient:
    """A client with a target below the server's URL, and a question."""

    def __init__(self, provider, target, question):
        self.provider = provider
        self.target = target
        self.question = question

    def __str__(self):
        return self.target.type

    def at(self, url, **changes):
        """Return the target below a URL, with changed fields."""
        target = replace(self.target, **changes)
        return replace(target, server=url + target.server)

    def recorded_question(self, _case):
        """Return the question of a recording."""
        return self.question

    async def ask(self, case, question=None, **changes):
        """Return the answer or the error in recorded exchanges."""
        question = question or self.recorded_question(case)
        kind = self.target.type
        return await replay(
            self.provider, lambda url: self.at(url, **changes), question, kind, case
        )

    async def answer_to(self, body, question=None, status=200, kind="application/json", **changes):
        """Return the answer or the error for a response body, and the requests."""
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        http = FakeHttp(body, status=status, kind=kind)
        target = self.at(URL, **changes)
        return await outcome(self.provider, http, target, question or self.question), http.sent

    async def ask_hanging(self):
        """Return the error if the server never answers."""
        return await replay_and_hang(self.provider, self.at, self.question)


class PrometheusClient(ProviderClient):
    """The client of Prometheus, whose recordings have different queries."""

    def recorded_question(self, case):
        """Return the question of the recorded request."""
        recorded = json.loads((RECORDED / "prometheus" / f"{case}.json").read_text())
        body = recorded["exchanges"][0]["request"]["body"]
        form = {name: values[0] for name, values in parse_qs(body).items()}
        times = {name: float(form[name]) for name in ("start", "step") if name in form}
        end = form.get("end", form.get("time"))
        return Question(form["query"], end=None if end is None else float(end), **times)


DATADOG = ProviderClient(
    Datadog(now=lambda: NOW + 0.4),
    Target(
        "datadog",
        "",
        secret={"DD_CLIENT_API_KEY": b"dd-api-canary\n", "DD_CLIENT_APP_KEY": b"dd-app-canary"},
        secret_key="ignored",  # noqa: S106
    ),
    Question('avg:system.cpu.idle{env:prod,service:"web"}'),
)
DYNATRACE = ProviderClient(
    Dynatrace(),
    Target("dynatrace", "/e/abc12345/", secret={"token": b"dt0c01.CANARY\n"}, secret_key="token"),  # noqa: S106
    Question('builtin:service.response.time:filter(eq("service","web & co")):splitBy()'),
)
ELASTIC_QUERY = {
    "size": 0,
    "query": {
        "bool": {
            "filter": [{"term": {"service": "web"}}, {"range": {"@timestamp": {"gte": "now-5m"}}}]
        }
    },
    "aggs": {"latency": {"avg": {"field": "latency"}}},
}
ELASTIC = ProviderClient(
    Elastic(now=lambda: NOW),
    Target(
        "elastic",
        "/logs-web",
        secret={"apiKey": b"Y2FuYXJ5LWlkOmNhbmFyeS1rZXk=\n"},
        secret_key="apiKey",  # noqa: S106
    ),
    Question(json.dumps(ELASTIC_QUERY)),
)
KAFKA = ProviderClient(
    Kafka(now=lambda: NOW),
    Target("kafka", "/", table=Table("HEAT_DEMAND", "ZONE", "VALUE")),
    Question("zone'1"),
)
PROMETHEUS = PrometheusClient(
    Prometheus(),
    Target("prometheus", "", secret_key="ignored"),  # noqa: S106
    Question('tide{harbour="north"}'),
)
