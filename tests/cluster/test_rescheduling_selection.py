"""Selection of victims, beyond the choice itself, which the planner's unit tests prove: C01-C44."""

from __future__ import annotations

from helpers.rescheduling.cases import Cases
from helpers.rescheduling.objects import OURS, budget, volume_of
from helpers.rescheduling.toy_kubelet import SLOW

CASES = Cases()
case = CASES.case
APP = {"app": "a"}


@case("C01")
async def of_equal_pods_the_last_one_goes(place):
    on = await place.node()
    await place.full(on, "v0", "v1", "v2", "v3")
    uid = await place.critical()
    await place.assert_helped(uid, on, {"v3"})
    ((value,),) = [taints for taints in place.taints_of(on) if taints]
    assert value.startswith(OURS)
    assert [uid in text for text in place.reservation_texts(on)][:1] == [True]
    assert place.reason_of("v3") == "EvictionByEvictionAPI"
    for reason in ("RescheduleStarted", "RescheduleSucceeded"):
        await place.until_event(uid, reason)
    for reason in ("ReservedForCriticalAddon", "ReservationReleased"):
        await place.until_event(place.uid_of_node(on), reason)
    await place.until_event(place.ends_of()["v3"].object["metadata"]["uid"], "EvictedByRescheduler")


@case("C04")
async def a_long_one_goes_before_a_budget_is_violated(place):
    n1, n2 = await place.node("n1", 2), await place.node("n2", 2)
    await place.full(n1, "a", cpu=2, labels=APP)
    await place.full(n2, "b", cpu=2, grace=60)
    await place.budget(budget("of-a", 1, APP), 0)
    uid = await place.critical(cpu=2)
    await place.assert_helped(uid, n2, {"b"})
    assert (place.grace_of("b"), place.reason_of("b")) == (10, "EvictionByEvictionAPI")


async def one_under_a_budget(place):
    on = await place.node("n1", 2)
    await place.full(on, "a", cpu=2, grace=4, labels=APP)
    await place.budget(budget("of-a", 1, APP), 0)
    return on, await place.critical(cpu=2)


@case("C05")
async def where_nothing_else_helps_a_budget_is_violated(place):
    on, uid = await one_under_a_budget(place)
    await place.assert_helped(uid, on, {"a"})
    assert (place.grace_of("a"), place.reason_of("a")) == (4, "DeletionByRescheduler")
    answers = [
        request["responseStatus"]["code"] for request in place.requests("c05/pods/a/eviction")
    ]
    assert 201 not in answers
    assert 429 in answers
    assert await place.metric('rescheduler_pdb_violations_total{dry_run="false"}') >= 1


@case("C05b", allowPdbViolation=False)
async def no_budget_is_violated_where_that_is_not_allowed(place):
    _, uid = await one_under_a_budget(place)
    await place.left_alone(uid, "DoesNotFitAnyNode")


@case("C06b")
async def a_budget_is_used_up_and_no_further(place):
    on = await place.node("n1", 3)
    await place.full(on, "a1", "a2", labels=APP)
    await place.full(on, "b")
    await place.budget(budget("of-a", 1, APP), 1)
    uid = await place.critical(cpu=2)
    await place.until_bound(uid, on)
    victims = place.taken_pods()
    assert victims in ({"b", "a1"}, {"b", "a2"})
    await place.assert_helped(uid, on, victims)
    answers = [request["responseStatus"]["code"] for request in place.requests("case-c06b/pods")]
    assert 429 not in answers


@case("C36")
async def one_that_goes_by_itself_is_waited_for(place):
    on = await place.node("n1", 2)
    await place.full(on, "a", labels=SLOW, grace=4)
    await place.full(on, "b")
    await place.delete("a")
    uid = await place.critical()
    await place.until_bound(uid, on)
    assert place.taken_pods() == {"a"}
    assert not place.was_marked()
    assert place.requests("case-c36/pods") == []


@case("C36b")
async def one_that_takes_long_to_go_gets_less_time(place):
    on = await place.node("n1", 2)
    (going,) = await place.full(on, "a", labels=SLOW, grace=600)
    await place.full(on, "b", labels=APP)
    await place.budget(budget("of-b", 1, APP), 0)
    await place.delete("a")
    await place.cluster.until(lambda: "a" in place.ends_of())
    uid = await place.critical()
    await place.assert_helped(uid, on, {"a"})
    graces = [
        event.object["metadata"].get("deletionGracePeriodSeconds")
        for event in place.cluster.history(going)
    ]
    # 0 is the kubelet's own, at the end.
    assert [fromkey for fromkey in dict.fromkeys(graces) if fromkey] == [600, 10]
    asked = [
        (request["verb"], request["requestURI"]) for request in place.requests("case-c36b/pods")
    ]
    assert not [request for request in asked if "eviction" in request[1]]
    assert place.reason_of("a") == ""


@case("C37")
async def nobody_is_killed_at_once(place):
    on = await place.node("n1", 1)
    await place.full(on, "v", grace=0)
    uid = await place.critical()
    await place.assert_helped(uid, on, {"v"})
    assert place.grace_of("v") == 1


@case("C60")
async def one_with_a_volume_goes_where_that_can_be_used(place):
    n1, n2 = await place.node("n1", 1), await place.node("n2", 1)
    await place.full(n1, "v1")
    await place.full(n2, "v2", grace=60)
    uid = await place.critical(volumes=[volume_of(await place.claim(n2))])
    await place.assert_helped(uid, n2, {"v2"})


test_rescheduling, test_no_controller_told_of_a_fault = CASES.tests()
