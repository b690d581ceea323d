"""Pages in headless Chromium: what they do on the way, and what axe-core says about them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from pathlib import Path
from urllib.parse import urlsplit

from playwright.async_api import async_playwright

from harbourmaster.playground.browser import ensure_axe, ensure_browser
from helpers.patience import PATIENCE

SCREENSHOTS = Path(__file__).parents[2] / "build/screenshots"
WIDE = {"viewport": {"width": 1280, "height": 900}}
PHONE = {"viewport": {"width": 360, "height": 740}, "is_mobile": True, "has_touch": True}
GRAVE = {"serious", "critical"}


@contextlib.asynccontextmanager
async def chromium():
    """A browser without a window. As root it can't shut itself in; it shows only our own pages."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=ensure_browser(),
            chromium_sandbox=os.geteuid() != 0,
            # A container's /dev/shm may be small.
            args=["--disable-dev-shm-usage"],
            timeout=PATIENCE * 1000,
        )
        try:
            yield browser
        finally:
            await browser.close()


class Visit:
    """A person's tab on one site; every fault that the browser tells is kept."""

    def __init__(self, page, origin):
        self.page = page
        self.origin = origin
        self.faults = []
        self.elsewhere = []
        page.on("pageerror", lambda error: self.faults.append(f"script: {error}"))
        page.on("console", self._note_message)
        page.on("request", self._note_request)

    async def go(self, path="/"):
        """Open a path of the site; return the answer."""
        return await self.page.goto(f"{self.origin}{path}")

    async def shoot(self, name):
        """Keep a picture of the whole page, or of its first four screens."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        viewport = self.page.viewport_size
        height = await self.page.evaluate("document.documentElement.scrollHeight")
        clip = {"x": 0, "y": 0, "width": viewport["width"], "height": min(height, 4 * 900)}
        await self.page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True, clip=clip)

    async def grave_findings(self):
        """Serious and critical findings of axe-core: rule, place, and explanation."""
        await self.page.evaluate(ensure_axe().read_text())
        result = await self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        assert result["passes"], "axe-core checked nothing"
        return [
            f"{violation['id']} at {' '.join(map(str, node['target']))}: {node['failureSummary']}"
            for violation in result["violations"]
            if violation["impact"] in GRAVE
            for node in violation["nodes"]
        ]

    async def overflow(self):
        """The pixels by which the page exceeds the window, and the elements that stick out."""
        return await self.page.evaluate(_OVERFLOW)

    async def tab_through(self, limit=400):
        """Press Tab until the page has been gone through once; what had the focus, in order."""
        events = []
        while len(events) < limit:
            await self.page.keyboard.press("Tab")
            element = await self.page.evaluate(_FOCUSED)
            if element is None or (events and element["path"] == events[0]["path"]):
                return events
            events.append(element)
        raise AssertionError(f"the focus stays in the page after {limit} times Tab: {events[-3:]}")

    async def focus_shows(self):
        """Whether the picture of what has the focus differs from the one without it."""
        box = await self.page.evaluate(_FOCUS_BOX)
        focused = await self.page.screenshot(clip=box, animations="disabled", caret="initial")
        await self.page.evaluate("window.__focused = document.activeElement; __focused.blur()")
        blurred = await self.page.screenshot(clip=box, animations="disabled", caret="initial")
        await self.page.evaluate("__focused.focus({focusVisible: true, preventScroll: true})")
        return focused != blurred

    def _note_message(self, message):
        # Chromium tells a breach of the Content-Security-Policy as an error, too.
        if message.type in {"error", "warning"}:
            self.faults.append(f"console: {message.text}")

    def _note_request(self, request):
        address = urlsplit(request.url)
        if address.scheme in {"http", "https"} and not request.url.startswith(f"{self.origin}/"):
            self.elsewhere.append(request.url)


@contextlib.asynccontextmanager
async def open_visit(browser, origin, **options):
    """A visit with cookies of its own; ``options`` are those of a browser context."""
    # What moves is in one place when it is looked at.
    options = {"reduced_motion": "reduce", **WIDE, **options}
    context = await browser.new_context(**options)
    context.set_default_timeout(PATIENCE * 1000)
    try:
        yield Visit(await context.new_page(), origin.rstrip("/"))
    finally:
        await context.close()


@contextlib.asynccontextmanager
async def logged_in(browser, origin, token, **look):
    """A visit of a user who has logged in to the dashboard."""
    async with open_visit(browser, origin, **look) as visit:
        answer = await visit.page.context.request.post(
            f"{visit.origin}/login",
            form={"token": token, "next": "/"},
            headers={"Origin": visit.origin},
            max_redirects=0,
        )
        assert answer.status == 303
        yield visit


async def first_byte(url, headers=None):
    """Seconds from the request's first byte to the answer's, on a connection that stands."""
    at = urlsplit(url)
    reader, writer = await asyncio.open_connection(at.hostname, at.port)
    try:
        path = at.path + (f"?{at.query}" if at.query else "")
        lines = [f"GET {path} HTTP/1.1", f"Host: {at.netloc}", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        started = time.perf_counter()
        writer.write("\r\n".join([*lines, "", ""]).encode())
        first = await asyncio.wait_for(reader.read(1), PATIENCE)
        took = time.perf_counter() - started
        rest = await asyncio.wait_for(reader.read(), PATIENCE)
        return took, first + rest
    finally:
        writer.close()


_FOCUSED = """() => {
  const focused = document.activeElement;
  if (!focused || focused === document.body || focused === document.documentElement) return null;
  const path = [];
  for (let each = focused; each; each = each.parentElement)
    path.unshift(each.parentElement ? [...each.parentElement.children].indexOf(each) : 0);
  const box = focused.getBoundingClientRect();
  return {
    path: path.join('/'), tag: focused.localName, text: focused.textContent.trim().slice(0, 60),
    name: focused.getAttribute('name'), href: focused.getAttribute('href'),
    visible: box.width > 1 && box.height > 1 && box.bottom > 0 && box.right > 0
      && box.top < innerHeight && box.left < innerWidth,
  };
}"""
_FOCUS_BOX = """() => {
  const box = document.activeElement.getBoundingClientRect();
  const x = Math.max(0, box.x - 6), y = Math.max(0, box.y - 6);
  return {x, y, width: Math.min(box.width + 12, innerWidth - x),
          height: Math.min(box.height + 12, innerHeight - y)};
}"""
_OVERFLOW = """() => {
  const root = document.documentElement;
  const width = root.clientWidth;
  const wide = each => each.getBoundingClientRect().right > width + 1
    || (each.scrollWidth > width && getComputedStyle(each).overflowX === 'visible');
  const told = each => `${each.localName} ${each.className}: ${each.textContent.slice(0, 40)}`;
  const by = root.scrollWidth - width;
  return by > 0 ? [by, ...[...document.querySelectorAll('main *')].filter(wide).map(told)] : [];
}"""
