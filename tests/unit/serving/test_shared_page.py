"""A page that many ask for."""

from __future__ import annotations

import asyncio

import pytest

from harbourmaster.serving.readiness import SharedPage
from helpers.virtual_time import virtual

COST = 0.1


class Page:
    """A page that takes time to render; each rendering has another number."""

    def __init__(self):
        self.count = 0
        self.shared = SharedPage(self.render)

    def render(self):
        self.count += 1
        asyncio.get_running_loop()._now += COST
        return b"%d" % self.count


@virtual
async def test_who_asks_at_the_same_time_gets_one_rendering():
    page = Page()
    pages = await asyncio.gather(*(page.shared.get() for _ in range(100)))
    assert set(pages) == {b"1"}


@virtual
async def test_a_page_is_rendered_after_it_was_asked_for():
    page = Page()
    assert await page.shared.get() == b"1"
    assert await page.shared.get() == b"2"


@pytest.mark.claim("W14")
@virtual
async def test_a_flood_takes_a_fifth_of_the_loop():
    page = Page()
    clock = asyncio.get_running_loop().time

    async def flood():
        while clock() < end:
            await page.shared.get()

    began = clock()
    end = began + 10
    await asyncio.gather(*(flood() for _ in range(20)))
    spent = page.count * COST
    assert 1 < spent <= (clock() - began) / 5 + COST


@virtual
async def test_a_rendering_that_fails_is_tried_again():
    def render():
        if not failures:
            failures.append(1)
            raise ValueError
        return b"page"

    failures = []
    shared = SharedPage(render)
    with pytest.raises(ValueError):  # noqa: PT011 - it has no text
        await shared.get()
    assert await shared.get() == b"page"


@virtual
async def test_who_leaves_takes_the_page_from_nobody():
    page = Page()
    await page.shared.get()
    first, second = (asyncio.create_task(page.shared.get()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == b"2"
