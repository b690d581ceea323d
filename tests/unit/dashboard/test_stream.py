from __future__ import annotations

import asyncio
import contextlib
import re

import pytest

from harbourmaster.dashboard import stream
from harbourmaster.dashboard.stream import MOST, MOST_OF_USER
from harbourmaster.dashboard.tokens import PAGE_RATE as ALLOWED
from helpers.patience import PATIENCE


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(stream, "PAUSE", 0.05)
    monkeypatch.setattr(stream, "HEARTBEAT", 0.1)


@contextlib.asynccontextmanager
async def open_stream(place, path, token="captain"):  # noqa: S107 - of a stub
    async with place.ask(path, token, headers={"Accept": "text/event-stream"}) as answer:
        assert answer.status == 200
        assert answer.content_type == "text/event-stream"

        async def next_event():
            async with asyncio.timeout(PATIENCE):
                while True:
                    line = (await answer.content.readline()).decode()
                    if line.startswith("event: "):
                        return line[len("event: ") :].strip()
                    if not line:
                        return ""

        yield next_event


async def test_a_page_is_told_that_it_is_outdated(place):
    async with open_stream(place, "/stream?view=gates") as next_event:
        place.filled.gated("shop", "cart")
        assert await next_event() == "changed"
        place.filled.gated("shop", "ledger", 1)
        assert await next_event() == "changed"


async def test_a_page_is_told_of_what_it_shows_and_may_be_seen_only(place):
    for namespace in ("shop", "mail"):
        place.filled.namespace(namespace)
    async with open_stream(place, "/stream?view=applications", "sailor") as next_event:
        place.filled.gated("shop", "cart")
        place.filled.app("mail", "mailer")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.4):
                await next_event()
    async with open_stream(place, "/stream?view=applications", "sailor") as next_event:
        place.filled.app("shop", "cart")
        assert await next_event() == "changed"


async def test_the_page_of_a_check_is_told_of_it_and_of_its_releases(place):
    text = "/checks/keptnmetrics/shop/p95"
    place.filled.metric("shop", "p95")
    live = re.search(r'data-live="([^"]*)"', await place.page(text))[1]
    async with open_stream(place, live.replace("&amp;", "&")) as next_event:
        place.filled.metric("shop", "p95", value="1")
        assert await next_event() == "changed"
        place.filled.app("shop", "cart")
        assert await next_event() == "changed"


async def test_many_changes_are_few_events(place, monkeypatch):
    monkeypatch.setattr(stream, "PAUSE", 0.3)
    async with open_stream(place, "/stream?view=applications") as next_event:
        for number in range(200):
            place.filled.app("shop", f"cart-{number}", number)
        assert await next_event() == "changed"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.15):
                await next_event()


async def test_a_stream_ends_when_its_reader_may_not_read_any_more(place, monkeypatch):
    monkeypatch.setattr(stream, "RECHECK", 0.05)
    place.filled.namespace("shop")
    async with open_stream(place, "/stream?view=gates", "sailor") as next_event:
        place.access.namespaces["sailor"] = frozenset()
        assert await next_event() == "end"
    async with open_stream(place, "/stream?view=gates") as next_event:
        del place.access.namespaces["captain"]
        assert await next_event() == "end"


async def test_streams_are_bounded(place):
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(MOST_OF_USER):
            await stack.enter_async_context(open_stream(place, "/stream?view=gates"))
        async with place.ask("/stream?view=gates") as answer:
            assert answer.status == 503
            assert "Retry-After" in answer.headers
        # Nothing is asked for who can have no more.
        asked = len(place.access.asked)
        async with place.ask("/stream?view=overview") as answer:
            assert answer.status == 503
        assert len(place.access.asked) == asked
    hub = place.filled.dashboard.hub
    async with asyncio.timeout(PATIENCE):
        while hub._readers:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.01)
    async with open_stream(place, "/stream?view=gates"):
        pass


@pytest.mark.claim("D9")
async def test_few_users_with_many_streams_do_not_keep_out_another(place):
    crew = [f"sailor-{number}" for number in range(MOST // MOST_OF_USER)]
    place.access.namespaces |= dict.fromkeys(crew, frozenset("*"))
    async with contextlib.AsyncExitStack() as stack:
        first = await stack.enter_async_context(open_stream(place, "/stream?view=gates", crew[0]))
        for name in [*crew * (MOST_OF_USER - 1), *crew[1:]]:
            await stack.enter_async_context(open_stream(place, "/stream?view=gates", name))
        for _ in range(2):
            await stack.enter_async_context(open_stream(place, "/stream?view=gates"))
        assert await first() == "end"
        # Who has most gets no more, and takes none from others.
        async with place.ask("/stream?view=gates", crew[-1]) as answer:
            assert answer.status == 503


async def test_a_server_that_stops_ends_its_streams(place):
    async with open_stream(place, "/stream?view=gates") as next_event:
        stopping = asyncio.create_task(place.site.stop())
        assert await next_event() == "end"
        async with asyncio.timeout(PATIENCE):
            await stopping


async def test_a_page_that_is_none_has_no_stream(place):
    for query in ("", "?view=nothing"):
        assert "event:" not in await place.page(f"/stream{query}", status=404)


async def test_streams_count_as_pages_do(place, monkeypatch):
    made = place.filled.dashboard._page_rate
    now = made._clock()
    monkeypatch.setattr(made, "_clock", lambda: now)
    for _ in range(ALLOWED.single.burst):
        made.note("captain")
    async with place.ask("/stream?view=gates") as answer:
        assert answer.status == 429
    assert not place.access.asked
