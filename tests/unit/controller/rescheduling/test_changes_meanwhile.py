"""Changes between a plan and its end, or a preemption, never cause a needless eviction."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from harbourmaster.api.resources import LEASES, NODES, PODS
from harbourmaster.api.times import format_rfc3339
from harbourmaster.controller.rescheduling.notices import Notices
from harbourmaster.rescheduling import planner
from helpers.evicting import KEY, budget, event_reasons, full, leading, refused_by_budget, until
from helpers.fake_store import StatusError
from helpers.logs import captured_log

BUSY = StatusError(429, "too busy")
NEVER_EVICT = "rescheduler.harbourmaster.dev/never-evict"


@pytest.fixture
def states(monkeypatch):
    """Record the states that are logged, each with its reason."""
    logged = []
    tell = Notices.log_state

    def state(self, flow, why=""):
        logged.append((flow.state.name, why))
        tell(self, flow, why)

    monkeypatch.setattr(Notices, "log_state", state)
    return logged


def change(api, resource, name, namespace="", **parts):
    """Merge fields into the top-level parts of an object."""
    before = api.get(resource, name, namespace)
    merged = {key: {**before.get(key, {}), **value} for key, value in parts.items()}
    api.put(resource, {**before, **merged})


async def test_the_log_ends_with_the_end(full_api, make_controller, states):
    async with leading(make_controller()):
        await until(full_api.evicted_names)
        full_api.remove(PODS, "v1", "default")
        await until(lambda: states[-1][0] == "BIND")
        full_api.bind()
        await until(full_api.is_clean)
        await asyncio.sleep(0.3)
    assert [state for state, _ in states][-4:] == ["VERIFY", "EVICT", "DRAIN", "BIND"]


async def test_the_log_says_why_a_plan_was_given_up(full_api, make_controller, states):
    async with leading(make_controller(verifyDelaySeconds=0.3)):
        await until(lambda: states and states[-1][0] == "VERIFY")
        change(full_api, NODES, "n1", spec={"unschedulable": True})
        await until(lambda: states[-1][0] == "NOFIT")
    (why,) = {why for state, why in states if state == "DETECTED" and why}
    assert "node is cordoned" in why
    assert full_api.evictions == []


async def test_who_is_to_stay_by_now_stays(full_api, make_controller):
    full_api.answers["v1"] = [BUSY]
    async with leading(make_controller()):
        await until(full_api.evicted_names)
        change(full_api, PODS, "v1", "default", metadata={"labels": {NEVER_EVICT: "true"}})
        await until(lambda: "v0" in full_api.evicted_names())
        count = full_api.evicted_names().count("v1")
        await asyncio.sleep(0.8)
        assert full_api.evicted_names().count("v1") == count


@pytest.mark.parametrize(
    "parts",
    [
        {"spec": {"unschedulable": True}},
        {"spec": {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]}},
        {"status": {"conditions": [{"type": "Ready", "status": "False"}]}},
    ],
)
async def test_nobody_goes_from_a_node_that_closes(full_api, make_controller, parts):
    full_api.answers["v1"] = [BUSY]
    async with leading(make_controller()):
        await until(full_api.evicted_names)
        change(full_api, NODES, "n1", **parts)
        await until(full_api.is_clean)
        count = len(full_api.evictions)
        await asyncio.sleep(0.8)
        assert len(full_api.evictions) == count


async def test_who_is_finished_or_gone_is_not_evicted(full_api, make_controller):
    full_api.answers["v1"] = [BUSY]
    async with leading(make_controller()):
        await until(full_api.evicted_names)
        change(full_api, PODS, "v1", "default", status={"phase": "Succeeded"})
        await asyncio.sleep(0.1)
        count = len(full_api.evictions)
        await asyncio.sleep(1)
        assert len(full_api.evictions) == count
        full_api.bind()
        await until(full_api.is_clean)
    assert set(full_api.evicted_names()) == {"v1"}


async def test_no_budget_is_violated_that_the_limit_does_not_allow(api, make_controller):
    api.add_node()
    for name in ("v0", "v1"):
        api.add_pod(name, labels={"app": name})
    budget(api, "of-v0", allowed=0, labels={"app": "v0"})
    budget(api, "of-v1", allowed=1, labels={"app": "v1"})
    api.add_critical(cpu="2")
    api.answers["v0"] = api.tries["v0"] = [refused_by_budget()]
    api.answers["v1"] = [refused_by_budget()]
    async with leading(make_controller(pdbViolationsPerHour=1, evictTimeoutSeconds=0.3)):
        await until(lambda: api.deletions)
        await until(lambda: "v1" in api.evicted_names())
        await asyncio.sleep(0.6)
    assert [name for name, _ in api.deletions] == ["v0"]


async def test_where_less_harm_will_do_by_now_no_more_is_done(full_api, make_controller):
    budget(full_api, allowed=0)
    full_api.answers["v0"] = full_api.answers["v1"] = [refused_by_budget()]
    async with leading(make_controller(verifyDelaySeconds=0.3)):
        await until(lambda: "RescheduleStarted" in event_reasons(full_api))
        budget(full_api, allowed=1)
        await until(full_api.evicted_names)
        await asyncio.sleep(0.3)
    assert full_api.deletions == full_api.marks == []


async def test_more_than_may_move_for_one_pod_never_do(api, make_controller):
    full(api, cpu="2")
    async with leading(make_controller(maxVictimsPerPod=2)):
        await until(lambda: len(api.evictions) == 2)
        for name in ("thief0", "thief1"):
            api.add_pod(name)
        for name in ("v0", "v1"):
            api.remove(PODS, name, "default")
        await until(api.is_clean)
        assert sorted(api.evicted_names()) == ["v0", "v1"]


async def test_what_others_took_is_no_mismatch(full_api, make_controller, states):
    settings = {"maxVictimsPerPod": 5, "backoffSeconds": 60}
    async with leading(make_controller(**settings)):
        for name, thief in (("v1", "w1"), ("w1", "w2"), ("w2", "w3")):
            await until(lambda name=name: name in full_api.evicted_names())
            # It stays where the next one is to go.
            full_api.add_pod(thief)
            full_api.remove(PODS, name, "default")
        await until(lambda: states[-1][0] == "BACKOFF")
        await until(full_api.is_clean)
    assert ("BACKOFF", "the room was taken by others") in states
    assert "FitMismatch" not in event_reasons(full_api)


async def test_nobody_goes_for_one_that_has_its_place_though_the_watch_is_behind(
    full_api, make_controller
):
    act = full_api._do

    def bound_meanwhile(seen, resource, namespace, name, subresource):
        answer = act(seen, resource, namespace, name, subresource)
        if seen.verb == "get" and resource is PODS and name == "c" and not full_api.is_clean():
            return {**answer, "spec": {**answer["spec"], "nodeName": "n9"}}
        return answer

    full_api._do = bound_meanwhile
    async with leading(make_controller()):
        await until(lambda: not full_api.is_clean())
        await asyncio.sleep(1.5)
        assert full_api.evictions == []
        full_api.bind(node="n9")
        await until(full_api.is_clean)


async def test_a_scheduler_that_has_died_meanwhile_gets_no_room(api, make_controller):
    api.add_node(cpu="500m")
    api.add_critical()
    async with leading(make_controller()):
        await until(lambda: "DoesNotFitAnyNode" in event_reasons(api))
        old = format_rfc3339(datetime.now(UTC) - timedelta(minutes=10))
        metadata = {"name": "kube-scheduler", "namespace": "kube-system"}
        api.put(LEASES, {"metadata": metadata, "spec": {"renewTime": old}})
        api.add_pod("v0", "n2")
        api.add_node("n2", cpu="1")
        await until(lambda: "RescheduleCircuitOpen" in event_reasons(api))
        await asyncio.sleep(0.5)
        assert api.evictions == []
        assert api.is_clean("n2")


async def test_a_pod_is_counted_once(api, make_controller, monkeypatch):
    counted, cancelled = [], []
    monkeypatch.setattr(Notices, "count_unschedulable", lambda _, app: counted.append(app))
    monkeypatch.setattr(Notices, "report_end", lambda *given: cancelled.append(given[-1]))
    full(api)
    async with leading(make_controller(verifyDelaySeconds=60)):
        await until(lambda: not api.is_clean())
        api.nominate("n1")
        await until(lambda: cancelled and api.is_clean())
        await asyncio.sleep(0.5)
    assert cancelled == ["the scheduler preempts for the pod"]
    assert len(counted) == 1


async def test_how_things_stand_is_not_counted_anew_for_each_of_many_pods(
    api, make_controller, monkeypatch
):
    counts = []
    monkeypatch.setattr(Notices, "set_totals", lambda *given, **_: counts.append(given[1]))
    api.add_node(cpu="500m")
    for number in range(50):
        api.add_critical(f"c{number}")
    async with leading(make_controller(housekeepingIntervalSeconds=1)):
        await until(lambda: event_reasons(api).count("DoesNotFitAnyNode") == 50)
        await until(lambda: counts[-1] == 50)
    assert len(counts) < 25


async def test_what_is_remembered_of_pods_goes_with_them(full_api, make_controller):
    async with leading(make_controller(bindTimeoutSeconds=0.1, backoffSeconds=60)):
        (context,) = make_controller.contexts
        attempts = context.history.attempts
        uid = full_api.get(PODS, "c", "kube-system")["metadata"]["uid"]
        await until(full_api.evicted_names)
        full_api.remove(PODS, "v1", "default")
        await until(lambda: attempts.count_of(uid) == 1)
        # While rescheduling is off, the end of the pod is not observed.
        full_api.switch("false")
        await until(lambda: not context.caches.is_on)
        await asyncio.sleep(0.1)
        assert attempts.count_of(uid) == 1
        full_api.remove(PODS, "c", "kube-system")
        await until(lambda: attempts.count_of(uid) == 0)


async def test_one_that_cannot_be_planned_for_keeps_no_other_waiting(
    full_api, make_controller, monkeypatch
):
    full_api.add_critical("a")
    plan = planner.plan_in_slices

    def failing(cluster, pending, *given):
        if pending.pod.name == "a":
            raise TypeError("a fault of ours")
        return plan(cluster, pending, *given)

    monkeypatch.setattr(planner, "plan_in_slices", failing)
    with captured_log() as log:
        async with leading(make_controller()):
            await until(full_api.evicted_names)
    (kept,) = full_api.reservations()
    assert kept["pod"] == "kube-system/c"
    assert b"a fault of ours" in log.getvalue()


async def test_a_dry_run_leaves_the_taints_of_the_first_rescheduler(api, make_controller):
    taint = {"key": KEY, "value": "kube-system_x", "effect": "NoSchedule"}
    full(api)
    api.add_node("n2", cpu="0", taints=[taint])
    async with leading(make_controller(dryRun=True, adoptLegacyTaints=True)):
        await until(lambda: "RescheduleDryRun" in event_reasons(api))
        await asyncio.sleep(0.5)
    assert api.taints("n2") == [taint]
    async with leading(make_controller(adoptLegacyTaints=True)):
        await until(lambda: not api.taints("n2"))


async def test_rule_1_nothing_is_written_for_a_pod_with_a_nominated_node(full_api, make_controller):
    full_api.nominate("n1")
    async with leading(make_controller()):
        await asyncio.sleep(0.5)
    assert full_api.writes() == []


async def test_rule_3_room_is_made_on_another_node_when_the_preemption_is_stuck(
    full_api, make_controller
):
    terminate(full_api, "v0", seconds=0)
    full_api.nominate("n1")
    full_api.add_node("n2")
    for name, cpu in (("w0", "1100m"), ("w1", "900m")):
        full_api.add_pod(name, "n2", cpu=cpu)
    async with leading(make_controller(housekeepingIntervalSeconds=30)):
        await asyncio.sleep(290)
        assert full_api.writes() == []
        assert await until(full_api.evicted_names) == ["w0"]
        assert full_api.reservations("n2")
        full_api.remove(PODS, "w0", "default")
        await asyncio.sleep(0.1)
        full_api.bind(node="n2")
        await until(lambda: full_api.is_clean("n2"))
    assert full_api.evicted_names() == ["w0"]
    assert "RescheduleSucceeded" in event_reasons(full_api)


def terminate(api, name, seconds, **status):
    """Mark a pod as terminating, with a grace period that ends in so many seconds."""
    before = api.get(PODS, name, "default")
    ends = (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
    metadata = {**before["metadata"], "deletionTimestamp": ends}
    after = {**before, "metadata": metadata, "status": {**before["status"], **status}}
    api.objects._keep(PODS, ("default", name), before, after)


async def deletions_beside_preemption(api, make_controller, reason, **settings):
    """Return the deletions made while a pod terminates on the nominated node for a reason."""
    api.add_node()
    api.add_pod("v0", grace=60)
    api.add_pod("v1")
    api.add_critical()
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason}
    terminate(api, "v0", seconds=60, conditions=[condition])
    critical = api.get(PODS, "c", "kube-system")
    api.put(PODS, {**critical, "spec": {**critical["spec"], "priority": 2_000_000_000}})
    api.nominate("n1")
    async with leading(make_controller(**settings)):
        await asyncio.sleep(0.5)
    assert api.evictions == []
    return api.deletions


async def test_rule_4_victims_of_a_preemption_are_deleted_sooner_if_that_is_set(
    api, make_controller
):
    deletions = await deletions_beside_preemption(
        api, make_controller, "PreemptionByScheduler", shortenPreemption=True
    )
    assert [(name, options["gracePeriodSeconds"]) for name, options in deletions] == [("v0", 10)]
    assert all("uid" in options["preconditions"] for _, options in deletions)


@pytest.mark.parametrize(
    ("reason", "settings"),
    [
        ("PreemptionByScheduler", {}),
        ("DeletionByTaintManager", {"shortenPreemption": True}),
        ("PreemptionByScheduler", {"shortenPreemption": True, "gracePeriodLimitSeconds": -1}),
    ],
)
async def test_rule_4_other_terminating_pods_keep_their_grace_period(
    api, make_controller, reason, settings
):
    assert await deletions_beside_preemption(api, make_controller, reason, **settings) == []


async def test_rule_4_a_pod_that_cannot_be_read_hides_no_preempted_one(api, make_controller):
    spec, status = {"nodeName": "n1"}, {"conditions": "broken"}
    metadata = {"name": "broken", "namespace": "default"}
    api.put(PODS, {"metadata": metadata, "spec": spec, "status": status})
    deletions = await deletions_beside_preemption(
        api, make_controller, "PreemptionByScheduler", shortenPreemption=True
    )
    assert [name for name, _ in deletions] == ["v0"]
