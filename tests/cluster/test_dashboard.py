"""The dashboard of a real installation: real tokens, real rights, and pods that really wait."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest

from helpers.browser import chromium, open_visit
from helpers.cluster import eventually, plane_for
from helpers.dashboard_installation import PEOPLE, DashboardInstallation
from helpers.flow.manifests import IMAGE, deployment, keptn, owner
from helpers.patience import PATIENCE

OWN_WATCHES = {
    "labels of pods",
    "namespaces",
    "podschedulingpolicies",
    "clusterpodschedulingpolicies",
}
NEWER = [{"name": "ledger", "image": "registry.example.com/ledger:4"}]
LISTS = ("/applications", "/gates", "/policies")
MS = PATIENCE * 1000


@pytest.fixture(scope="module")
def place(request, tmp_path_factory):
    with plane_for(request, tmp_path_factory, "dashboard") as plane:
        plane.add_nodes(1)
        with DashboardInstallation(plane, tmp_path_factory.mktemp("overlay")) as installation:
            yield installation


@pytest.fixture(scope="module")
def spaces(place):
    """Two namespaces, each with a policy and a workload whose check is not defined."""
    spaces = [place.namespace("harbour"), place.namespace("yard")]
    for space in spaces:
        place.waiting(space, f"of-{space}")
    return spaces


def shows(*texts):
    return lambda answer: answer.status == 200 and all(text in answer.text for text in texts)


@pytest.mark.claim("D1")
async def test_a_token_that_the_cluster_does_not_know_opens_nothing(place, spaces):
    _, token = place.person(*spaces)
    head, body, signature = token.split(".")
    forged = f"{head}.{body}.{signature[::-1]}"
    (name, _) = place.person(*spaces)
    foreign = place.token(name, "--audience=https://other.example.com")
    for wrong in (forged, foreign, "x" * 4000):
        async with place.pages(wrong) as pages:
            answer = await pages.get("/gates")
            assert answer.status == 401, wrong
            assert spaces[0] not in answer.text


@pytest.mark.claim("D8")
async def test_wrong_tokens_from_one_address_keep_nobody_out(place):
    async def guess(number):
        async with place.pages(f"wrong-{number}") as pages:
            return (await pages.get("/gates")).status

    _, token = place.person(everywhere=True)
    guessing = [asyncio.create_task(guess(number)) for number in range(150)]
    async with place.pages(token) as pages:
        assert (await pages.get("/gates")).status == 200
    assert set(await asyncio.gather(*guessing)) == {401}


@pytest.mark.claim("D3")
async def test_one_sees_ones_own_namespaces_and_nothing_of_others(place, spaces):
    mine, foreign = spaces
    _, token = place.person(mine)
    async with place.pages(token) as pages:
        for path in LISTS:
            answer = await pages.until(path, shows(f"of-{mine}"))
            assert foreign not in answer.text
        for path in ("/", "/gates?q=of-", "/policies?q=of-"):
            assert foreign not in (await pages.get(path)).text
        for path in LISTS:
            assert (await pages.get(f"{path}?namespace={foreign}")).status == 403
        # What is there and what is not can't be told from each other.
        there = await pages.get(f"/applications/{foreign}/of-{foreign}")
        absent = await pages.get(f"/applications/{foreign}/nothing")
        assert there.status == absent.status == 403
        assert there.text == absent.text
        # Nodes have no namespace.
        assert (await pages.get("/reservations")).status in {403, 200}


async def test_the_map_has_the_pod_that_waits_below_its_version(place, spaces):
    mine, foreign = spaces
    _, token = place.person(mine)
    async with place.pages(token) as pages:
        # It is the only namespace that the person sees.
        answer = await pages.until("/map", shows("Waiting at a gate"))
        assert f"/Application:of-{mine}/" in answer.text
        assert "of no application" not in answer.text
        assert "0 of 1 pod ready" in answer.text
        assert foreign not in answer.text
        assert (await pages.get(f"/map?namespace={foreign}")).status == 403


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
async def test_a_release_has_its_images_its_ready_pods_and_why_others_wait(place, kind):
    space = place.namespace(kind.lower())
    _, token = place.person(space)
    place.apply(space, owner(kind, "sail", keptn("sail", app="ship")))
    stuck = deployment("mast", keptn("mast", app="ship"))
    stuck["spec"]["template"]["spec"] |= {"nodeSelector": {"example.com/no": "node"}}
    place.apply(space, stuck)
    async with place.pages(token) as pages:
        path = f"/applications/{space}/ship"
        answer = await pages.until(path, shows("1 of 1 pod", "0 of 1 pod", "FailedScheduling"))
        assert answer.text.count(f"<bdi>{IMAGE}</bdi>") == 2
        assert "Pod <bdi>mast-" in answer.text
        assert "reads failed" not in answer.text
        # The pods of the old version, of which a DaemonSet and a StatefulSet keep a revision.
        later = owner(kind, "sail", keptn("sail", "2.0", app="ship"), containers=NEWER)
        place.apply(space, later)
        answer = await pages.until(path, shows(NEWER[0]["image"], "Old", "1 of 1 pod"))
        assert "reads failed" not in answer.text


@pytest.mark.claim("D4")
async def test_a_right_that_is_taken_away_is_gone_in_a_moment_and_one_that_is_given_counts(
    place, spaces
):
    mine, foreign = spaces
    name, token = place.person(mine)
    async with place.pages(token) as pages:
        await pages.until("/gates", shows(f"of-{mine}"))
        place.grant(name, foreign)
        await pages.until("/gates", shows(f"of-{mine}", f"of-{foreign}"))
        place.revoke(name, mine)
        await pages.until("/gates", lambda answer: f"of-{mine}" not in answer.text)
        place.revoke(name, foreign)
        await pages.until("/gates", lambda answer: answer.status == 403)


async def test_a_token_whose_account_is_deleted_opens_nothing_any_more(place, spaces):
    name, token = place.person(*spaces)
    async with place.pages(token) as pages:
        await pages.until("/gates", shows(f"of-{spaces[0]}"))
        place.kubectl("delete", "serviceaccount", name, f"--namespace={PEOPLE}")
        await pages.until("/gates", lambda answer: answer.status == 401)


async def test_a_person_logs_in_and_sees_a_pod_come_and_go_without_a_reload(place, browser):
    namespace = place.namespace("live")
    _, token = place.person(namespace)
    async with open_visit(browser, place.origin) as visit:
        await visit.go("/gates")
        await visit.page.fill("#token", token)
        await visit.page.press("#token", "Enter")
        await visit.page.wait_for_url("**/gates", timeout=MS)
        await visit.page.wait_for_selector("#live[data-state=on]", timeout=MS)
        await visit.page.evaluate("window.mark = 1")
        place.waiting(namespace, "till")
        await visit.page.wait_for_selector("#list >> text=till-", timeout=MS)
        await visit.page.wait_for_selector("#list >> text=audit", timeout=MS)
        await visit.shoot("cluster-gates")
        path = f"/applications/{namespace}/till"
        async with place.pages(token) as pages:
            await pages.until(path, shows("till"))
        await visit.go(path)
        await visit.page.wait_for_selector("ol.timeline", timeout=MS)
        await visit.page.wait_for_selector("#live[data-state=on]", timeout=MS)
        await visit.shoot("cluster-application")
        await visit.go("/gates")
        await visit.page.wait_for_selector("#live[data-state=on]", timeout=MS)
        await visit.page.evaluate("window.mark = 2")
        place.kubectl("delete", "deployment", "till", f"--namespace={namespace}")
        await visit.page.wait_for_selector("#list >> text=till-", state="detached", timeout=MS)
        assert await visit.page.evaluate("window.mark") == 2
        assert visit.faults == []
        assert visit.elsewhere == []


async def test_nothing_that_a_person_is_or_asks_for_stands_in_the_metrics(place, spaces):
    name, token = place.person(spaces[0])
    async with place.pages(token) as pages:
        await pages.get("/gates?q=what-i-look-for")
        await pages.get("/nowhere-at-all")
    metrics = place.metrics()
    for word in (name, "what-i-look-for", "nowhere-at-all", token):
        assert word not in metrics


def test_it_is_off_unless_it_is_enabled_and_costs_nothing_then(place):
    """Without the component's setting the controller has no port, and not one watch more."""
    with_it = place.watches()
    place.restart("--dashboard-enabled=false")
    try:
        with contextlib.closing(socket.socket()) as client:
            client.settimeout(5)
            assert client.connect_ex(("127.0.0.1", place.port)) != 0
        # Once all that is watched has been listed, these are all that is missing.
        eventually(lambda: len(with_it - place.watches()) <= len(OWN_WATCHES))
        missing = with_it - place.watches()
        assert {text.removesuffix(" of the dashboard") for text in missing} == OWN_WATCHES
    finally:
        place.restart()
        place.listening()


@pytest.fixture
async def browser():
    async with chromium() as browser:
        yield browser
