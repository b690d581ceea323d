"""The executor writes to an API server in memory, and handles each of its answers."""

from __future__ import annotations

import asyncio
import json

import pytest

from harbourmaster.api.resources import EVENTS, NODES, PODS
from helpers.evicting import (
    ANNOTATION,
    KEY,
    budget,
    event_reasons,
    full,
    leading,
    refused_by_admission,
    refused_by_budget,
    refused_by_two_budgets,
    until,
)
from helpers.fake_store import StatusError, status

OURS = "resched."


async def wait_until_bound(api, *, victims=("v1",)):
    """Wait for the victims to be on their way, let them go, and see the pod bound and all clean."""
    await until(lambda: len(api.evictions) + len(api.deletions) >= len(victims))
    assert {name for name, _ in (*api.evictions, *api.deletions)} == set(victims)
    for name in victims:
        await until(
            lambda name=name: "deletionTimestamp" in api.get(PODS, name, "default")["metadata"]
        )
        api.remove(PODS, name, "default")
    await asyncio.sleep(0.05)
    assert not api.is_clean()
    api.bind()
    await until(api.is_clean)


def stop(part):
    """Call what a process calls before it ends."""
    for callback in part.on_stopping:
        callback()


async def test_one_pod_makes_room(api, make_controller):
    uid = full(api)
    async with leading(make_controller()):
        await until(api.evicted_names)
        (taint,) = api.taints()
        assert (taint["key"], taint["value"][:8], taint["effect"]) == (KEY, OURS, "NoSchedule")
        (kept,) = api.reservations()
        assert (kept["pod"], kept["uid"]) == ("kube-system/c", uid)
        assert [victim["name"] for victim in kept["victims"]] == ["v1"]
        await wait_until_bound(api)
    ((_, options),) = api.evictions
    assert options["gracePeriodSeconds"] == 5
    assert api.deletions == api.marks == []
    await until(lambda: "RescheduleSucceeded" in event_reasons(api))
    for reason in ("RescheduleStarted", "EvictedByRescheduler", "ReservedForCriticalAddon"):
        assert reason in event_reasons(api)


async def test_room_is_made_on_another_node_where_a_pod_cannot_be_read(full_api, make_controller):
    full_api.add_pod("broken", priority="broken")
    full_api.add_node("n2")
    for name in ("w0", "w1"):
        full_api.add_pod(name, "n2", cpu="1100m" if name == "w0" else "900m")
    async with leading(make_controller()):
        assert await until(full_api.evicted_names) == ["w0"]


async def test_one_without_the_toleration_is_told(api, make_controller):
    full(api, tolerates=False)
    async with leading(make_controller()):
        await until(lambda: "MissingToleration" in event_reasons(api))
        await asyncio.sleep(0.5)
    assert event_reasons(api) == ["MissingToleration"]
    assert api.writes() == []


async def test_the_toleration_is_added_where_that_is_wanted(api, make_controller):
    full(api, tolerates=False)
    async with leading(make_controller(injectToleration=True)):
        await wait_until_bound(api)
    (toleration,) = api.get(PODS, "c", "kube-system")["spec"]["tolerations"]
    assert toleration == {"key": KEY, "operator": "Exists", "effect": "NoSchedule"}


async def test_who_is_bound_elsewhere_spares_the_rest(api, make_controller):
    full(api, cpu="2")
    api.answers["v1"] = [StatusError(429, "too busy")]
    async with leading(make_controller()):
        await until(lambda: api.evicted_names().count("v1") >= 2)
        api.add_node("n2")
        api.bind(node="n2")
        await until(api.is_clean)
    assert "deletionTimestamp" in api.get(PODS, "v0", "default")["metadata"]
    assert "deletionTimestamp" not in api.get(PODS, "v1", "default")["metadata"]


async def test_a_busy_server_is_no_budget(full_api, make_controller):
    full_api.answers["v1"] = [StatusError(429, "too busy"), StatusError(503, "too busy"), None]
    async with leading(make_controller(gracePeriodLimitSeconds=3)):
        await until(lambda: full_api.evicted_names() == ["v1"] * 3)
        full_api.remove(PODS, "v1", "default")
        await asyncio.sleep(0.05)
        full_api.bind()
        await until(full_api.is_clean)
    assert {options["gracePeriodSeconds"] for _, options in full_api.evictions} == {3}
    assert full_api.deletions == []


async def test_a_lost_answer_is_asked_for_again_for_the_same_pod(api, make_controller):
    uid = full(api)
    async with leading(make_controller()) as lead:
        api.fail_next("POST", "/eviction$", kind="torn")
        await wait_until_bound(api)
        assert not lead.done()
    assert {options["preconditions"]["uid"] for _, options in api.evictions} != {uid}


async def test_a_budget_that_says_no_is_got_round_only_as_a_last_resort(full_api, make_controller):
    budget(full_api, allowed=0)
    full_api.answers["v1"] = full_api.tries["v1"] = [refused_by_budget()]
    full_api.answers["v0"] = full_api.tries["v0"] = [refused_by_budget()]
    async with leading(make_controller()):
        await until(lambda: full_api.deletions)
        await wait_until_bound(full_api)
    assert full_api.marks == [("v1", "DeletionByRescheduler")]
    ((name, options),) = full_api.deletions
    assert (name, options["gracePeriodSeconds"]) == ("v1", 5)
    assert "uid" in options["preconditions"]


async def test_no_budget_is_got_round_where_that_is_not_allowed(full_api, make_controller):
    budget(full_api, allowed=0)
    async with leading(make_controller(allowPdbViolation=False)):
        await until(lambda: "DoesNotFitAnyNode" in event_reasons(full_api))
        await asyncio.sleep(0.3)
    assert full_api.writes() == []


async def test_a_budget_that_nobody_has_counted_yet_is_waited_for(full_api, make_controller):
    budget(full_api, allowed=0)
    full_api.answers["v1"] = [refused_by_budget(1), None]
    async with leading(make_controller()):
        await wait_until_bound(full_api)
    assert full_api.evicted_names() == ["v1", "v1"]
    assert full_api.deletions == full_api.marks == []


async def test_one_with_two_budgets_is_deleted_only_as_a_last_resort(full_api, make_controller):
    budget(full_api, allowed=1)
    budget(full_api, "second", allowed=1)
    for name in ("v0", "v1"):
        full_api.answers[name] = full_api.tries[name] = [refused_by_two_budgets()]
    async with leading(make_controller()):
        await until(lambda: full_api.deletions)
        await wait_until_bound(full_api)
    assert full_api.marks == [("v1", "DeletionByRescheduler")]


async def test_what_admission_refuses_is_never_done_by_another_way(full_api, make_controller):
    full_api.tries["v1"] = [refused_by_admission()]
    async with leading(make_controller()):
        await wait_until_bound(full_api, victims=("v0",))
    assert full_api.deletions == []


async def test_what_admission_refuses_only_in_earnest_is_not_asked_again(full_api, make_controller):
    full_api.answers["v1"] = [refused_by_admission()]
    async with leading(make_controller()):
        await until(lambda: "v0" in full_api.evicted_names())
    assert full_api.evicted_names() == ["v1", "v0"]
    assert full_api.deletions == []


async def test_a_namesake_is_never_evicted(full_api, make_controller):
    before = full_api.get(PODS, "v1", "default")["metadata"]["uid"]
    full_api.answers["v1"] = [StatusError(409, "the UID in the precondition does not match"), None]
    async with leading(make_controller()):
        await until(lambda: full_api.evictions)
        await asyncio.sleep(0.3)
    assert {options["preconditions"]["uid"] for _, options in full_api.evictions if _} <= {
        before,
        full_api.get(PODS, "v0", "default")["metadata"]["uid"],
    }


async def test_another_writers_taint_stays(full_api, make_controller):
    foreign_taint = {"key": "example.com/other", "value": "v", "effect": "NoSchedule"}
    full_api.fail_next("PATCH", "/nodes/n1$", status=422)
    node = full_api.get(NODES, "n1")
    async with leading(make_controller()):
        full_api.put(NODES, {**node, "spec": {"taints": [foreign_taint]}})
        await asyncio.sleep(0)
        await until(
            lambda: len(full_api.taints()) == 2 or "DoesNotFitAnyNode" in event_reasons(full_api)
        )
    assert foreign_taint in full_api.taints()


async def test_a_taint_that_the_api_refuses_ends_the_plan(full_api, make_controller):
    details = {"causes": [{"reason": "FieldValueInvalid", "message": "bad"}]}
    body = json.dumps(status(422, "on demand", details=details)).encode()
    full_api.fail_next("PATCH", "/nodes/n1$", count=None, status=422, body=body)
    async with leading(make_controller()):
        await until(lambda: "DoesNotFitAnyNode" in event_reasons(full_api))
    assert [method for method, path in full_api.writes() if "/nodes/" in path] == ["PATCH"]
    assert full_api.evictions == []


async def test_the_kill_switch_stops_evictions_and_gives_nodes_back(full_api, make_controller):
    full_api.answers["v1"] = [StatusError(429, "too busy")]
    async with leading(make_controller()):
        await until(lambda: full_api.evictions)
        full_api.switch("false")
        await until(full_api.is_clean)
        count = len(full_api.evictions)
        await asyncio.sleep(0.6)
        assert len(full_api.evictions) == count
        assert full_api.is_clean()
        full_api.answers.clear()
        full_api.switch("true")
        await wait_until_bound(full_api)


async def test_a_pod_that_is_deleted_gives_its_node_back(full_api, make_controller):
    async with leading(make_controller()):
        await until(full_api.evicted_names)
        full_api.remove(PODS, "c", "kube-system")
        await until(full_api.is_clean)
        await asyncio.sleep(0.3)
    assert full_api.evicted_names() == ["v1"]


async def test_a_dry_run_changes_nothing_and_tells_once(full_api, make_controller):
    async with leading(make_controller(dryRun=True)):
        await until(lambda: "RescheduleDryRun" in event_reasons(full_api))
        await asyncio.sleep(0.6)
    assert full_api.writes() == [] or all("eviction" in path for _, path in full_api.writes())
    assert event_reasons(full_api).count("RescheduleDryRun") == 1
    assert full_api.evictions == []


async def test_what_an_earlier_leader_began_is_gone_on_with(api, make_controller):
    full(api, cpu="2")
    api.answers["v1"] = [StatusError(429, "too busy")]
    async with leading(make_controller()):
        await until(lambda: "v1" in api.evicted_names())
    (before,) = api.taints()
    api.answers.clear()
    api.evictions.clear()
    async with leading(make_controller()):
        await until(api.evicted_names)
        await asyncio.sleep(0.3)
        assert api.taints() == [before]
        assert not api.is_clean()
        for name in ("v0", "v1"):
            api.remove(PODS, name, "default")
        await asyncio.sleep(0.1)
        api.bind()
        await until(api.is_clean)
    assert api.evicted_names() == ["v1"]


@pytest.mark.parametrize(
    "text",
    [
        '[{"pod":"kube-system/x","uid":"gone","deadline":"2999-01-01T00:00:00Z","victims":[]}]',
        "no JSON",
        "[]",
    ],
)
async def test_what_nobody_needs_goes_from_nodes_in_any_state(api, make_controller, text):
    taint = {"key": KEY, "value": "resched.01234567", "effect": "NoSchedule"}
    foreign = {"key": KEY, "value": "true", "effect": "NoSchedule"}
    api.add_node("n1", taints=[taint], annotations={ANNOTATION: text}, cordoned=True)
    api.add_node("n2", taints=[taint])
    api.add_node("n3", taints=[foreign])
    api.add_node("n4", taints=[foreign], annotations={ANNOTATION: text})
    async with leading(make_controller()):
        await until(lambda: all(api.is_clean(name) for name in ("n1", "n2", "n4")))
    assert api.taints("n3") == api.taints("n4") == [foreign]


async def test_a_taint_that_somebody_removes_comes_back(full_api, make_controller):
    async with leading(make_controller()):
        await until(full_api.evicted_names)
        node = full_api.get(NODES, "n1")
        full_api.put(
            NODES, {**node, "metadata": {**node["metadata"], "annotations": {}}, "spec": {}}
        )
        await until(lambda: len(full_api.taints()) == 1 and full_api.reservations())
        assert full_api.evicted_names() == ["v1"]


async def test_a_plan_that_costs_too_much_is_not_begun(api, make_controller):
    full(api, cpu="2")
    async with leading(make_controller(evictionsPerMinute=1)):
        await until(lambda: "RescheduleDelayed" in event_reasons(api))
        await asyncio.sleep(0.3)
    assert api.writes() == []


async def test_who_comes_after_the_evictions_of_a_minute_is_delayed(full_api, make_controller):
    full_api.add_critical("d")
    async with leading(make_controller(evictionsPerMinute=1)):
        await until(
            lambda: "RescheduleDelayed" in event_reasons(full_api) and full_api.evicted_names()
        )
    assert full_api.evicted_names() == ["v1"]


@pytest.mark.parametrize("is_stopping", [True, False])
async def test_a_node_is_given_back_at_the_end_of_the_process_if_nobody_went(
    full_api, make_controller, is_stopping
):
    part = make_controller(verifyDelaySeconds=60)
    async with leading(part) as lead:
        await until(lambda: not full_api.is_clean())
        if is_stopping:
            stop(part)
        lead.cancel()
        await asyncio.wait([lead])
    assert full_api.is_clean() is is_stopping
    assert full_api.evictions == []


async def test_what_was_begun_is_left_to_who_follows(full_api, make_controller):
    part = make_controller()
    async with leading(part) as lead:
        await until(lambda: "EvictedByRescheduler" in event_reasons(full_api))
        await asyncio.sleep(0.1)
        stop(part)
        lead.cancel()
        await asyncio.wait([lead])
    assert not full_api.is_clean()


async def test_who_is_bound_while_an_eviction_is_awaited_spares_the_rest(api, make_controller):
    full(api, cpu="2")
    async with leading(make_controller()):
        # Those before are only tried.
        api.fail_next("POST", "/v0/eviction$", kind="hang")
        await api.until_seen("POST", "/v0/eviction$")
        api.release()
        api.fail_next("POST", "/v0/eviction$", kind="hang")
        await api.until_seen("POST", "/v0/eviction$", 2)
        api.bind(node="n2")
        await asyncio.sleep(0.1)
        api.release()
        await until(api.is_clean)
    assert api.evicted_names() == ["v0"]


async def test_two_share_a_node_and_no_victim(api, make_controller):
    full(api)
    api.add_critical("d")
    async with leading(make_controller()):
        await until(lambda: len(api.evicted_names()) == 2)
        assert len(api.taints()) == 1
        assert sorted(len(reservation["victims"]) for reservation in api.reservations()) == [1, 1]
        for name in ("v0", "v1"):
            api.remove(PODS, name, "default")
        await asyncio.sleep(0.1)
        api.bind("c")
        await until(lambda: len(api.reservations()) == 1)
        assert len(api.taints()) == 1
        api.bind("d")
        await until(api.is_clean)
    assert sorted(api.evicted_names()) == ["v0", "v1"]


async def test_what_was_given_up_is_not_gone_on_with(full_api, make_controller):
    async with leading(make_controller(verifyDelaySeconds=60)):
        await until(lambda: not full_api.is_clean())
        full_api.nominate("n1")
        await until(full_api.is_clean)
        await asyncio.sleep(0.5)
        assert full_api.is_clean()
    assert [method for method, path in full_api.writes() if path.endswith("/nodes/n1")] == [
        "PATCH"
    ] * 2


@pytest.mark.parametrize(("percent", "is_paused"), [(30, True), (50, False)])
async def test_nothing_is_evicted_while_too_many_nodes_are_not_ready(
    full_api, make_controller, percent, is_paused
):
    for name in ("n2", "n3", "n4"):
        full_api.add_node(name)
    for name in ("n3", "n4"):
        node = full_api.get(NODES, name)
        full_api.put(NODES, {**node, "status": {**node["status"], "conditions": []}})
    full_api.add_pod("w", "n2", cpu="2")
    async with leading(make_controller(maxNotReadyPercent=percent)):
        reason = "RescheduleCircuitOpen" if is_paused else "RescheduleStarted"
        await until(lambda: reason in event_reasons(full_api))
    notes = [event["note"] for event in full_api.objects.all(EVENTS).values()]
    text = "rescheduling paused: 2 of 4 nodes are not ready, and 1 may be: "
    assert any(note.startswith(text) for note in notes) is is_paused


OF_ADDON = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "c", "uid": "of-c"}]


def own(api, name):
    """Let a critical pod have a controller."""
    pod = api.get(PODS, name, "kube-system")
    references = [{**reference, "controller": True} for reference in OF_ADDON]
    api.put(PODS, {**pod, "metadata": {**pod["metadata"], "ownerReferences": references}})


async def help_and_lose(api):
    """Let the first critical pod get its room, and then be replaced while others have it."""
    own(api, "c")
    await wait_until_bound(api)
    await until(lambda: "RescheduleSucceeded" in event_reasons(api))
    api.add_pod("w")
    api.remove(PODS, "c", "kube-system")
    api.add_critical("d")
    own(api, "d")


def notes(api, reason):
    """The notes of the Warnings with a reason."""
    events = api.objects.all(EVENTS).values()
    return [e["note"] for e in events if (e["reason"], e["type"]) == (reason, "Warning")]


async def test_an_add_on_that_is_gone_soon_after_its_success_waits_with_a_warning(
    full_api, make_controller
):
    """Whatever removes it, no pod after the other is evicted for it (rescheduler-spec 7)."""
    async with leading(make_controller(backoffSeconds=600)):
        await help_and_lose(full_api)
        (note,) = await until(lambda: notes(full_api, "RescheduleRepeated"))
        await asyncio.sleep(300)
    assert note.startswith("pods of this owner were gone within a minute of getting room")
    assert full_api.evicted_names() == ["v1"]


async def test_attempts_that_succeed_count_for_the_owner(full_api, make_controller):
    async with leading(make_controller(attemptsPerOwner=1, backoffSeconds=1)):
        own(full_api, "c")
        await wait_until_bound(full_api)
        await until(lambda: "RescheduleSucceeded" in event_reasons(full_api))
        full_api.add_pod("w")
        full_api.add_critical("d")
        own(full_api, "d")
        (note,) = await until(lambda: notes(full_api, "RescheduleDelayed"))
        await asyncio.sleep(300)
    assert note.startswith("attemptsPerOwner is reached for the pods of this owner")
    assert full_api.evicted_names() == ["v1"]


async def test_one_of_three_nodes_may_be_not_ready(full_api, make_controller):
    for name in ("n2", "n3"):
        full_api.add_node(name)
    node = full_api.get(NODES, "n3")
    full_api.put(NODES, {**node, "status": {**node["status"], "conditions": []}})
    full_api.add_pod("w", "n2", cpu="2")
    async with leading(make_controller()):
        await until(full_api.evicted_names)
