"""The map: which pods belong to which version, how they are grouped, and what is open."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from harbourmaster.api.metadata import OwnerReference
from harbourmaster.api.resources import PODS
from harbourmaster.dashboard.pages.cluster_map import MOST, PodCells, PodsRead, cluster_map
from harbourmaster.dashboard.query import PageQuery
from harbourmaster.dashboard.reads import MOST_PODS, read_pods
from harbourmaster.dashboard.registry import BY_NAME
from harbourmaster.dashboard.rendering import render
from harbourmaster.dashboard.slicing import run_sliced
from harbourmaster.dashboard.sources import SOURCES
from harbourmaster.dashboard.visibility import EVERYWHERE, Visibility
from harbourmaster.kube.errors import ForbiddenError, GoneError
from harbourmaster.lifecycle.model import ResourceReference
from helpers.dashboard import Filled

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SHOP = PageQuery(namespace="shop")
ALL = Visibility({kind.name: EVERYWHERE for kind in SOURCES})


@pytest.fixture
def stores():
    return Filled(NOW, max_age=3600)


def release(stores, app, workload, release_name, owner, kind="ReplicaSet"):
    """A workload version whose pods have this owner."""
    key = f"shop/{app}-{workload}-{release_name}"
    if stores.sources["workload_versions"].store.get(key) is None:
        stores.app("shop", app, 0, release_name)
    version = stores.sources["workload_versions"].store.get(key)
    reference = ResourceReference(uid=owner, kind=kind, name=owner)
    stores.put(
        "workload_versions",
        replace(version, spec=replace(version.spec, resource_reference=reference)),
    )


def pods(stores, owner, count, state="Running 1/1", node="n1", first=0):
    for number in range(first, first + count):
        phase, ready = state.split()
        status = {"phase": phase, "ready": ready}
        spec = {"nodeName": node} if node else {}
        stores.pod("shop", {}, f"{owner}-{number:05d}", status=status, **spec)


async def page_of(stores, query=SHOP, visible=ALL):
    read = await read_pods(stores.client, await stores.world(), visible, query)
    return await run_sliced(cluster_map(await stores.world(read=read), visible, query, NOW))


def walk(node):
    yield node
    for child in node.children:
        yield from walk(child)


def at(page, *names):
    node = page.clusters[0]
    for name in names:
        (node,) = [child for child in node.children if child.name == name]
    return node


def groups(node):
    return [(group.state.word, group.pods) for group in node.children]


async def test_pods_belong_to_the_version_of_their_owner_by_its_name(stores):
    release(stores, "cart", "web", "1.4.2", "cart-web-6f")
    release(stores, "cart", "worker", "1.4.2", "cart-worker", "StatefulSet")
    pods(stores, "cart-web-6f", 3)
    pods(stores, "cart-web-6f", 2, "Running 0/1", node="n3", first=3)
    stores.pod("shop", {}, "cart-worker-0", nodeName="n2")
    stores.pod("shop", {}, "cart-web-5d-abcde", nodeName="n2")
    page = await page_of(stores)
    web = at(page, "cart", "web", "1.4.2")
    assert groups(web) == [("Not ready", 2), ("Ready", 3)]
    assert web.children[0].note == "on n3 (2)"
    assert (web.ready, web.pods) == (3, 5)
    assert groups(at(page, "cart", "worker", "1.4.2")) == [("Ready", 1)]
    assert groups(at(page, "of no application")) == [("Ready", 1)]
    assert (at(page).ready, at(page).pods) == (5, 7)


async def test_a_name_that_its_controller_cuts_is_known(stores):
    owner = "a" * 60
    release(stores, "cart", "web", "1.4.2", owner)
    stores.pod("shop", {}, f"{owner[:58]}x7k2p")
    assert groups(at(await page_of(stores), "cart", "web", "1.4.2")) == [("Ready", 1)]


async def test_versions_of_one_stateful_set_are_told_apart_by_labels(stores):
    for number in ("1.4.1", "1.4.2"):
        release(stores, "cart", "web", number, "db", "StatefulSet")
        world = stores.sources["workload_versions"].store
        version = world.get(f"shop/cart-web-{number}")
        metadata = replace(version.metadata, creation_timestamp=f"2026-01-0{number[-1]}T00:00:00Z")
        stores.put("workload_versions", replace(version, metadata=metadata))
    named = {"keptn.sh/app": "cart", "keptn.sh/workload": "web", "keptn.sh/version": "1.4.1"}
    stores.pod("shop", named, "db-0")
    stores.pod("shop", {"controller-revision-hash": "db-5f"}, "db-1")
    workload = at(await page_of(stores), "cart", "web")
    assert {(child.kind, child.name): groups(child) for child in workload.children} == {
        ("Version", "1.4.1"): [("Ready", 1)],
        ("Version", "1.4.2"): [],
        ("Pod", "db-1"): [],
    }


async def test_former_versions_without_pods_are_left_out_and_the_newest_stays(stores):
    release(stores, "cart", "web", "1.4.2", "cart-web-6f")
    workload = at(await page_of(stores), "cart", "web")
    assert [(child.name, child.children) for child in workload.children] == [("1.4.2", ())]


async def test_what_is_not_well_is_open_with_all_above_it_and_the_rest_is_folded(stores):
    release(stores, "cart", "web", "1.4.2", "cart-web-6f")
    release(stores, "ledger", "web", "1.4.2", "ledger-web-6f")
    pods(stores, "cart-web-6f", 2)
    pods(stores, "ledger-web-6f", 1, "CrashLoopBackOff 0/1")
    pods(stores, "ledger-web-6f", 2, first=1)
    page = await page_of(stores)
    assert {node.name: node.is_open for node in at(page).children} == {
        "ledger": True,
        "cart": False,
    }
    assert at(page).is_open
    crashed, ready = at(page, "ledger", "web", "1.4.2").children
    assert (crashed.kind, crashed.is_open, ready.is_open) == ("Pod", True, False)


@pytest.mark.parametrize(
    ("ready", "status", "word", "tone"),
    [
        ("2/2", "Running", "Ready", "good"),
        ("1/2", "Running", "Not ready", "warn"),
        ("0/1", "Pending", "Pending", "busy"),
        ("0/1", "SchedulingGated", "Waiting at a gate", "busy"),
        ("0/1", "Init:0/2", "Init:0/2", "busy"),
        ("0/1", "Init:CrashLoopBackOff", "Init:CrashLoopBackOff", "bad"),
        ("0/1", "ImagePullBackOff", "ImagePullBackOff", "bad"),
        ("1/1", "Terminating", "Terminating", "idle"),
        ("", "", "Unknown", "bad"),
    ],
)
def test_the_state_of_a_pod_is_that_of_its_cells(ready, status, word, tone):
    state = PodCells("a", ready, status, "0", "").state
    assert (state.word, state.tone) == (word, tone)


async def test_only_states_with_pods_are_shown_and_a_single_pod_is_not_folded(place):
    """Argo CD shows empty rows for states without pods, and hides one pod behind "1 pods"."""
    release(place.filled, "cart", "web", "1.4.2", "cart-web-6f")
    pods(place.filled, "cart-web-6f", 1, "Pending 0/1", node="")
    text = await place.page("/map?namespace=shop")
    assert "1 pods" not in text
    assert "0 of 1 pod ready" in text
    assert 'href="/policies/pods/shop/cart-web-6f-00000"' in text
    assert "without a node" in text
    assert "Not ready" not in text
    assert "Pods:Pending" not in text
    pods(place.filled, "cart-web-6f", 1, "Pending 0/1", node="", first=1)
    assert "Pods:Pending" in await place.page("/map?namespace=shop")


async def test_two_thousand_pods_are_counted_of_each_state_and_a_hundred_shown(stores):
    """Argo CD's users count pods by hand; Headlamp's map stops answering with many resources."""
    release(stores, "cart", "web", "1.4.2", "cart-web-6f")
    for node in range(8):
        pods(stores, "cart-web-6f", 200, node=f"n{node}", first=200 * node)
    pods(stores, "cart-web-6f", 400, "CrashLoopBackOff 0/1", first=1600)
    world = await stores.world(read=await read_pods(stores.client, await stores.world(), ALL, SHOP))
    began = time.process_time()
    page = await run_sliced(cluster_map(world, ALL, SHOP, NOW))
    shown = {
        "page": BY_NAME["map"],
        "notes": (),
        "hidden": ("",),
        "live": "",
        "pages": (),
        "user": "",
    }
    assets = dict.fromkeys(("icon.svg", "dashboard.css", "dashboard.js"), "")
    render("map.html", NOW, view=page, query=SHOP, assets=assets, **shown)
    took = time.process_time() - began
    web = at(page, "cart", "web", "1.4.2")
    assert groups(web) == [("CrashLoopBackOff", 400), ("Ready", 1600)]
    assert [len(group.children) for group in web.children] == [MOST, MOST]
    assert [group.more for group in web.children] == [300, 1500]
    assert web.children[1].link == "/policies/pods?namespace=shop&q=cart-web-6f-0"
    assert web.children[1].note == "on n0 (200), n1 (200), n2 (200) and 5 more"
    # It takes 30 ms; ten times as much on a machine that does other things.
    assert took < 1, took


async def test_pods_are_read_in_pages_of_one_namespace_and_not_more_than_a_limit(stores):
    release(stores, "cart", "web", "1.4.2", "cart-web-6f")
    pods(stores, "cart-web-6f", 7)
    stores.client.page = 3
    read = await read_pods(stores.client, await stores.world(), ALL, SHOP)
    assert (len(read.pods), read.fault) == (7, "")
    unfinished = "status.phase!=Succeeded,status.phase!=Failed"
    assert stores.client.asked == [("pods", "shop", unfinished)] * 3
    pods(stores, "cart-web-6f", MOST_PODS, first=7)
    stores.client.page = 500
    read = await read_pods(stores.client, await stores.world(), ALL, SHOP)
    assert (len(read.pods), read.fault) == (MOST_PODS, "Only the first 5000 pods are shown.")


async def test_pods_that_the_user_may_not_list_are_not_read(stores):
    release(stores, "cart", "web", "1.4.2", "cart-web-6f")
    pods(stores, "cart-web-6f", 2)
    some = Visibility({name: EVERYWHERE for name in ALL.scopes if name != PODS.name})
    page = await page_of(stores, visible=some)
    assert stores.client.asked == []
    assert not page.sees_pods
    assert groups(at(page, "cart", "web", "1.4.2")) == []


@pytest.mark.parametrize("fault", [ForbiddenError("no"), GoneError("old"), TimeoutError()])
async def test_what_can_not_be_read_is_told_and_the_rest_is_shown(stores, fault):
    release(stores, "cart", "web", "1.4.2", "cart-web-6f")
    stores.client.faults["pods"] = fault
    page = await page_of(stores)
    assert page.fault.startswith("Not all pods could be read: ")
    assert at(page, "cart", "web").children


async def test_without_a_namespace_applications_lead_to_their_pods_and_the_only_one_is_taken(
    stores,
):
    stores.app("shop", "cart", 2)
    stores.app("shop", "ledger", 0)
    page = await page_of(stores, PageQuery())
    assert page.namespace == "shop"
    stores.app("mail", "mailer", 0)
    stores.app("mail", "application/placed", 2)
    checks = stores.sources["app_versions"].store.get("mail/application/placed-1.4.2-6b86b273")
    owner = OwnerReference(
        api_version="placement.harbourmaster.dev/v1alpha1",
        kind="Application",
        name="placed",
        uid="u",
        controller=True,
    )
    metadata = replace(checks.metadata, owner_references=(owner,))
    stores.put("app_versions", replace(checks, metadata=metadata))
    page = await page_of(stores, PageQuery())
    assert (page.namespace, page.namespaces) == ("", ("mail", "shop"))
    (here,) = page.clusters
    assert here.note == "3 applications"
    assert [(app.name, app.state.word, app.link) for app in here.children] == [
        ("shop/cart", "Failed", "/map?namespace=shop&q=cart"),
        ("mail/mailer", "Succeeded", "/map?namespace=mail&q=mailer"),
        ("shop/ledger", "Succeeded", "/map?namespace=shop&q=ledger"),
    ]
    (ledger,) = (await page_of(stores, PageQuery(q="LEDG"))).clusters[0].children
    assert ledger.name == "shop/ledger"


async def test_members_have_the_applications_that_run_on_them(stores):
    stores.member("shop", 1)
    stores.placed("shop", "cart", 1)
    stores.placed("mail", "mailer", 1)
    page = await page_of(stores)
    (member,) = page.clusters[1:]
    assert (member.name, member.state.word, member.note) == ("bergen-1", "Online", "1 application")
    (cart,) = member.children
    assert (cart.name, cart.link) == ("cart", "/clusters/shop/cart")
    assert [node.name for node in (await page_of(stores, PageQuery())).clusters[1:]] == [
        "mail/bergen-1",
        "shop/bergen-1",
    ]


async def test_members_of_one_name_in_two_namespaces_are_told_apart(stores):
    stores.placed("shop", "cart", 1)
    stores.placed("shop", "ledger", 1)
    ledger = stores.sources["applications"].store.get("shop/ledger")
    target = replace(ledger.status.running_on, namespace="infra")
    stores.put("applications", replace(ledger, status=replace(ledger.status, running_on=target)))
    page = await page_of(stores)
    assert [node.name for node in page.clusters[1:]] == ["bergen-1", "infra/bergen-1"]


async def test_a_filter_leaves_the_applications_with_this_in_their_names(stores):
    release(stores, "cart", "web", "1.4.2", "cart-web-6f")
    stores.app("shop", "ledger", 0)
    stores.pod("shop", {}, "bare")
    page = await page_of(stores, PageQuery(namespace="shop", q="CAR"))
    assert [node.name for node in at(page).children] == ["cart"]


async def test_pods_of_another_namespace_are_never_shown(stores):
    stores.app("shop", "cart", 0)
    read = PodsRead("mail", (PodCells("a", "1/1", "Running", "0", ""),))
    page = await run_sliced(cluster_map(await stores.world(read=read), ALL, SHOP, NOW))
    assert page.clusters[0].pods == 0


async def test_no_id_is_twice_on_the_page(place):
    place.filled.fill(10)
    place.filled.app("shop", "cart-0", 0, "1.4.3")
    text = await place.page("/map?namespace=shop")
    ids = re.findall(r'id="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert 'data-live=""' in text


async def test_of_many_members_the_most_urgent_are_shown(stores):
    for number in range(0, 10 * MOST, 5):
        stores.placed("shop", f"cart-{number}", number, 10 * MOST)
    page = await page_of(stores, PageQuery())
    assert (len(page.clusters), page.more) == (MOST + 1, MOST)
    urgencies = [node.urgency for node in page.clusters[1:]]
    assert urgencies == sorted(urgencies)


async def test_the_page_of_an_application_leads_to_its_pods_on_the_map(place):
    place.filled.app("shop", "cart", 0)
    assert 'href="/map?namespace=shop&amp;q=cart"' in await place.page("/applications/shop/cart")
    assert "Application:cart" in await place.page("/map?namespace=shop&q=cart")
    # Its pods are on another cluster.
    place.filled.app("shop", "application/cart", 0)
    text = await place.page("/applications/shop/application%2Fcart")
    assert 'href="/clusters/shop/cart"' in text
    assert "/map?namespace" not in text
