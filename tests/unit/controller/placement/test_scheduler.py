"""Passes of the scheduler on a clock of the test: their times, and the decisions written.

These tests prove krake-spec 7.4.
"""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from harbourmaster.api.resources import (
    APPLICATIONS,
    CLOUDS,
    CLUSTERS,
    GLOBAL_METRICS,
    GLOBAL_PROVIDERS,
    MAGNUM_CLUSTERS,
    PROJECTS,
)
from harbourmaster.kube.errors import ConflictError, InvalidError
from harbourmaster.kube.workqueue import WorkQueue, work
from harbourmaster.serving.background import running
from helpers.patience import PATIENCE
from helpers.placement_environment import NAMESPACE, PlacementEnv, weights

HOUR = 3600


def two_berths(**settings):
    """Return an environment of two clusters, of which ``two`` has the better score."""
    env = PlacementEnv(**settings)
    env.static(green=0.2, coal=0.9)
    env.add_cluster("one", metrics=weights(green=1))
    env.add_cluster("two", metrics=weights(coal=1))
    return env


async def test_it_is_placed_by_one_write_of_everything_at_one_instant():
    env = two_berths()
    env.add_application()
    wait = await env.reconcile()
    assert wait == 60
    (name, value, subresource) = env.writes[0]
    assert (name, subresource, len(env.writes)) == ("app", "status", 1)
    status = value["status"]
    assert status["scheduledTo"] == {
        "kind": None,
        "namespace": None,
        "name": "two",
        "uid": "uid-two",
    }
    assert status["scheduledTime"] == "2026-03-01T12:00:00Z"
    assert status["nextRescheduleTime"] == "2026-03-01T12:01:00Z"
    assert status["scheduledGeneration"] == 1
    assert status["phase"] == "Pending"
    # A decision before this one leaves nothing behind.
    assert status["lastDecision"]["wouldChange"] is not None
    assert "runnerUp" in status["lastDecision"]
    assert env.events.sent == [
        (NAMESPACE, "app", "Normal", "Scheduled", "to 'two': 'two' has the best score, 0.9")
    ]


async def test_nothing_of_an_older_decision_is_left():
    env = two_berths(on_unreachable="Move", offline_after_seconds=0)
    env.add_application(on="one")
    await env.reconcile()
    assert env.status()["lastDecision"]["runnerUp"]["cluster"] == "one"
    env.add_cluster("two", status={"state": "Offline"}, metrics=weights(coal=1))
    await env.reconcile()
    assert env.on() == "one"
    assert "runnerUp" not in env.status()["lastDecision"]


async def test_the_hold_off_has_a_fixed_end_that_no_event_puts_off():
    env = two_berths()
    env.add_application(on="one", since=10)
    assert await env.reconcile() == 50
    for passed, left in ((20, 30), (49, 1)):
        env.time = passed
        env.change(APPLICATIONS, "app")
        # A change is handed over, and starts no new time.
        assert await env.reconcile() == left
        assert env.on() == "one"
        assert env.status()["scheduledGeneration"] == env.fetch()["metadata"]["generation"]
    env.time = 50
    assert await env.reconcile() == 60
    assert env.on() == "two"
    assert len(env.status()["recentMoves"]) == 1
    assert [reason for *_, reason, _ in env.events.sent] == ["Rescheduled"]
    name, labels = "harbourmaster_placement_moves_total", {"reason": "BetterScore"}
    assert env.metrics.registry.get_sample_value(name, labels) == 1


async def test_one_that_waits_for_a_person_gets_a_condition_once_and_is_placed_when_confirmed():
    env = two_berths()
    env.controller._runtime.placement_since = "2026-03-01T12:00:00Z"
    old = {"creationTimestamp": "2026-03-01T11:59:59Z"}
    env.put(APPLICATIONS, "app", **old)
    assert await env.reconcile() is None
    ((_, value, _),) = env.writes
    assert list(value["status"]) == ["conditions"]
    text = (
        "it would be placed on 'two': to have it placed, run "
        f"harbourmaster placement confirm app -n {NAMESPACE}"
    )
    assert (env.condition()["reason"], env.condition()["message"]) == ("NotConfirmed", text)
    assert [event[-2:] for event in env.events.sent] == [("NotConfirmed", text)]
    # Other values that lead to the same are no news.
    env.static(green=0.3, coal=0.8)
    assert await env.reconcile() is None
    assert len(env.writes) == 1
    confirmed = {"placement.harbourmaster.dev/confirmed": "true"}
    env.put(APPLICATIONS, "app", status=env.status(), annotations=confirmed, **old)
    assert await env.reconcile() == 60
    assert env.on() == "two"


async def test_those_that_wait_take_nobody_s_place():
    env = two_berths(moves_per_target=1)
    env.put(
        APPLICATIONS,
        "imported",
        annotations={
            "placement.harbourmaster.dev/confirmed": "false",
            "placement.harbourmaster.dev/current-cluster": "one",
        },
    )
    assert await env.reconcile("imported") is None
    env.add_application(on="one")
    await env.reconcile()
    assert env.on() == "two"


async def test_a_pass_that_changes_nothing_writes_nothing():
    env = two_berths()
    env.add_application(on="two")
    for passed in range(0, 600, 60):
        env.time = passed
        assert await env.reconcile() == 60
    assert env.writes == []


async def test_tries_come_at_fixed_times_and_end():
    env = PlacementEnv()
    env.add_application(backoff={"delaySeconds": 10, "factor": 3, "limit": 2}, labels=["a is b"])
    times = []
    while (wait := await env.reconcile()) is not None:
        times.append((env.time, env.status().get("retriesLeft"), wait))
        # A look between two tries is none.
        env.time += wait / 2
        writes = len(env.writes)
        assert await env.reconcile() == pytest.approx(wait / 2)
        assert len(env.writes) == writes
        env.time += wait / 2
    assert times == [(0, 1, 30), (30, 0, 30)]
    assert env.status()["phase"] == "Failed"
    assert "nextRetryTime" not in env.status()
    env.add_cluster("one")
    env.time += HOUR
    writes = len(env.writes)
    assert await env.reconcile() is None
    assert len(env.writes) == writes
    # What it lacked has come.
    env.add_cluster("one", labels={"a": "b"})
    assert await env.reconcile() == 60
    assert env.on() == "one"
    assert env.status()["phase"] == "Pending"
    reasons = [reason for *_, reason, _ in env.events.sent]
    assert reasons == ["NoSuitableTarget", "Scheduled"]


async def test_endless_tries_in_vain_are_not_written_each():
    env = PlacementEnv()
    env.add_application(labels=["a is b"])
    looks = 0
    while env.time < 30:
        wait = await env.reconcile()
        assert 0 < wait <= 2
        env.time += wait
        looks += 1
    assert looks >= 28
    # A write now and then shows that decisions are attempted.
    assert 3 <= len(env.writes) <= 4
    # What is new is written at once.
    env.add_cluster("one")
    await env.reconcile()
    assert "no suitable cluster among 1" in env.condition()["message"]


async def test_another_leader_goes_on_by_what_is_stored():
    env = two_berths()
    env.add_application(on="one", since=10)
    env.add_application("late", backoff={"delaySeconds": 40, "limit": 3}, labels=["a is b"])
    assert await env.reconcile() == 50
    assert await env.reconcile("late") == 40
    writes = len(env.writes)
    env.begin()
    env.time = 15
    assert await env.reconcile() == 35
    assert await env.reconcile("late") == 25
    assert len(env.writes) == writes


async def test_one_that_cannot_be_written_or_read_harms_no_other():
    env = two_berths()
    names = [f"app-{number}" for number in range(100)]
    for name in names:
        env.add_application(name)
    env.add_application("poison", labels=["location is"])
    env.add_application("cursed")
    env.faults["cursed"] = InvalidError("status is refused", status=422)
    queue = WorkQueue("scheduler")
    scheduler = env.schedulers[APPLICATIONS]
    for key in scheduler.map_changes(None):
        queue.add(key)
    errors = []
    working = work(
        queue, scheduler.reconcile, workers=4, on_error=lambda key, _error: errors.append(key)
    )
    async with running(working):
        async with asyncio.timeout(PATIENCE):
            while not all(env.on(name) for name in names):  # noqa: ASYNC110 - no event of ours
                await asyncio.sleep(0)
        await asyncio.sleep(0.01)
    assert set(errors) == {f"{NAMESPACE}/cursed"}
    assert env.condition(name="poison")["reason"] == "InvalidConstraint"
    assert env.status("poison")["phase"] == "Degraded"
    told = [(name, reason) for _, name, _, reason, _ in env.events.sent]
    assert ("poison", "InvalidConstraint") in told


async def test_nothing_is_decided_on_what_our_own_write_replaced():
    env = two_berths()
    env.add_application()
    env.is_late = True
    assert await env.reconcile() == 60
    assert await env.reconcile() is None
    assert len(env.writes) == 1
    env.catch_up()
    assert await env.reconcile() == 60
    assert len(env.writes) == 1


async def test_a_write_that_comes_too_late_is_decided_again_and_counts_once():
    env = two_berths(moves_per_target=1)
    env.add_application(on="one")
    env.is_late = True
    # The deployer was faster.
    env.change(APPLICATIONS, "app")
    with pytest.raises(ConflictError):
        await env.reconcile()
    env.catch_up()
    await env.reconcile()
    assert env.on() == "two"


async def test_not_all_run_to_the_best_at_once():
    env = two_berths(moves_per_target=2, sample_interval_seconds=15)
    names = [f"app-{number}" for number in range(5)]
    for name in names:
        env.add_application(name, on="one")

    async def move_all():
        for name in names:
            await env.reconcile(name)
        return sum(env.on(name) == "two" for name in names)

    assert await move_all() == 2
    # Another look is no other pass, whatever has changed meanwhile.
    env.add_cluster("three")
    env.time = 14
    assert await move_all() == 2
    env.time = 15
    assert await move_all() == 4
    env.time = 30
    assert await move_all() == 5


async def test_those_that_must_leave_go_a_few_in_each_pass_and_that_is_announced():
    env = two_berths(forced_moves_per_cluster=2, sample_interval_seconds=15)
    names = [f"app-{number}" for number in range(5)]
    for name in names:
        env.add_application(name, on="two")
    env.add_cluster("two", metrics=weights(coal=1), unschedulable=True)

    async def waits():
        return [await env.reconcile(name) for name in names]

    assert (await waits())[2:] == [15, 15, 15]
    assert [env.on(name) for name in names] == ["one"] * 2 + ["two"] * 3
    condition = env.condition(name="app-2")
    assert (condition["status"], condition["reason"]) == ("False", "MoveLimited")
    assert condition["message"].endswith("but this pass allows no more moves from there")
    assert env.status("app-2")["phase"] == "Running"
    env.time = 14
    writes = len(env.writes)
    assert (await waits())[2:] == [1, 1, 1]
    assert len(env.writes) == writes
    env.time = 15
    await waits()
    env.time = 30
    await waits()
    assert {env.on(name) for name in names} == {"one"}
    assert env.condition(name="app-2")["status"] == "True"
    told = [event[1:] for event in env.events.sent if event[3] == "MovingAway"]
    # The first application has gone when it is announced: the watch was quick here.
    text = (
        "of 4 applications that are placed here, those that must leave move, 2 in 15 seconds: "
        "'two' is excluded (it is marked as unschedulable); 'one' is the only suitable one"
    )
    assert told[0] == ("two", "Warning", "MovingAway", text)
    assert len(told) == 3
    assert not [event for event in env.events.sent if event[3] == "MoveLimited"]


async def test_a_new_leader_lets_a_silent_cluster_answer_before_it_is_left():
    env = two_berths(on_unreachable="Move", offline_after_seconds=45, reschedule_after=HOUR)
    env.add_application(on="one")
    since = {"type": "Reachable", "status": "False", "reason": "NoAnswer"}
    since["lastTransitionTime"] = "2026-03-01T10:00:00Z"
    status = {"state": "Offline", "conditions": [since]}
    env.add_cluster("one", status=status, metrics=weights(green=1))
    env.controller._scheduler._start(None)
    assert await env.reconcile() == 45
    assert env.on() == "one"
    env.time = 45
    await env.reconcile()
    assert env.on() == "two"


async def test_one_that_never_gets_ready_is_moved_and_told_where_it_failed():
    env = two_berths(failed_after_seconds=20)
    env.add_application()
    await env.reconcile()
    assert env.on() == "two"
    assert env.status()["awaitsReady"]
    conditions = [
        *env.status()["conditions"],
        {"type": "Deployed", "status": "True", "reason": "Applied", "observedGeneration": 1},
        {"type": "Ready", "status": "False", "reason": "ObjectsNotReady", "message": "full"},
    ]
    env.objects[APPLICATIONS, "app"]["status"]["conditions"] = conditions
    env.catch_up()
    assert await env.reconcile() == 20
    env.time = 20
    await env.reconcile()
    assert env.on() == "one"
    (failed,) = env.status()["failedClusters"]
    assert (failed["name"], failed["reason"]) == ("two", "not ready after 20 seconds: full")
    assert [reason for *_, reason, _ in env.events.sent] == [
        "Scheduled",
        "Rescheduled",
        "MovingAway",
    ]


async def test_what_is_deleted_is_left_alone():
    env = two_berths()
    env.add_application()
    application = env.fetch()
    application["metadata"]["deletionTimestamp"] = "2026-03-01T12:00:00Z"
    env.catch_up()
    assert await env.reconcile() is None
    env.remove(APPLICATIONS, "app")
    assert await env.reconcile() is None
    assert env.writes == []


async def test_one_that_goes_while_it_is_written_is_no_fault():
    env = two_berths()
    env.add_application()
    del env.objects[APPLICATIONS, "app"]
    assert await env.reconcile() is None


async def test_a_cluster_without_a_cloud_is_tried_without_end_though_not_each_is_written():
    env = PlacementEnv()
    env.put(CLUSTERS, "wanted")
    for moment in (0, 2, 4, 6):
        env.time = moment
        assert 0 < await env.reconcile("wanted", CLUSTERS) <= 2
    assert len(env.writes) == 1
    env.put(CLOUDS, "near")
    env.time = 8
    await env.reconcile("wanted", CLUSTERS)
    assert env.status("wanted", CLUSTERS)["scheduledTo"]["name"] == "near"


async def test_a_magnum_cluster_gets_labels_and_metrics_first_and_its_project_then():
    env = PlacementEnv()
    env.static(cost=0.5)
    project = {"template": "small", "metrics": weights(cost=1)}
    env.put(PROJECTS, "yard", project, labels={"a": "theirs", "b": "x"})
    env.put(MAGNUM_CLUSTERS, "crane", {"masterCount": 1}, labels={"a": "own"})
    await env.reconcile("crane", MAGNUM_CLUSTERS)
    assert [subresource for *_, subresource in env.writes] == [None, "status"]
    magnum_cluster = env.fetch("crane", MAGNUM_CLUSTERS)
    assert magnum_cluster["metadata"]["labels"] == {"a": "own", "b": "x"}
    assert magnum_cluster["spec"]["metrics"][0]["name"] == "cost"
    assert magnum_cluster["status"]["template"] == "small"
    assert magnum_cluster["status"]["project"]["name"] == "yard"
    await env.reconcile("crane", MAGNUM_CLUSTERS)
    assert len(env.writes) == 2


async def test_a_cluster_tells_of_its_metrics_and_not_too_often():
    env = two_berths()
    assert await env.reconcile("one", CLUSTERS) == 60
    assert env.condition("MetricsAvailable", "one", CLUSTERS)["status"] == "True"
    assert env.status("one", CLUSTERS)["metrics"][0]["value"] == 0.2
    env.time = 30
    env.change(GLOBAL_PROVIDERS, "static", static={"metrics": {"green": 0.3}})
    await env.reconcile("one", CLUSTERS)
    assert len(env.writes) == 1
    env.time = 61
    await env.reconcile("one", CLUSTERS)
    assert env.status("one", CLUSTERS)["metrics"][0]["value"] == 0.3
    # That there is none is told at once.
    env.remove(GLOBAL_METRICS, "green")
    await env.reconcile("one", CLUSTERS)
    assert env.condition("MetricsAvailable", "one", CLUSTERS)["reason"] == "UnknownMetric"
    assert env.status("one", CLUSTERS)["metrics"][0]["reason"] == "UnknownMetric"
    assert env.status("one", CLUSTERS)["state"] == "Online"
    env.change(CLUSTERS, "one", metrics=[])
    await env.reconcile("one", CLUSTERS)
    assert env.condition("MetricsAvailable", "one", CLUSTERS)["reason"] == "NoMetrics"
    assert "metrics" not in env.status("one", CLUSTERS)


async def test_a_cluster_without_metrics_has_nothing_to_tell():
    env = PlacementEnv()
    env.add_cluster("one")
    assert await env.reconcile("one", CLUSTERS) is None
    assert env.writes == []


async def test_decisions_are_counted_by_their_outcome():
    env = two_berths()
    env.add_application()
    await env.reconcile()
    labels = {"kind": "Application", "outcome": "Placed"}
    name = "harbourmaster_placement_decisions_total"
    assert env.metrics.registry.get_sample_value(name, labels) == 1


def test_settings_refuse_what_is_unknown():
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"rescheduleAfter": 60, "sticky": 1}, type(PlacementEnv().settings))
