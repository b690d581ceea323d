"""An open page keeps up with what happens, keeps the reader's place, and shows text as text."""

from __future__ import annotations

import pytest
import pytest_asyncio

from helpers.browser import PHONE, logged_in
from helpers.dashboard import TOKEN, Filled, StubAccess, serve_dashboard
from helpers.patience import PATIENCE

pytestmark = pytest.mark.gate

MS = PATIENCE * 1000
HOSTILE = {
    "script": "<script>document.title='owned'</script>",
    "image": "<img src=x onerror=\"document.title='owned'\">",
    "attribute": '" onmouseover="document.title=\'owned\'" x="',
    "single": "' autofocus onfocus='document.title=1' '",
    "comment": "--><svg onload=document.title='owned'>",
    "template": "{{ ''.__class__ }}{% raw %}",
    "address": "javascript:document.title='owned'",
    "entities": "&lt;b&gt;&amp;",
    "turned": "safe\u202etxt.exe",
    "isolate": "a\u2066b\u2069c",
    "hidden": "pay\u200bments",
    "control": "a\x1b[31mred\x07\x00b",
    "arabic": "مرحبا",
    "hebrew": "שלום",
    "lines": "one\r\ntwo",
    "long": "x" * 3000,
}


@pytest_asyncio.fixture(loop_scope="session")
async def filled_stores():
    return Filled(max_age=3600).fill(3)


@pytest_asyncio.fixture(loop_scope="session")
async def site(filled_stores):
    async with serve_dashboard(filled_stores, StubAccess(sailor=["shop"])) as site:
        yield site


async def live(visit):
    """Wait until changes are told."""
    await visit.page.wait_for_selector("#live[data-state=on]", timeout=MS)


async def mark_page(visit):
    """Leave a mark in the page that a reload would take away."""
    await visit.page.evaluate("window.mark = 1")


async def test_what_is_new_appears_and_what_goes_disappears_without_a_reload(
    browser, site, filled_stores
):
    async with logged_in(browser, site.url, TOKEN) as visit:
        await visit.go("/applications")
        await live(visit)
        await mark_page(visit)
        filled_stores.app("shop", "brand-new", 3)
        await visit.page.wait_for_selector("text=brand-new", timeout=MS)
        assert "4 applications" in await visit.page.inner_text("#counted")
        filled_stores.remove("app_versions", "shop/brand-new-1.4.2-6b86b273")
        await visit.page.wait_for_selector("text=brand-new", state="detached", timeout=MS)
        assert "3 applications" in await visit.page.inner_text("#counted")
        assert await visit.page.evaluate("window.mark") == 1
        assert visit.faults == []


async def test_a_change_is_told_to_who_can_not_see_it(browser, site, filled_stores):
    async with logged_in(browser, site.url, TOKEN) as visit:
        await visit.go("/applications")
        await live(visit)
        assert await visit.page.get_attribute("#said", "aria-live") == "polite"
        filled_stores.app("shop", "brand-new", 3)
        await visit.page.wait_for_selector("#said:has-text('4 applications')", state="attached")


async def test_the_reader_keeps_the_place_when_rows_come_and_go_before_it(
    browser, site, filled_stores
):
    for number in range(60):
        filled_stores.app("shop", f"cart-{number:03}", 0)
    async with logged_in(browser, site.url, TOKEN) as visit:
        await visit.go("/applications?namespace=shop&q=cart-")
        await live(visit)
        await mark_page(visit)
        link = visit.page.get_by_role("link", name="cart-040", exact=True)
        await link.focus()
        scrolled = await visit.page.evaluate("scrollY")
        assert scrolled > 0
        filled_stores.app("shop", "cart-0000-first", 0)
        await visit.page.wait_for_selector("text=cart-0000-first", timeout=MS, state="attached")
        assert await visit.page.evaluate("document.activeElement.textContent") == "cart-040"
        filled_stores.remove("app_versions", "shop/cart-0000-first-1.4.2-6b86b273")
        await visit.page.wait_for_selector("text=cart-0000-first", state="detached", timeout=MS)
        assert await visit.page.evaluate("document.activeElement.textContent") == "cart-040"
        assert await visit.page.evaluate("scrollY") == pytest.approx(scrolled, abs=80)
        assert await visit.page.evaluate("window.mark") == 1


async def test_what_is_typed_into_a_filter_outlives_a_change(browser, site, filled_stores):
    async with logged_in(browser, site.url, TOKEN) as visit:
        await visit.go("/applications")
        await live(visit)
        await visit.page.click("input[name=q]")
        await visit.page.keyboard.type("half a wo")
        filled_stores.app("shop", "brand-new", 3)
        await visit.page.wait_for_selector("text=brand-new", timeout=MS)
        assert await visit.page.input_value("input[name=q]") == "half a wo"
        assert await visit.page.evaluate("document.activeElement.name") == "q"


async def test_a_page_follows_a_version_through_its_phases(browser, site, filled_stores):
    filled_stores.app("shop", "walker", 1)
    async with logged_in(browser, site.url, TOKEN) as visit:
        await visit.go("/applications/shop/walker")
        await live(visit)
        before = await visit.page.inner_text("#facts")
        filled_stores.app("shop", "walker", 0)
        await visit.page.wait_for_selector("#facts:has-text('Succeeded')", timeout=MS)
        assert "Succeeded" not in before


async def test_a_page_of_a_server_that_ends_says_so_and_follows_the_next_one(
    browser, filled_stores
):
    """The sessions of a plain port end with its process: one logs in again, and is back."""
    async with serve_dashboard(filled_stores) as site:
        port = int(site.url.rpartition(":")[2])
        async with logged_in(browser, site.url, TOKEN) as visit:
            await visit.page.clock.install()
            await visit.go("/applications")
            await live(visit)
            await site.stop()
            await visit.page.wait_for_selector("#live[data-state=off]", timeout=MS)
            assert "not live" in await visit.page.inner_text("#live")
            async with serve_dashboard(filled_stores, port=port):
                # The page looks again ten seconds after the end.
                await visit.page.clock.fast_forward(10_000)
                await visit.page.wait_for_url("**/login**", timeout=MS)
                await visit.page.fill("#token", TOKEN)
                await visit.page.press("#token", "Enter")
                await visit.page.wait_for_url("**/applications", timeout=MS)
                await live(visit)


async def test_one_sees_and_is_told_of_ones_own_namespaces_only(browser, site, filled_stores):
    async with logged_in(browser, site.url, "sailor") as visit:
        for path in ("/", "/applications", "/gates", "/policies", "/clusters"):
            await visit.go(path)
            text = await visit.page.content()
            assert "payments" not in text
            assert "search" not in text.replace('type="search"', "").replace('role="search"', "")
        await visit.go("/applications")
        await live(visit)
        told = []
        visit.page.on("request", lambda request: told.append(request.url))
        filled_stores.app("payments", "secret", 3)
        filled_stores.app("shop", "mine", 3)
        await visit.page.wait_for_selector("text=mine", timeout=MS)
        assert "secret" not in await visit.page.content()
        # One change of mine is one more look at the page.
        assert told == [f"{site.url}/applications"]


@pytest.mark.parametrize("look", [{}, PHONE], ids=["wide", "phone"])
@pytest.mark.claim("D6")
@pytest.mark.claim("O9")
async def test_hostile_names_are_text_and_nothing_else(browser, look):
    filled_stores = Filled(max_age=3600)
    for number, (name, text) in enumerate(HOSTILE.items()):
        namespace = f"n-{name}"
        filled_stores.namespace(namespace)
        filled_stores.app(namespace, text, number)
        filled_stores.gated(namespace, text, number, name=text)
        filled_stores.policy(namespace, text, 0, podSelector={"matchLabels": {text: text}})
        filled_stores.policy(namespace, text, 2, podSelector={"matchLabels": {text: text}})
        filled_stores.member(namespace, number, name=text)
        filled_stores.placed(namespace, text, number)
        filled_stores.reserved(number, pod=f"{namespace}/{text}")
    async with (
        serve_dashboard(filled_stores) as site,
        logged_in(browser, site.url, TOKEN, **look) as visit,
    ):
        for path in (
            "/",
            "/applications",
            "/gates",
            "/policies",
            "/clusters",
            "/clusters?view=placed",
            "/reservations",
        ):
            answer = await visit.go(path)
            assert answer.status == 200
            assert await visit.overflow() == []
            assert "Harbourmaster" in await visit.page.title()
            # What we wrote: one script of ours, and no handler in any attribute.
            assert await visit.page.evaluate(_FOREIGN) == []
            body = await answer.text()
            for character in "\u202e\u2066\u200b\x1b\x07\x00":
                assert character not in body
        await visit.go("/applications")
        await visit.shoot(f"hostile-{'phone' if look else 'wide'}")
        shown = await visit.page.inner_text("#list")
        for name in ("script", "image", "attribute", "template", "entities", "arabic", "hebrew"):
            assert HOSTILE[name] in shown
        # Each is a link that leads to its own page, however it is written.
        count = await visit.page.locator("tbody tr th a").count()
        assert count == len(HOSTILE)
        links = visit.page.locator("tbody tr th a")
        paths = [await links.nth(number).get_attribute("href") for number in range(count)]
        for path in paths:
            assert path.startswith("/applications/n-")
            answer = await visit.go(path)
            assert answer.status == 200, path
            assert await visit.page.evaluate(_FOREIGN) == []
        assert visit.faults == []
        assert visit.elsewhere == []


_FOREIGN = """() => [...document.querySelectorAll('*')].flatMap(each => [
  ...(each.localName === 'script' && !each.src.startsWith(location.origin) ? ['script'] : []),
  ...[...each.attributes].filter(one => one.name.startsWith('on')).map(one => one.name),
  ...(/^\\s*javascript:/i.test(each.getAttribute('href') || '') ? ['href'] : []),
])"""
