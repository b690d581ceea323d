"""Questions that people have, answered by the pages alone, three clicks from the overview."""

from __future__ import annotations

import pytest
import pytest_asyncio

from helpers.browser import logged_in
from helpers.dashboard import TOKEN, Filled, serve_dashboard

pytestmark = pytest.mark.gate

MOST = 3
TOLERATION = {"key": "pool", "operator": "Equal", "value": "etcd", "effect": "NoExecute"}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site():
    filled = Filled(max_age=3600)
    for namespace in ("shop", "mail"):
        filled.namespace(namespace)
    filled.app("shop", "cart", 1)
    filled.gated("shop", "cart", 0, name="cart-web-1")
    filled.app("shop", "ledger", 5, "1.4.1")
    filled.app("shop", "ledger", 2, "1.4.2")
    filled.policy("shop", "keep-cart", 0)
    filled.policy("shop", "slow-disks", 0, podSelector={}, nodeSelector={"disk": "hdd"})
    changed = [("tolerations", "kubectl-edit", 120)]
    tolerations = [TOLERATION, {"key": "spot", "operator": "Exists"}]
    spec = {"nodeSelector": {"disk": "ssd"}, "tolerations": tolerations}
    filled.pod("shop", {"app": "cart"}, "cart-7d9", changed, **spec)
    # Of the owner cart-6f; their labels say of which version they are.
    named = {"keptn.sh/app": "cart", "keptn.sh/workload": "web", "keptn.sh/version": "1.4.2"}
    for number, (ready, node) in enumerate((("1/1", "n1"), ("0/1", "n2"), ("0/1", "n3"))):
        filled.pod("shop", named, f"cart-6f-{number:05d}", status={"ready": ready}, nodeName=node)
    filled.placed("shop", "cart", 1)
    filled.metric("shop", "p95", lastUpdated=filled.ago(600), errMsg="connection refused")
    filled.staged("shop", "store")
    filled.placed("shop", "quay", 4)
    async with serve_dashboard(filled) as site:
        yield site.url


@pytest_asyncio.fixture(loop_scope="session")
async def person(browser, site):
    async with logged_in(browser, site, TOKEN) as visit:
        await visit.go("/")
        yield Person(visit)
        assert visit.faults == []


class Person:
    """Follows links, and counts."""

    def __init__(self, visit):
        self.page = visit.page
        self.clicks = 0

    async def click(self, name, within="#main"):
        self.clicks += 1
        before = self.page.url
        await self.page.locator(within).get_by_role("link", name=name).first.click()
        await self.page.wait_for_url(lambda url: url != before)

    async def row(self, name):
        """The text of one row."""
        assert self.clicks <= MOST
        row = self.page.locator("tbody tr", has_text=name)
        return " ".join((await row.first.inner_text()).split())


async def test_why_does_this_pod_wait(person):
    await person.click("Gates")
    text = await person.row("cart-web-1")
    assert "pre-deployment evaluations: latency Progressing" in text
    assert "latency 412.5 target <200" in text
    assert "next try" in text


async def test_who_changed_this_field(person):
    await person.click("Policies")
    await person.click("1 pod of keep-cart")
    await person.click("cart-7d9")
    by_policy = await person.row("nodeSelector")
    assert by_policy == 'nodeSelector["disk"] ssd PodSchedulingPolicy shop/keep-cart no'
    kept = await person.row("tolerations[0]")
    assert "PodSchedulingPolicy shop/keep-cart" in kept
    by_person = await person.row("tolerations[1]")
    assert "changed by field manager kubectl-edit" in by_person
    assert "shop/keep-cart" not in by_person


async def test_what_failed_in_the_last_release(person):
    await person.click("Applications")
    await person.click("ledger")
    text = " ".join((await person.page.inner_text("#failed")).split())
    assert person.clicks <= MOST
    assert text.startswith("What failed first Pre-deployment evaluations Failed errors")
    assert "412.5 target <200" in text
    assert "value '412.5' did not meet objective '<200'" in text
    assert "Succeeded" in await person.row("1.4.1")


async def test_whether_the_metric_has_an_error_itself_and_which_releases_use_it(person):
    await person.click("Checks", within="header")
    await person.click("p95")
    assert person.clicks <= MOST
    text = " ".join((await person.page.inner_text("#facts")).split())
    assert "Unavailable" in text
    assert "longer than 30s: connection refused" in text
    rows = person.page.get_by_role("table", name="Releases that use it").locator("tbody tr")
    using = [" ".join(row.split()) for row in await rows.all_inner_texts()]
    assert any(row.startswith("shop/cart Progressing version 1.4.2") for row in using)
    assert any(row.startswith("shop/ledger Failed version 1.4.2") for row in using)


async def test_which_policies_conflict(person):
    await person.click("PodSchedulingPolicy shop/slow-disks and PodSchedulingPolicy shop/keep-cart")
    text = await person.row("keep-cart")
    assert (
        "conflict with PodSchedulingPolicy shop/slow-disks: "
        'spec.nodeSelector["disk"] stays ssd, not hdd' in text
    )
    assert await person.page.locator("tbody tr").count() == 2


async def test_what_moved_this_application(person):
    await person.click("Placements")
    text = await person.row("shop/cart")
    assert "Moved from cadiz-2 to bergen-1" in text
    assert "bergen-1' has the best score, 0.526" in text


async def test_why_is_this_application_there_and_since_when(person):
    await person.click("shop/quay")
    scores = " ".join((await person.page.inner_text("#scores")).split())
    assert person.clicks <= MOST
    assert "esbjerg-4 Chosen 0.526 load 0.406 value 0.42" in scores
    assert "fowey-5 Possible 0.518" in scores
    assert "it was there 0.091" in scores
    assert "label region is fowey" in scores
    history = " ".join((await person.page.inner_text("#history")).split())
    assert "10 m ago Moved from fowey-5 to esbjerg-4" in history


async def test_on_which_nodes_are_the_pods_that_are_not_ready(person):
    await person.click("Map", "nav.pages")
    assert person.clicks <= MOST
    place = "/Cluster:This-cluster/Application:cart/Workload:web"
    text = " ".join((await person.page.inner_text(f'details[id="{place}"]')).split())
    assert text.startswith("Workload web 1 of 3 pods ready Version 1.4.2 Progressing")
    assert "Pods Not ready 2 on n2 (1), n3 (1) Pod cart-6f-00001 on n2, 0/1 ready" in text
    folded = person.page.locator("details:not([open]) > summary").first
    await folded.focus()
    await person.page.keyboard.press("Enter")
    assert await person.page.evaluate("document.activeElement.parentElement.open")


async def store(person):
    """Open the page of a release that a stage holds."""
    await person.click("Applications")
    await person.click("store")
    assert person.clicks <= MOST


async def text_of(person, selector):
    return " ".join((await person.page.inner_text(selector)).split())


async def test_what_failed_first_with_which_value_against_which_threshold(person):
    await store(person)
    text = await text_of(person, "#failed")
    first = "What failed first web: Stage 2 of 3 Failed error-rate stage-2-errors 4.8 target <1"
    assert text.startswith(first)
    # It is above everything that the page says about the release.
    above = "document.querySelector('#failed').getBoundingClientRect().bottom"
    facts = "document.querySelector('#facts').getBoundingClientRect().top"
    assert await person.page.evaluate(f"{above} <= {facts}")


async def test_was_it_an_outlier_or_did_the_value_get_worse(person):
    await store(person)
    await person.page.locator("#failed summary").click()
    assert person.clicks + 1 <= MOST
    rows = await person.page.locator("#failed tbody tr").all_inner_texts()
    values = ["\t".join(row.split("\t")[:2]) for row in rows]
    assert values == ["4.8\tnot met", "2.1\tnot met", "1.2\tnot met", "0.4\tmet"]
    assert "the last 3 in a row" in await text_of(person, "#failed figcaption")


async def test_which_images_have_the_versions_and_how_many_pods_are_ready(person):
    await store(person)
    image = "registry.example.com/shop/store"
    assert await person.row("New 1.4.2") == f"New 1.4.2 1 of 4 pods {image}:1.4.2"
    assert await person.row("Old 1.4.1") == f"Old 1.4.1 2 of 2 pods {image}:1.4.1"


async def test_at_which_stage_is_the_release_and_why_is_it_held(person):
    await store(person)
    text = await text_of(person, ".timeline > li:has(ol.stages)")
    assert text.startswith("Stage 2 of 3 Held")
    assert "Passed 1 of 1 pod 2. Held 1 of 1 pod 3. To come 0 of 2 pods" in text
    assert "2 of 4 pods released, 2 allowed; evaluation error-rate, task smoke failed" in text


async def test_which_event_says_why_new_pods_do_not_become_ready(person):
    await store(person)
    text = await text_of(person, "#events")
    assert "BackOff Pod store-2-x0xyz and 2 more" in text
    assert "Back-off restarting failed container web in pod store-2-x0xyz" in text


async def test_what_did_the_last_run_of_the_failed_task_say(person):
    await store(person)
    await person.page.get_by_text("Runs of tasks: 2").click()
    assert person.clicks + 1 <= MOST
    run = person.page.locator("details[open] .checks li").first
    text = " ".join((await run.inner_text()).split())
    assert text.startswith("Failed smoke stage-2-smoke")
    assert text.endswith("checkout answers 502 instead of 200")
