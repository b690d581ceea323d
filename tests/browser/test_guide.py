"""The pictures of the guide to the dashboard are of today's pages; ``--golden`` stores them."""

from __future__ import annotations

import re
from base64 import b64encode
from pathlib import Path

import pytest
import pytest_asyncio

from helpers.browser import SCREENSHOTS, WIDE, logged_in
from helpers.dashboard import TOKEN, Filled, serve_dashboard

pytestmark = pytest.mark.full

GUIDE = Path(__file__).parents[2] / "docs/howto/dashboard.md"
PAGES = {
    "release": "/applications/shop/store",
    "evaluation": "/checks/keptnevaluations/shop/stage-2-errors",
    "map": "/map?namespace=shop",
    "placement": "/clusters/shop/quay",
}
SHARE = 0.1
"""The share of pixels that fonts and ages of objects may change."""
COMPARE = """async ([before, after]) => {
  const [one, two] = await Promise.all([before, after].map(async (data) => {
    const image = await createImageBitmap(await (await fetch(data)).blob());
    const context = new OffscreenCanvas(image.width, image.height).getContext("2d");
    context.drawImage(image, 0, 0);
    return context.getImageData(0, 0, image.width, image.height);
  }));
  if (one.width !== two.width || one.height !== two.height) return 1;
  const a = new Uint32Array(one.data.buffer), b = new Uint32Array(two.data.buffer);
  return a.reduce((count, pixel, place) => count + (pixel !== b[place]), 0) / a.length;
}"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site():
    filled = Filled(max_age=3600)
    filled.namespace("shop")
    filled.staged("shop", "store")
    filled.app("shop", "ledger", 5, "1.4.1")
    node = {"keptn.sh/app": "store", "keptn.sh/workload": "web"}
    for number, (version, ready) in enumerate((("1", "1/1"), ("1", "1/1"), ("2", "1/1"))):
        labels = {**node, "keptn.sh/version": f"1.4.{version}"}
        name = f"store-{version}-{number:05d}"
        filled.pod("shop", labels, name, status={"ready": ready}, nodeName=f"n{number}")
    labels = {**node, "keptn.sh/version": "1.4.2"}
    status = {"ready": "0/1", "phase": "CrashLoopBackOff", "restarts": 4}
    filled.pod("shop", labels, "store-2-x0xyz", status=status, nodeName="n2")
    filled.placed("shop", "quay", 1)
    async with serve_dashboard(filled) as site:
        yield site.url


@pytest.mark.parametrize("name", PAGES)
async def test_the_guide_shows_the_page_as_it_is(browser, site, request, name):
    (link,) = re.findall(rf"!\[[^]]+\]\((\S+/dashboard-{name}\.png)\)", GUIDE.read_text())
    stored = GUIDE.parent / link
    async with logged_in(browser, site, TOKEN, **WIDE, color_scheme="light") as visit:
        assert (await visit.go(PAGES[name])).status == 200
        await visit.page.locator("details", has_text="as a table").evaluate_all(
            "all => all.forEach(details => details.open = false)"
        )
        picture = await visit.page.screenshot()
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    (SCREENSHOTS / f"guide-{name}.png").write_bytes(picture)
    if request.config.option.golden:
        stored.write_bytes(picture)
    context = await browser.new_context()
    page = await context.new_page()
    pictures = [
        f"data:image/png;base64,{b64encode(data).decode()}"
        for data in (stored.read_bytes(), picture)
    ]
    assert await page.evaluate(COMPARE, pictures) < SHARE
    await context.close()
