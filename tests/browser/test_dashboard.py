"""Each page of the dashboard as people have it: wide and on a phone, light and dark, by keyboard.

Pictures of all go to build/screenshots, and how long each page's first byte takes.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from types import SimpleNamespace
from urllib.parse import unquote

import pytest
import pytest_asyncio

from helpers.browser import PHONE, SCREENSHOTS, WIDE, first_byte, logged_in, open_visit
from helpers.dashboard import TOKEN, Filled, bearer, serve_dashboard

pytestmark = pytest.mark.full

SIZES = (0, 10, 1000)
PATHS = {
    "overview": "/",
    "applications": "/applications",
    "map": "/map",
    "map of pods": "/map?namespace=shop",
    "gates": "/gates",
    "metrics": "/checks",
    "evaluations": "/checks?view=evaluations",
    "definitions": "/checks?view=definitions",
    "policies": "/policies",
    "pods": "/policies/pods",
    "clusters": "/clusters",
    "placed": "/clusters?view=placed",
    "reservations": "/reservations",
    "login": "/login",
}
LISTS = ("applications", "gates", "policies", "clusters", "placed", "reservations")
ROWS = 100
LIMIT = 0.2
"""Seconds to the first byte that the dashboard promises; a stalled machine gets tenfold."""


@contextlib.asynccontextmanager
async def dashboard(size):
    """A dashboard with so many objects of each kind."""
    filled = Filled(max_age=3600).fill(size)
    async with serve_dashboard(filled) as site:
        yield SimpleNamespace(origin=site.url, size=size, filled=filled)


@pytest_asyncio.fixture(params=SIZES, ids=lambda size: f"of-{size}", loop_scope="session")
async def site(request):
    async with dashboard(request.param) as site:
        yield site


@pytest_asyncio.fixture(loop_scope="session")
async def small():
    async with dashboard(10) as site:
        yield site


LOOKS = {
    f"{name}-{scheme}": {**window, "color_scheme": scheme}
    for name, window in (("wide", WIDE), ("phone", PHONE))
    for scheme in ("light", "dark")
}


async def application_of(visit):
    """The path of the first application of the list; None where there is none."""
    await visit.go(PATHS["applications"])
    link = visit.page.locator("tbody tr th a").first
    return await link.get_attribute("href") if await link.count() else None


SHOWN = [(size, look) for size in (0, 10) for look in LOOKS]
# A hundred rows have the colours of ten.
SHOWN += [(1000, "wide-light"), (1000, "phone-dark")]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("site", "look"), SHOWN, indirect=["site"])
async def test_every_page_is_readable(browser, site, look):
    """Axe finds nothing, nothing sticks out, nothing comes from elsewhere or against the policy."""
    wrong = {}
    async with logged_in(browser, site.origin, TOKEN, **LOOKS[look]) as visit:
        paths = dict(PATHS)
        if application := await application_of(visit):
            paths |= {
                # Of the fill: a namespace with a failed application.
                "metric": "/checks/keptnmetrics/search/p95",
                "evaluation": "/checks/keptnevaluations/search/pre-errors-81724",
                "application": application,
                "pod": "/policies/pods/shop/0",
                "placement": "/clusters/shop/cart-0",
            }
        for name, path in paths.items():
            answer = await visit.go(path)
            assert answer.status == 200
            await visit.shoot(f"{name}-{site.size}-{look}")
            reported = [*await visit.grave_findings(), *await visit.overflow()]
            if reported:
                wrong[name] = reported
        assert visit.faults == []
        assert visit.elsewhere == []
    assert wrong == {}


@pytest.mark.parametrize("look", LOOKS)
async def test_a_release_that_is_held_is_readable(browser, look):
    filled = Filled(max_age=3600)
    filled.staged("shop", "store")
    async with (
        serve_dashboard(filled) as site,
        logged_in(browser, site.url, TOKEN, **LOOKS[look]) as visit,
    ):
        await visit.go("/applications/shop/store")
        await visit.page.evaluate("document.querySelectorAll('details').forEach(it => it.open = 1)")
        await visit.shoot(f"held-{look}")
        assert [*await visit.grave_findings(), *await visit.overflow()] == []
        assert visit.faults == []


@pytest.mark.parametrize("name", LISTS)
async def test_a_list_of_a_thousand_is_cut_into_pages_of_a_hundred(browser, name):
    async with (
        dashboard(1000) as site,
        logged_in(browser, site.origin, TOKEN) as visit,
    ):
        await visit.go(PATHS[name])
        seen = []
        for number in range(1, 11):
            rows = await visit.page.locator("tbody tr").all_text_contents()
            assert len(rows) == ROWS
            seen += rows
            assert f"Page {number} of 10" in await visit.page.inner_text("nav.turn")
            if number < 10:
                await visit.page.click("a[rel=next]")
                await visit.page.wait_for_load_state()
        assert await visit.page.locator("a[rel=next]").count() == 0
        ids = {" ".join(row.split()) for row in seen}
        assert len(ids) == 1000
        # The last one is found by its name among all.
        last = await visit.page.locator("tbody tr th .name, tbody tr th a").last.text_content()
        await visit.page.fill("input[name=q]", last.strip())
        await visit.page.press("input[name=q]", "Enter")
        await visit.page.wait_for_url(re.compile(r"[?&]q="))
        rows = await visit.page.locator("tbody tr").all_text_contents()
        assert 1 <= len(rows) < ROWS
        assert all(last.strip() in row for row in rows)
        assert visit.faults == []


async def test_the_first_byte_comes_soon(browser, site):
    """Measured as a person has it who clicks; a table stands beside the pictures."""
    table = {}
    for name, path in PATHS.items():
        times = []
        # The first one compiles the template.
        for _ in range(6):
            began = time.process_time()
            took, answer = await first_byte(site.origin + path, bearer())
            assert answer.startswith(b"HTTP/1.1 200"), answer[:200]
            times.append((took, time.process_time() - began))
        waited, worked = (round(min(seconds) * 1000, 1) for seconds in zip(*times[1:], strict=True))
        table[name] = {"ms": waited, "ms of CPU": worked}
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    (SCREENSHOTS / f"first-byte-ms-{site.size}.json").write_text(json.dumps(table, indent=1))
    assert max(row["ms"] for row in table.values()) < 10 * LIMIT * 1000, table


@pytest.mark.parametrize("name", [name for name in PATHS if name != "login"])
async def test_a_page_is_gone_through_by_keyboard(browser, small, name):
    async with logged_in(browser, small.origin, TOKEN) as visit:
        await visit.go(PATHS[name])
        expected = await visit.page.evaluate(
            "[...document.querySelectorAll('a[href], button, input:not([type=hidden]), select,"
            " summary')].filter(each => each.checkVisibility()).length"
        )
        stops = await visit.tab_through()
        assert len(stops) == expected
        assert stops[0]["text"] == "Skip to the content"
        assert [stop for stop in stops if not stop["visible"]] == []
        await visit.go(PATHS[name])
        for _ in stops:
            await visit.page.keyboard.press("Tab")
            at = await visit.page.evaluate("document.activeElement.outerHTML.slice(0, 200)")
            assert await visit.focus_shows(), at


async def test_the_link_to_the_content_skips_the_top(browser, small):
    async with logged_in(browser, small.origin, TOKEN) as visit:
        await visit.go("/gates")
        await visit.page.keyboard.press("Tab")
        await visit.page.keyboard.press("Enter")
        await visit.page.keyboard.press("Tab")
        inside = "document.getElementById('main').contains(document.activeElement)"
        assert await visit.page.evaluate(inside)


async def test_an_application_is_reached_and_read_by_keyboard_alone(browser, small):
    async with logged_in(browser, small.origin, TOKEN) as visit:
        await visit.go("/")
        await press_until(visit, "Applications")
        await visit.page.wait_for_url("**/applications")
        name = (await visit.page.locator("tbody tr th a").first.text_content()).strip()
        await press_until(visit, name)
        await visit.page.wait_for_url("**/applications/*/*")
        assert await visit.page.inner_text("h1") == name
        current = visit.page.locator("nav [aria-current=page]")
        assert await current.text_content() == "Applications"


async def press_until(visit, text):
    """Tab to what has this text, and press Enter."""
    for _ in range(200):
        await visit.page.keyboard.press("Tab")
        focused = await visit.page.evaluate("document.activeElement.textContent.trim()")
        if focused == text:
            await visit.page.keyboard.press("Enter")
            return
    raise AssertionError(f"nothing with the text {text} can have the focus")


async def test_everything_works_without_script(browser, small):
    async with logged_in(browser, small.origin, TOKEN, java_script_enabled=False) as visit:
        for name in LISTS:
            answer = await visit.go(PATHS[name])
            assert answer.status == 200
            assert await visit.page.locator("tbody tr").count() == 10
        await visit.go("/applications")
        await visit.page.locator("tbody tr th a").first.click()
        await visit.page.wait_for_url("**/applications/*/*")
        assert await visit.page.locator("ol.timeline li").count() > 0


async def test_one_logs_in_by_keyboard_and_out_again(browser, small):
    async with open_visit(browser, small.origin) as visit:
        await visit.go("/gates?namespace=prod")
        assert unquote(visit.page.url) == f"{small.origin}/login?next=/gates?namespace=prod"
        await visit.page.keyboard.type(TOKEN)
        await visit.page.keyboard.press("Enter")
        await visit.page.wait_for_url("**/gates?namespace=prod")
        (cookie,) = await visit.page.context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        assert TOKEN not in cookie["value"]
        assert await visit.page.evaluate("document.cookie") == ""
        await visit.page.get_by_role("button", name="Log out").press("Enter")
        await visit.page.wait_for_url("**/login")
        assert await visit.page.context.cookies() == []
        await visit.go("/gates")
        assert "/login" in visit.page.url
        assert visit.faults == []


async def test_a_wrong_token_is_told_at_the_field(browser, small):
    async with open_visit(browser, small.origin) as visit:
        await visit.go("/login")
        await visit.page.keyboard.type("wrong")
        await visit.page.keyboard.press("Enter")
        alert = visit.page.get_by_role("alert")
        assert "rejected this token" in await alert.text_content()
        described = await visit.page.get_attribute("#token", "aria-describedby")
        assert described == await alert.get_attribute("id")
        assert await visit.grave_findings() == []
        assert await visit.page.input_value("#token") == ""
