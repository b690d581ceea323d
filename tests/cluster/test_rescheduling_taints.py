"""Reservations of nodes for pods: C14-C24, C34, C38, C41, C42 (rescheduler-spec 8.2, 8.3)."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from datetime import UTC, datetime, timedelta

from harbourmaster.api.patches import JsonPatch, MergePatch
from harbourmaster.api.resources import NODES, PODS
from helpers.rescheduling.cases import Cases
from helpers.rescheduling.intercepting_proxy import is_dry, overload_answer
from helpers.rescheduling.objects import RESERVATIONS, TAINT, is_clean, owned_taints
from helpers.rescheduling.toy_kubelet import SLOW

CASES = Cases()
case = CASES.case
OURS = {"key": TAINT, "value": "resched.01234567", "effect": "NoSchedule"}
TEXT = '[{"pod":"kube-system/gone","uid":"u","deadline":"2999-01-01T00:00:00Z","victims":[]}]'
FOREIGN = {"key": TAINT, "value": "true", "effect": "NoSchedule"}
GATES = {"schedulingGates": [{"name": "example.com/gate"}]}


@case("C14")
async def who_may_not_use_the_room_gets_none(place):
    on = await place.node()
    await place.full(on, "v0", cpu=4)
    uid = await place.critical(tolerant=False)
    await place.left_alone(uid, "MissingToleration")


@case("C14-inject", injectToleration=True)
async def the_toleration_is_added_where_that_is_wanted(place):
    on = await place.node()
    await place.full(on, "v0", "v1", "v2", "v3")
    uid = await place.critical(tolerant=False)
    await place.assert_helped(uid, on, {"v3"})
    tolerations = place.latest(uid)["spec"]["tolerations"]
    assert any(toleration.get("key") == TAINT for toleration in tolerations)


@case("C15")
async def a_taint_of_somebody_else_stays_as_it_is(place):
    on = await place.node(taints=[FOREIGN])
    await place.full(on, "v0", cpu=4)
    uid = await place.critical()
    await place.assert_helped(uid, on, {"v0"})
    history = place.cluster.history(place.uid_of_node(on))
    assert all(seen.object["spec"]["taints"] == [FOREIGN] for seen in history)
    assert [uid in text for text in place.reservation_texts(on)][:1] == [True]


@case("C16", before=True)
async def stale_taints_go_wherever_they_are_and_no_others(place):
    others = [{"key": f"example.com/{name}", "value": "v", "effect": "NoSchedule"} for name in "ab"]
    n1 = await place.node("n1", taints=[others[0], OURS, others[1]])
    n2 = await place.node("n2", taints=[OURS], cordoned=True)
    n3 = await place.node("n3", taints=[OURS], ready=False)
    n4 = await place.node("n4", taints=[FOREIGN])
    await place.cluster.until(lambda: all(place.cluster.find(NODES, node) for node in (n1, n4)))
    await place.begin()
    begun = time.monotonic()
    await place.clean()
    assert time.monotonic() - begun < 5
    taints = [place.cluster.find(NODES, node)["spec"].get("taints", []) for node in (n1, n2, n3)]
    assert taints == [others, [], []]
    for node in (n1, n2, n3):
        await place.until_event(place.uid_of_node(node), "StaleReservationRemoved")
    await place.passer_by()
    assert len(place.cluster.history(place.uid_of_node(n4))) == 1


def reservation(uid, name, victims, seconds=300):
    """The reservation that a controller before ours wrote."""
    now = datetime.now(UTC)
    since, deadline = (
        (now + timedelta(seconds=offset)).strftime("%Y-%m-%dT%H:%M:%SZ") for offset in (0, seconds)
    )
    text = json.dumps(
        [
            {
                "pod": f"kube-system/{name}",
                "uid": uid,
                "since": since,
                "deadline": deadline,
                "attempt": 1,
                "victims": victims,
            }
        ]
    )
    value = f"resched.{hashlib.sha1(uid.encode()).hexdigest()[:8]}"  # noqa: S324 - no secret
    return text, {"key": TAINT, "value": value, "effect": "NoSchedule"}


@case("C17", before=True)
async def what_was_begun_is_gone_on_with(place):
    on = await place.node("n1", 2)
    uids = await place.full(on, "a", "b", labels=SLOW)
    uid = await place.critical(cpu=2)
    victims = [
        {"uid": uid, "ns": place.namespace, "name": name}
        for uid, name in zip(uids, "ab", strict=True)
    ]
    text, taint = reservation(uid, f"c-{place.label}", victims)
    value = {"metadata": {"annotations": {RESERVATIONS: text}}, "spec": {"taints": [taint]}}
    await place.client.patch(NODES, on, MergePatch(value))
    await place.delete("a")
    await place.cluster.until(lambda: place.marked_nodes() and "a" in place.ends_of())
    await place.begin()
    await place.assert_helped(uid, on, {"a", "b"})
    assert place.taints_of(on) == [(taint["value"],), ()]
    asked = [
        (request["verb"], request["requestURI"])
        for request in place.requests(f"{place.label}/pods/")
    ]
    assert not [request for request in asked if "/pods/a" in request[1]]
    assert place.reason_of("a") == ""


@case("C18")
async def a_node_is_let_go_when_nobody_needs_it_any_more(place):
    on = await place.node("n1", 2)
    await place.full(on, "v0", "v1", labels=SLOW, grace=9)
    uid = await place.critical()
    await place.cluster.until(place.taken_pods, why=place.why)
    await place.delete(f"c-{place.label}", "kube-system", grace=0, uid=uid)
    deleted = time.monotonic()
    await place.clean()
    assert time.monotonic() - deleted < 5
    assert place.taken_pods() == {"v1"}
    place.assert_untouched()


@case("C18b")
async def another_of_the_same_name_begins_anew(place):
    on = await place.node("n1", 2)
    await place.full(on, "v0", "v1", labels=SLOW)
    first = await place.critical()
    await place.cluster.until(place.taken_pods, why=place.why)
    await place.delete(f"c-{place.label}", "kube-system", grace=0, uid=first)
    second = await place.critical()
    await place.assert_helped(second, on, {"v1"})
    texts = place.reservation_texts(on)
    assert [first in text for text in texts][:1] == [True]
    assert not any(first in text and second in text for text in texts)


@case("C19", proxied=True)
async def who_finds_a_place_elsewhere_needs_no_more_room(place):
    on = await place.node("n1", 2)
    await place.full(on, "v0", "v1")
    tried = set()

    async def intercept(method, path, body):
        if method == "POST" and path.endswith("/eviction") and not is_dry(body):
            tried.add(path)
            if min(tried) not in path or len(tried) > 1:
                return overload_answer()
        return None

    place.proxy.intercept(intercept)
    uid = await place.critical(cpu=2)
    await place.cluster.until(place.taken_pods, why=place.why)
    n9 = await place.node("n9")
    await place.until_bound(uid, n9)
    await place.clean()
    place.proxy.intercept(None)
    await asyncio.sleep(1.5)
    assert len(place.taken_pods()) == 1
    place.assert_untouched()


@case("C21")
async def two_get_a_node_each(place):
    nodes = [await place.node("n1", 1), await place.node("n2", 1)]
    for name, on in zip(("v1", "v2"), nodes, strict=True):
        await place.full(on, name)
    uids = [await place.critical("c"), await place.critical("d")]
    for uid in uids:
        await place.until_bound(uid)
    await place.clean()
    assert place.taken_pods() == {"v1", "v2"}
    assert {place.latest(uid)["spec"]["nodeName"] for uid in uids} == set(nodes)
    for on in nodes:
        history = place.cluster.history(place.uid_of_node(on))
        assert max(len(owned_taints(seen.object)) for seen in history) == 1


@case("C22")
async def two_share_a_node_and_its_taint(place):
    on = await place.node()
    await place.full(on, "v0", "v1", "v2", "v3", labels=SLOW, grace=4)
    uids = [await place.critical("c"), await place.critical("d")]
    for uid in uids:
        await place.until_bound(uid, on)
    await place.clean()
    assert place.taken_pods() == {"v2", "v3"}
    place.assert_untouched()
    assert any(all(uid in text for uid in uids) for text in place.reservation_texts(on))
    history = place.cluster.history(place.uid_of_node(on))
    assert max(len(owned_taints(seen.object)) for seen in history) == 1
    clean = [is_clean(seen.object) for seen in history]
    # It was kept once, and let go when both had their place.
    assert [now for before, now in zip([None, *clean], clean, strict=False) if now != before] == [
        True,
        False,
        True,
    ]
    last = max(at for at, is_so in enumerate(clean) if not is_so)
    for uid in uids:
        seen = place.cluster.history(uid)
        bound = next(event.at for event in seen if "nodeName" in event.object["spec"])
        assert bound < history[last + 1].at


@case("C23")
async def time_counts_from_when_a_pod_may_be_scheduled(place):
    on = await place.node()
    await place.full(on, "v0", cpu=4)
    uid = await place.critical(**GATES)
    await place.passer_by()
    assert place.taken_pods() == set()
    await asyncio.sleep(1.5)
    free = [{"op": "remove", "path": "/spec/schedulingGates/0"}]
    at = time.monotonic()
    await place.client.patch(PODS, f"c-{place.label}", JsonPatch(free), "kube-system")
    await place.assert_helped(uid, on, {"v0"})
    assert place.ends_of()["v0"].at - at >= 0.95


@case("C24")
async def who_has_no_scheduler_is_not_helped(place):
    on = await place.node()
    await place.full(on, "v0", cpu=4)
    uid = await place.critical(schedulerName="nobody")
    await place.left_alone(uid)


@case("C38", dryRun=True)
async def a_dry_run_tells_and_does_nothing(place):
    on = await place.node()
    await place.full(on, "v0", "v1", "v2", "v3")
    uid = await place.critical()
    await place.left_alone(uid, "RescheduleDryRun", passes=False)
    await asyncio.sleep(3)
    assert place.events(uid).count("RescheduleDryRun") == 1
    await place.left_alone(uid, passes=False)
    assert len(place.cluster.history(place.uid_of_node(on))) == 1
    assert await place.metric('rescheduler_evictions_total{dry_run="false"}') == 0


@case("C41")
async def where_nothing_can_help_that_is_told_once(place):
    on = await place.node()
    await place.full(on, "v0", cpu=4)
    uid = await place.critical(cpu=400)
    await place.left_alone(uid, "DoesNotFitAnyNode")
    await asyncio.sleep(3)
    assert place.events(uid).count("DoesNotFitAnyNode") == 1
    assert len(place.cluster.history(place.uid_of_node(on))) == 1
    assert place.requests(f"case-{place.label}/pods/v0") == []


@case("off", before=True, enabled=False)
async def where_it_is_switched_off_nodes_are_let_go_and_no_more(place):
    on = await place.node("n1", 1)
    await place.full(on, "v0")
    uid = await place.critical()
    value = {"metadata": {"annotations": {RESERVATIONS: TEXT}}, "spec": {"taints": [OURS]}}
    await place.client.patch(NODES, on, MergePatch(value))
    await place.cluster.until(place.marked_nodes)
    await place.begin()
    await place.clean()
    assert not place.is_bound(uid)
    assert place.taken_pods() == set()


@case("C42", proxied=True)
async def a_taint_that_comes_in_between_is_kept(place):
    on = await place.node()
    await place.full(on, "v0", cpu=4)
    foreign = {"key": "example.com/other", "value": "v", "effect": "PreferNoSchedule"}
    added = []

    async def intercept(method, path, _body):
        if method == "PATCH" and path.endswith(f"/nodes/{on}") and not added:
            added.append(path)
            value = {"spec": {"taints": [foreign]}}
            await place.client.patch(NODES, on, MergePatch(value))

    place.proxy.intercept(intercept)
    uid = await place.critical()
    await place.assert_helped(uid, on, {"v0"})
    assert place.cluster.find(NODES, on)["spec"]["taints"] == [foreign]
    answers = [request["responseStatus"]["code"] for request in place.requests(f"/nodes/{on}")]
    assert 422 in answers
    both = [
        seen.object["spec"].get("taints", [])
        for seen in place.cluster.history(place.uid_of_node(on))
        if owned_taints(seen.object)
    ]
    assert both
    assert all(foreign in taints for taints in both)


test_rescheduling, test_no_controller_told_of_a_fault = CASES.tests()
