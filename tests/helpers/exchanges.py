"""Recorded exchanges with providers: played by a server that wants exactly their requests."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from pathlib import Path

import pytest
from aiohttp import web

from harbourmaster.providers.errors import ProviderError
from harbourmaster.providers.http import HttpClient
from harbourmaster.providers.model import Answer
from harbourmaster.providers.query_client import QueryClient
from harbourmaster.providers.replies import Reply

RECORDED = Path(__file__).parents[1] / "fixtures/providers"
CANARY = "canary"
LOOPBACK = ("127.0.0.0/8",)


class Player:
    """``async with Player("datadog", "success") as player``: a server at ``player.url``.

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
        # Who hangs must not hold up the end.
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
    """What a request has else than ``wanted``."""
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


class Told:
    """In place of an Http: gives the same replies one after the other, the last one for ever."""

    def __init__(self, *bodies, status=200, kind="application/json"):
        self._replies = deque(Reply(status, {"content-type": kind}, body) for body in bodies)
        self.sent = []

    async def send(self, method, url, **options):
        self.sent.append((method, url, options))
        return self._replies.popleft() if len(self._replies) > 1 else self._replies[0]


async def timed_out(provider, target, question, *cases):
    """The error when the server plays the cases and then never answers."""

    class Hangs(Player):
        async def _answer(self, request):
            if self._left:
                return await super()._answer(request)
            await request.read()
            return await asyncio.get_running_loop().create_future()

    async with Hangs(target("").type, *cases) as player, HttpClient(allowed=LOOPBACK) as http:
        own = target(player.url)
        client = QueryClient(http, timeout=0.2, per_target=1, providers={own.type: provider})
        with pytest.raises(ProviderError) as caught:
            await client.ask(own, question)
    assert not player.wrong
    assert CANARY not in str(caught.value).lower()
    return caught.value


async def played(provider, target, question, kind, *cases):
    """The answer, or the error, of ``provider`` in recorded exchanges.

    ``target`` makes the target from the URL of the server.
    """
    async with Player(kind, *cases) as player, HttpClient(allowed=LOOPBACK) as http:
        return await outcome(provider, http, target(player.url), question)


async def outcome(provider, http, target, question):
    """The answer or the error; neither shows a credential."""
    assert CANARY not in repr(target).lower()
    try:
        found = await provider.ask(http, target, question)
    except ProviderError as error:
        found = error
    else:
        assert isinstance(found, Answer)
    if isinstance(found, ProviderError):
        assert CANARY not in str(found).lower()
        assert str(found).isprintable()
    return found


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
