"""The product's client without a network: only its HTTP session is replaced."""

from __future__ import annotations

import asyncio
from urllib.parse import parse_qsl

from harbourmaster.kube.client import Client
from harbourmaster.kube.connection import Connection
from harbourmaster.kube.transport import Transport
from helpers.api_server import verb_of
from helpers.fake_api import Seen

CONNECTION = Connection(server="http://simulated", source="the simulation")


class InProcessClient(Client):
    """A client whose requests ``carry`` answers, from a Seen and its time-outs with a Response."""

    def __init__(self, carry, **options):
        super().__init__(CONNECTION, **options)
        previous = self._transport
        self._transport = _Transport(
            CONNECTION,
            user_agent="simulated",
            timeout=previous._timeout,
            write_timeout=previous._write_timeout,
            retries=previous._retries,
            observer=previous._observer,
            sleep=previous._sleep,
        )
        self._transport.session = _Session(carry)
        self._transport.open()


class _Transport(Transport):
    def open(self):
        self._session = self.session


class _Session:
    def __init__(self, carry):
        self._carry = carry

    async def request(self, method, url, *, data, headers, timeout, **_options):  # noqa: ASYNC109 - aiohttp's
        if data is not None and not isinstance(data, bytes):
            data = data.read()
        query = dict(parse_qsl(url.raw_query_string))
        now = asyncio.get_running_loop().time()
        path = url.raw_path
        seen = Seen(now, verb_of(method, path, query), method, path, query, headers, data or b"")
        return await self._carry(seen, timeout)

    async def close(self):
        """Nothing is open."""


class Response:
    """The answer as aiohttp gives it: whole, or as ``chunks``."""

    def __init__(self, answer, chunks=None):
        self.status = answer.status
        self.headers = answer.headers
        self.content = self
        self._body = answer.body
        self._chunks = chunks

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        if self._chunks is not None:
            await self._chunks.aclose()

    async def iter_any(self):
        if self._chunks is None:
            yield self._body
            return
        async for chunk in self._chunks:
            yield chunk
