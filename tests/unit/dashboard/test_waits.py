"""Pods that wait for objects, on the pages of gates and of one pod, and in the overview."""

from __future__ import annotations

import asyncio
import html
from datetime import UTC, datetime

import pytest

from harbourmaster.dashboard.pages import gates, overview
from harbourmaster.dashboard.query import PageQuery
from harbourmaster.dashboard.slicing import run_sliced
from harbourmaster.dashboard.sources import SOURCES
from harbourmaster.dashboard.visibility import EVERYWHERE, Visibility
from helpers.dashboard import Filled
from helpers.patience import PATIENCE

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
ALL = Visibility({kind.name: EVERYWHERE for kind in SOURCES})
FAILED = ("Blocked", "failed: BackoffLimitExceeded")


@pytest.fixture
def stores():
    return Filled(NOW)


async def list_gates(stores, **query):
    return await run_sliced(gates.gates(await stores.world(), ALL, PageQuery(**query), NOW))


async def test_a_pod_that_waits_for_objects_has_each_with_its_state_and_reason(stores):
    stores.waiting("shop", "web-1", "job/migrate, service/db", db=("Met", ""))
    (row,) = (await list_gates(stores)).listing.rows
    assert (row.word, row.tone) == ("waits for objects", "busy")
    assert [(item.item, item.state, item.text) for item in row.report.items] == [
        ("job/migrate", "Pending", "does not exist"),
        ("service/db", "Met", ""),
    ]
    assert row.report.workload == ""


async def test_blocked_pods_come_first_and_need_attention(stores):
    stores.waiting("shop", "a", "service/db")
    stores.waiting("shop", "b", "job/migrate", migrate=FAILED)
    page = await list_gates(stores)
    assert [(row.word, row.tone) for row in page.listing.rows] == [
        ("blocked", "bad"),
        ("waits for objects", "busy"),
    ]
    assert [(part.state, part.count) for part in page.parts] == [
        ("wait-blocked", 1),
        ("waits-for-objects", 1),
    ]
    page = await run_sliced(overview.overview(await stores.world(), ALL, PageQuery(), NOW))
    (notice,) = page.notices
    assert (notice.name, notice.text) == (
        "shop/b",
        "Blocked: job/migrate: failed: BackoffLimitExceeded",
    )
    (tally,) = [tally for tally in page.tallies if tally.title == "Gates"]
    assert [part.label for part in tally.parts] == ["blocked", "waits for objects"]


async def test_a_pod_whose_version_does_not_come_is_urgent_after_two_minutes(stores):
    for number in (2, 4):
        stores.gated("shop", "cart", number)
    rows = (await list_gates(stores)).listing.rows
    assert [(row.tone, row.report.age, bool(row.report.advice)) for row in rows] == [
        ("warn", 164, True),
        ("busy", 102, False),
    ]
    page = await run_sliced(overview.overview(await stores.world(), ALL, PageQuery(), NOW))
    assert [notice.name for notice in page.notices] == ["shop/cart-web-6f0004"]


async def test_a_pod_in_a_cycle_of_waits_is_blocked(stores):
    stores.gated("shop", "cart", name="web-1", wait_for="job/migrate", checks="none")
    stores.waits.found["shop"] = {("deployment", "cart"): "a cycle of waits: deployment/cart"}
    stores.waits.found["mail"] = {("replicaset", "cart-6f"): "of others"}
    (row,) = (await list_gates(stores)).listing.rows
    assert row.word == "waits for objects"
    stores.waits.found["shop"] = {("replicaset", "cart-6f"): "a cycle of waits: replicaset/cart"}
    (row,) = (await list_gates(stores)).listing.rows
    assert (row.word, row.report.text) == ("blocked", "nothing: a cycle of waits: replicaset/cart")


async def test_pods_that_wait_for_checks_alone_ask_for_no_cycle(stores):
    stores.app("shop", "cart", 1)
    stores.gated("shop", "cart")
    await list_gates(stores)
    assert stores.waits.asked == []


async def test_without_the_controller_of_gates_the_page_has_no_items(stores):
    stores.waiting("shop", "web-1", "service/db")
    stores.waits = None
    (row,) = (await list_gates(stores)).listing.rows
    assert [item.text for item in row.report.items] == ["is being looked up"]


async def test_the_page_of_a_pod_has_what_it_waits_for(place):
    place.filled.waiting("shop", "web-1", "job/migrate, service/db", migrate=FAILED)
    for name in ("web-1", "other"):
        place.filled.pod("shop", {"app": "web"}, name)
    text = html.unescape(await place.page("/policies/pods/shop/web-1"))
    assert "blocked" in text
    assert "failed: BackoffLimitExceeded" in text
    assert "service/db" in text
    assert "harbourmaster gate release shop/web-1" in text
    assert "<dt>Gate</dt>" not in await place.page("/policies/pods/shop/other")


@pytest.mark.parametrize("missing", ["pods", "keptnworkloadversions", "keptnappversions"])
async def test_who_may_not_list_what_gates_need_sees_no_item(place, missing):
    needed = {"pods", "keptnworkloadversions", "keptnappversions", "podschedulingpolicies"}
    place.filled.waiting("shop", "web-1", "configmap/hidden")
    place.filled.pod("shop", {"app": "web"}, "web-1")
    place.access.kinds["sailor"] = needed
    assert "configmap/hidden" in await place.page("/gates?namespace=shop", "sailor")
    assert "configmap/hidden" in await place.page("/policies/pods/shop/web-1", "sailor")
    place.access.kinds["sailor"] = needed - {missing}
    for path in ("/gates?namespace=shop", "/policies/pods/shop/web-1", "/?namespace=shop"):
        async with place.ask(path, "sailor") as answer:
            assert "configmap/hidden" not in await answer.text()


async def test_open_pages_learn_that_an_object_changed(place):
    place.filled.waiting("shop", "web-1", "service/db")
    async with place.ask("/stream?view=gates") as answer:
        await answer.content.readuntil(b"\n\n")
        place.filled.dashboard.notify("waits", frozenset(("shop/web-1",)))
        assert b"changed" in await asyncio.wait_for(answer.content.readuntil(b"\n\n"), PATIENCE)
