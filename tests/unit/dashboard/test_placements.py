"""The page of one application that is placed: why it is there, and since when."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from harbourmaster.dashboard.pages.placements import WIDTH, placement
from harbourmaster.dashboard.query import PageQuery
from harbourmaster.dashboard.sources import SOURCES, PageSources
from harbourmaster.dashboard.visibility import EVERYWHERE, Visibility
from harbourmaster.placement.model import (
    ApplicationChecks,
    CandidateRecord,
    CheckedGeneration,
    Checks,
    Condition,
    DecisionRecord,
    FailedCluster,
    Term,
)
from helpers.dashboard import Filled

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
CART = PageQuery(namespace="shop", name="cart")
ALL = Visibility({kind.name: EVERYWHERE for kind in SOURCES})
NO_TARGET = "no suitable cluster among 2: 2 times label region is fowey"


@pytest.fixture
def stores():
    stores = Filled(NOW, max_age=3600)
    stores.placed("shop", "cart", 0)
    return stores


def change(stores, **fields):
    application = stores.sources["applications"].store.get("shop/cart")
    status = replace(application.status, **fields)
    stores.put("applications", replace(application, status=status))


def condition(name, status, reason="", message="", time=""):
    return Condition(
        type=name, status=status, reason=reason, message=message, last_transition_time=time
    )


async def page_of(stores, visible=ALL):
    return placement(await stores.world(), visible, CART, NOW)


async def test_scores_are_bars_whose_parts_add_up_to_them(stores):
    chosen, second, excluded = (await page_of(stores)).candidates
    assert [row.state.word for row in (chosen, second, excluded)] == [
        "Chosen",
        "Possible",
        "Excluded",
    ]
    assert [(part.name, part.x, part.width) for part in second.parts] == [
        ("load", 0, 318),
        ("carbon", 318, 109),
        ("it was there", 427, 91),
    ]
    assert second.parts[0].how == "value 0.5, normalised 0.5, weight 0.7 of 1.1"
    assert second.width == 518
    assert sum(part.width for part in chosen.parts) == chosen.width == 526
    assert (excluded.record.score, excluded.parts) == (None, ())


@pytest.mark.parametrize(
    ("record", "width"),
    [
        (CandidateRecord(cluster="a", matched=True, score=0.3, stickiness=0.3), 300),
        (CandidateRecord(cluster="a", matched=True, score=7.0), WIDTH),
        (CandidateRecord(cluster="a", matched=True, score=-1.0), 0),
        (
            CandidateRecord(
                cluster="a",
                matched=True,
                score=0.9,
                terms=(
                    Term(metric="m", weight=-1, value=1, normalised=0.1),
                    Term(metric="n", weight=2, value=1, normalised=0.5),
                ),
            ),
            900,
        ),
    ],
    ids=["no metrics", "large", "negative", "negative weight"],
)
async def test_a_score_that_is_no_sum_of_shares_is_one_bar_within_its_ground(stores, record, width):
    change(stores, last_decision=DecisionRecord(candidates=(record,)))
    (row,) = (await page_of(stores)).candidates
    assert (row.width, row.parts) == (width, ())


async def test_without_a_cluster_the_reason_of_each_stands_there_and_nothing_looks_well(stores):
    """Karmada's "Binding has been scheduled", to no cluster and without reasons, misled users."""
    reason = "label region is fowey"
    records = tuple(
        CandidateRecord(cluster=name, matched=False, reason=reason) for name in ("a", "b")
    )
    decision = DecisionRecord(
        time=stores.ago(5),
        outcome="NoSuitableTarget",
        reason=NO_TARGET,
        considered=40,
        candidates=records,
    )
    change(stores, last_decision=decision, scheduled_to=None, running_on=None, scheduled_time="")
    page = await page_of(stores)
    assert (page.row.target, page.tone, page.row.decision.reason) == ("", "bad", NO_TARGET)
    excluded = [(row.state.word, row.record.reason) for row in page.candidates]
    assert excluded == [("Excluded", reason)] * 2
    assert page.more == 38
    assert [(event.tone, event.title) for event in page.events] == [("bad", "No suitable target")]


async def test_the_time_line_has_all_that_status_keeps_in_order(stores):
    failed = FailedCluster("dublin-3", generation=2, reason="not ready", time=stores.ago(900))
    change(
        stores,
        scheduled_time=stores.ago(1200),
        recent_moves=(stores.ago(3000), stores.ago(1200), "nonsense"),
        failed_clusters=(failed,),
        next_reschedule_time=stores.ago(-60),
    )
    assert [(event.tone, event.title) for event in (await page_of(stores)).events] == [
        ("idle", "Next search for a better cluster"),
        ("good", "Moved from bergen-1 to amsterdam-0"),
        ("bad", "Generation 2 failed on dublin-3"),
        ("good", "Placed on amsterdam-0"),
        ("idle", "Moved to a better cluster"),
    ]


def check(stores, number):
    stores.app("shop", "application/cart", 2, str(number))
    return f"application/cart-{number}-6b86b273"


async def test_checks_lead_to_the_release_that_runs_them(stores):
    name = check(stores, 4)
    application = stores.sources["applications"].store.get("shop/cart")
    checks = ApplicationChecks(pre_deployment=Checks(tasks=("backup",), evaluations=("errors",)))
    stores.put("applications", replace(application, spec=replace(application.spec, checks=checks)))
    change(
        stores,
        proposed=CheckedGeneration(generation=4, name="bergen-1", check=name),
        conditions=(condition("Checked", "False", "CheckFailed", "errors failed"),),
    )
    page = await page_of(stores)
    link = f"/applications/shop/application%2Fcart?version={name.replace('/', '%2F')}"
    assert page.row.checks == link
    assert page.checks == (("before", ("backup", "errors")),)
    assert (page.row.proposed, page.checked.reason) == ("generation 4 on bergen-1", "CheckFailed")
    assert [state.word for _, state in page.steps][:2] == ["Succeeded", "Failed"]
    hidden = Visibility({"applications.placement.harbourmaster.dev": EVERYWHERE})
    page = await page_of(stores, hidden)
    assert page.steps == ()


async def test_what_does_not_exist_or_must_not_be_seen_has_no_page(stores):
    assert await page_of(stores, Visibility()) is None
    assert placement(await stores.world(), ALL, replace(CART, name="x"), NOW) is None
    assert placement(PageSources(), ALL, CART, NOW) is None


async def test_the_page_is_served_with_its_bars(place):
    place.filled.placed("shop", "cart", 2)
    text = await place.page("/clusters/shop/cart")
    assert '<rect class="bar part-1" x="406" y="0" width="120" height="10">' in text
    assert "has the best score, 0.526" in text
    assert "moved to a better" not in text
    assert 'href="/clusters/shop/cart"' in await place.page("/clusters?view=placed")
    await place.page("/clusters/mail/cart", "sailor", status=403)
