"""The browser tells what is wrong with a page; without that the other tests would prove nothing."""

from __future__ import annotations

import contextlib

import pytest
from aiohttp import web

from helpers.browser import PHONE, first_byte, open_visit

pytestmark = pytest.mark.full

GOOD = """<!doctype html><html lang="en"><head><title>Good</title>
<meta name="viewport" content="width=device-width"></head>
<body><main><h1>Good</h1><p>All is well.</p></main></body></html>"""
POLICY = {"Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'"}


@contextlib.asynccontextmanager
async def serve_page(body, headers=POLICY):
    async def answer(_request):
        return web.Response(text=body, content_type="text/html", headers=headers)

    async def icon(_request):
        return web.Response(status=204)

    app = web.Application()
    app.router.add_get("/favicon.ico", icon)
    app.router.add_get("/", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_a_good_page_has_no_findings(browser):
    async with serve_page(GOOD) as origin, open_visit(browser, origin, **PHONE) as visit:
        assert (await visit.go()).status == 200
        assert await visit.grave_findings() == []
        assert await visit.overflow() == []
        assert visit.faults == []
        assert visit.elsewhere == []


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ('<p style="color:#999">grey</p>', "color-contrast"),
        ("<button></button>", "button-name"),
        ('<img src="data:,">', "image-alt"),
        ('<div aria-hidden="true"><a href="/">x</a></div>', "aria-hidden-focus"),
    ],
)
async def test_axe_finds_what_is_wrong(browser, change, rule):
    body = GOOD.replace("<p>", f"{change}<p>")
    async with serve_page(body, {}) as origin, open_visit(browser, origin) as visit:
        await visit.go()
        findings = await visit.grave_findings()
        assert len(findings) == 1
        assert findings[0].startswith(f"{rule} at ")


async def test_a_page_that_is_too_wide_is_told_with_what_sticks_out(browser):
    body = GOOD.replace("<p>", f"<pre>{'x' * 200}</pre><p>")
    async with serve_page(body) as origin, open_visit(browser, origin, **PHONE) as visit:
        await visit.go()
        by, first, *_ = await visit.overflow()
        assert by > 0
        assert first.startswith("pre : xxx")


@pytest.mark.parametrize(
    "change",
    [
        "<script>alert(1)</script>",
        '<p style="color:red">red</p>',
        '<img alt="" src="http://192.0.2.1/x.png">',
        "<p onclick='alert(1)'>x</p>",
    ],
)
async def test_what_the_policy_forbids_is_told(browser, change):
    body = GOOD.replace("<p>", f"{change}<p>")
    async with serve_page(body) as origin, open_visit(browser, origin) as visit:
        await visit.go()
        for element in await visit.page.query_selector_all("[onclick]"):
            await element.click()
        assert len(visit.faults) == 1
        assert "Content Security Policy" in visit.faults[0]


async def test_a_request_to_elsewhere_is_told(browser):
    body = GOOD.replace("<p>", '<img alt="" src="http://127.0.0.1:9/x.png"><p>')
    async with serve_page(body, {}) as origin, open_visit(browser, origin) as visit:
        await visit.go()
        assert visit.elsewhere == ["http://127.0.0.1:9/x.png"]


LINKS = """<a href="#1">one</a> <a id="bare" href="#2">two</a> <button>three</button>
<a href="#4" style="position:absolute;left:-999px">away</a>"""


async def test_the_keyboard_goes_through_what_can_have_the_focus_once(browser):
    body = GOOD.replace("<p>", f"{LINKS}<p>")
    async with serve_page(body, {}) as origin, open_visit(browser, origin) as visit:
        await visit.go()
        stops = await visit.tab_through()
    assert [stop["text"] for stop in stops] == ["one", "two", "three", "away"]
    assert [stop["visible"] for stop in stops] == [True, True, True, False]


async def test_a_focus_that_nobody_sees_is_told(browser):
    body = GOOD.replace("<p>", f"<style>#bare:focus {{outline: none}}</style>{LINKS}<p>")
    async with serve_page(body, {}) as origin, open_visit(browser, origin) as visit:
        await visit.go()
        shown = []
        for _ in range(3):
            await visit.page.keyboard.press("Tab")
            shown.append(await visit.focus_shows())
    assert shown == [True, False, True]


async def test_the_first_byte_is_timed(browser):
    async with serve_page(GOOD) as origin:
        took, answer = await first_byte(f"{origin}/?a=b")
    assert 0 < took < 60
    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert b"All is well" in answer
