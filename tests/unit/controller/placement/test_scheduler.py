"""When applications are decided about, and what is written of it, on a clock of the test's own."""

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
from helpers.staging import NAMESPACE, Stage, weights

HOUR = 3600


def two_berths(**settings):
    """One and two, of which two is better for who is on one."""
    stage = Stage(**settings)
    stage.static(green=0.2, coal=0.9)
    stage.berth("one", metrics=weights(green=1))
    stage.berth("two", metrics=weights(coal=1))
    return stage


async def test_it_is_placed_by_one_write_of_everything_at_one_instant():
    stage = two_berths()
    stage.ship()
    wait = await stage.look()
    assert wait == 60
    (name, value, subresource) = stage.writes[0]
    assert (name, subresource, len(stage.writes)) == ("app", "status", 1)
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
    assert stage.events.sent == [
        (
            NAMESPACE,
            "app",
            "Normal",
            "Scheduled",
            "to 'two': 'two' has the best score, 0.9",
        )
    ]


async def test_nothing_of_an_older_decision_is_left():
    stage = two_berths(on_unreachable="Move", offline_after_seconds=0)
    stage.ship(on="one")
    await stage.look()
    assert stage.status()["lastDecision"]["runnerUp"]["cluster"] == "one"
    stage.berth("two", status={"state": "Offline"}, metrics=weights(coal=1))
    await stage.look()
    assert stage.on() == "one"
    assert "runnerUp" not in stage.status()["lastDecision"]


async def test_the_hold_off_has_a_fixed_end_that_no_event_puts_off():
    stage = two_berths()
    stage.ship(on="one", since=10)
    assert await stage.look() == 50
    for passed, left in ((20, 30), (49, 1)):
        stage.time = passed
        stage.change(APPLICATIONS, "app")
        # A change is handed over, and starts no new time.
        assert await stage.look() == left
        assert stage.on() == "one"
        assert stage.status()["scheduledGeneration"] == stage.stored()["metadata"]["generation"]
    stage.time = 50
    assert await stage.look() == 60
    assert stage.on() == "two"
    assert len(stage.status()["recentMoves"]) == 1
    assert [reason for *_, reason, _ in stage.events.sent] == ["Rescheduled"]
    name, labels = "harbourmaster_placement_moves_total", {"reason": "BetterScore"}
    assert stage.metrics.registry.get_sample_value(name, labels) == 1


async def test_one_that_waits_for_a_person_gets_a_condition_once_and_is_placed_when_confirmed():
    stage = two_berths()
    stage.controller._runtime.placement_since = "2026-03-01T12:00:00Z"
    old = {"creationTimestamp": "2026-03-01T11:59:59Z"}
    stage.put(APPLICATIONS, "app", **old)
    assert await stage.look() is None
    ((_, value, _),) = stage.writes
    assert list(value["status"]) == ["conditions"]
    text = (
        "it would be placed on 'two': to have it placed, run "
        f"harbourmaster placement confirm app -n {NAMESPACE}"
    )
    assert (stage.condition()["reason"], stage.condition()["message"]) == ("NotConfirmed", text)
    assert [each[-2:] for each in stage.events.sent] == [("NotConfirmed", text)]
    # Other values that lead to the same are no news.
    stage.static(green=0.3, coal=0.8)
    assert await stage.look() is None
    assert len(stage.writes) == 1
    confirmed = {"placement.harbourmaster.dev/confirmed": "true"}
    stage.put(APPLICATIONS, "app", status=stage.status(), annotations=confirmed, **old)
    assert await stage.look() == 60
    assert stage.on() == "two"


async def test_those_that_wait_take_nobody_s_place():
    stage = two_berths(moves_per_target=1)
    stage.put(
        APPLICATIONS,
        "imported",
        annotations={
            "placement.harbourmaster.dev/confirmed": "false",
            "placement.harbourmaster.dev/current-cluster": "one",
        },
    )
    assert await stage.look("imported") is None
    stage.ship(on="one")
    await stage.look()
    assert stage.on() == "two"


async def test_a_pass_that_changes_nothing_writes_nothing():
    stage = two_berths()
    stage.ship(on="two")
    for passed in range(0, 600, 60):
        stage.time = passed
        assert await stage.look() == 60
    assert stage.writes == []


async def test_without_migration_there_are_no_periods_but_updates():
    stage = two_berths()
    stage.ship(on="one", migration=False)
    assert await stage.look() is None
    stage.change(APPLICATIONS, "app")
    assert await stage.look() is None
    assert stage.status()["scheduledGeneration"] == 2
    assert stage.on() == "one"


async def test_who_must_leave_is_held_by_nothing():
    limits = {"moves_per_target": 1, "moves_per_application": 1, "offline_after_seconds": 0}
    stage = two_berths(reschedule_after=HOUR, on_unreachable="Move", **limits)
    for name in ("a", "b", "c"):
        stage.ship(name, on="one", since=1)
    stage.berth("one", status={"state": "Offline"}, metrics=weights(green=1))
    for name in ("a", "b", "c"):
        await stage.look(name)
        assert stage.on(name) == "two"
        assert "recentMoves" not in stage.status(name)


async def test_tries_come_at_fixed_times_and_end():
    stage = Stage()
    stage.ship(backoff={"delaySeconds": 10, "factor": 3, "limit": 2}, labels=["a is b"])
    times = []
    while (wait := await stage.look()) is not None:
        times.append((stage.time, stage.status().get("retriesLeft"), wait))
        # A look between two tries is none.
        stage.time += wait / 2
        writes = len(stage.writes)
        assert await stage.look() == pytest.approx(wait / 2)
        assert len(stage.writes) == writes
        stage.time += wait / 2
    assert times == [(0, 1, 30), (30, 0, 30)]
    assert stage.status()["phase"] == "Failed"
    assert "nextRetryTime" not in stage.status()
    stage.berth("one")
    stage.time += HOUR
    writes = len(stage.writes)
    assert await stage.look() is None
    assert len(stage.writes) == writes
    # What it lacked has come.
    stage.berth("one", labels={"a": "b"})
    assert await stage.look() == 60
    assert stage.on() == "one"
    assert stage.status()["phase"] == "Pending"
    reasons = [reason for *_, reason, _ in stage.events.sent]
    assert reasons == ["NoSuitableTarget", "Scheduled"]


async def test_endless_tries_in_vain_are_not_written_each():
    stage = Stage()
    stage.ship(labels=["a is b"])
    looks = 0
    while stage.time < 30:
        wait = await stage.look()
        assert 0 < wait <= 2
        stage.time += wait
        looks += 1
    assert looks >= 28
    # Now and then it shows that somebody tries.
    assert 3 <= len(stage.writes) <= 4
    # What is new is written at once.
    stage.berth("one")
    await stage.look()
    assert "no suitable cluster among 1" in stage.condition()["message"]


async def test_another_leader_goes_on_by_what_is_stored():
    stage = two_berths()
    stage.ship(on="one", since=10)
    stage.ship("late", backoff={"delaySeconds": 40, "limit": 3}, labels=["a is b"])
    assert await stage.look() == 50
    assert await stage.look("late") == 40
    writes = len(stage.writes)
    stage.begin()
    stage.time = 15
    assert await stage.look() == 35
    assert await stage.look("late") == 25
    assert len(stage.writes) == writes


async def test_one_that_cannot_be_written_or_read_harms_no_other():
    stage = two_berths()
    names = [f"app-{number}" for number in range(100)]
    for name in names:
        stage.ship(name)
    stage.ship("poison", labels=["location is"])
    stage.ship("cursed")
    stage.faults["cursed"] = InvalidError("status is refused", status=422)
    queue = WorkQueue("scheduler")
    scheduler = stage.schedulers[APPLICATIONS]
    for key in scheduler.map_changes(None):
        queue.add(key)
    errors = []
    working = work(
        queue, scheduler.reconcile, workers=4, on_error=lambda key, _error: errors.append(key)
    )
    async with running(working):
        async with asyncio.timeout(PATIENCE):
            while not all(stage.on(name) for name in names):  # noqa: ASYNC110 - no event of ours
                await asyncio.sleep(0)
        await asyncio.sleep(0.01)
    assert set(errors) == {f"{NAMESPACE}/cursed"}
    assert stage.condition(name="poison")["reason"] == "InvalidConstraint"
    assert stage.status("poison")["phase"] == "Degraded"
    told = [(name, reason) for _, name, _, reason, _ in stage.events.sent]
    assert ("poison", "InvalidConstraint") in told


async def test_what_is_refused_is_tried_again_only_after_a_change():
    stage = two_berths()
    stage.ship(labels=["location is"])
    assert await stage.look() is None
    stage.time = HOUR
    assert await stage.look() is None
    assert len(stage.writes) == 1
    stage.change(APPLICATIONS, "app", constraints={"cluster": {"labels": None}})
    assert await stage.look() == 60
    assert stage.on() == "two"


async def test_nothing_is_decided_on_what_our_own_write_replaced():
    stage = two_berths()
    stage.ship()
    stage.is_late = True
    assert await stage.look() == 60
    assert await stage.look() is None
    assert len(stage.writes) == 1
    stage.catch_up()
    assert await stage.look() == 60
    assert len(stage.writes) == 1


async def test_a_write_that_comes_too_late_is_decided_again_and_counts_once():
    stage = two_berths(moves_per_target=1)
    stage.ship(on="one")
    stage.is_late = True
    # The deployer was faster.
    stage.change(APPLICATIONS, "app")
    with pytest.raises(ConflictError):
        await stage.look()
    stage.catch_up()
    await stage.look()
    assert stage.on() == "two"


async def test_not_all_run_to_the_best_at_once():
    stage = two_berths(moves_per_target=2, sample_interval_seconds=15)
    names = [f"app-{number}" for number in range(5)]
    for name in names:
        stage.ship(name, on="one")

    async def moved():
        for name in names:
            await stage.look(name)
        return sum(stage.on(name) == "two" for name in names)

    assert await moved() == 2
    # Another look is no other pass, whatever has changed meanwhile.
    stage.berth("three")
    stage.time = 14
    assert await moved() == 2
    stage.time = 15
    assert await moved() == 4
    stage.time = 30
    assert await moved() == 5


async def test_those_that_must_leave_go_a_few_in_each_pass_and_that_is_announced():
    stage = two_berths(forced_moves_per_cluster=2, sample_interval_seconds=15)
    names = [f"app-{number}" for number in range(5)]
    for name in names:
        stage.ship(name, on="two")
    stage.berth("two", metrics=weights(coal=1), unschedulable=True)

    async def waits():
        return [await stage.look(name) for name in names]

    assert (await waits())[2:] == [15, 15, 15]
    assert [stage.on(name) for name in names] == ["one"] * 2 + ["two"] * 3
    found = stage.condition(name="app-2")
    assert (found["status"], found["reason"]) == ("False", "MoveLimited")
    assert found["message"].endswith("but this pass allows no more moves from there")
    assert stage.status("app-2")["phase"] == "Running"
    stage.time = 14
    writes = len(stage.writes)
    assert (await waits())[2:] == [1, 1, 1]
    assert len(stage.writes) == writes
    stage.time = 15
    await waits()
    stage.time = 30
    await waits()
    assert {stage.on(name) for name in names} == {"one"}
    assert stage.condition(name="app-2")["status"] == "True"
    told = [each[1:] for each in stage.events.sent if each[3] == "MovingAway"]
    # The first application has gone when it is announced: the watch was quick here.
    text = (
        "of 4 applications that are placed here, those that must leave move, 2 in 15 seconds: "
        "'two' is excluded (it is marked as unschedulable); 'one' is the only suitable one"
    )
    assert told[0] == ("two", "Warning", "MovingAway", text)
    assert len(told) == 3
    assert not [each for each in stage.events.sent if each[3] == "MoveLimited"]


async def test_a_silent_cluster_is_left_in_time_though_nothing_changes():
    stage = two_berths(on_unreachable="Move", offline_after_seconds=45, reschedule_after=HOUR)
    stage.ship(on="one")
    since = {"type": "Reachable", "status": "False", "reason": "NoAnswer"}
    since["lastTransitionTime"] = "2026-03-01T12:00:00Z"
    status = {"state": "Offline", "conditions": [since]}
    stage.berth("one", status=status, metrics=weights(green=1))
    assert await stage.look() == 45
    stage.time = 44
    assert await stage.look() == 1
    assert stage.on() == "one"
    stage.time = 45
    await stage.look()
    assert stage.on() == "two"


async def test_a_new_leader_lets_a_silent_cluster_answer_before_it_is_left():
    stage = two_berths(on_unreachable="Move", offline_after_seconds=45, reschedule_after=HOUR)
    stage.ship(on="one")
    since = {"type": "Reachable", "status": "False", "reason": "NoAnswer"}
    since["lastTransitionTime"] = "2026-03-01T10:00:00Z"
    status = {"state": "Offline", "conditions": [since]}
    stage.berth("one", status=status, metrics=weights(green=1))
    stage.controller._scheduler._start(None)
    assert await stage.look() == 45
    assert stage.on() == "one"
    stage.time = 45
    await stage.look()
    assert stage.on() == "two"


async def test_one_that_never_gets_ready_is_moved_and_told_where_it_failed():
    stage = two_berths(failed_after_seconds=20)
    stage.ship()
    await stage.look()
    assert stage.on() == "two"
    assert stage.status()["awaitsReady"]
    conditions = [
        *stage.status()["conditions"],
        {"type": "Deployed", "status": "True", "reason": "Applied", "observedGeneration": 1},
        {"type": "Ready", "status": "False", "reason": "ObjectsNotReady", "message": "full"},
    ]
    stage.objects[APPLICATIONS, "app"]["status"]["conditions"] = conditions
    stage.catch_up()
    assert await stage.look() == 20
    stage.time = 20
    await stage.look()
    assert stage.on() == "one"
    (failed,) = stage.status()["failedClusters"]
    assert (failed["name"], failed["reason"]) == ("two", "not ready after 20 seconds: full")
    assert [reason for *_, reason, _ in stage.events.sent] == [
        "Scheduled",
        "Rescheduled",
        "MovingAway",
    ]


async def test_one_moves_so_often_in_an_hour_and_no_more():
    stage = two_berths(reschedule_after=60, moves_per_application=3)
    stage.ship(on="one")
    better = ("one", "two")
    moves = 0
    for passed in range(0, 1800, 60):
        stage.time = passed
        there = stage.on()
        values = {"green": 0.9, "coal": 0.2} if there == "two" else {"green": 0.2, "coal": 0.9}
        stage.change(GLOBAL_PROVIDERS, "static", static={"metrics": values})
        await stage.look()
        assert stage.on() in better
        moves += stage.on() != there
    assert moves == 3
    # The first two are an hour ago.
    there = stage.on()
    stage.time = 60 * 61
    await stage.look()
    assert stage.on() != there
    assert len(stage.status()["recentMoves"]) == 2


async def test_what_is_deleted_is_left_alone():
    stage = two_berths()
    stage.ship()
    found = stage.stored()
    found["metadata"]["deletionTimestamp"] = "2026-03-01T12:00:00Z"
    stage.catch_up()
    assert await stage.look() is None
    stage.remove(APPLICATIONS, "app")
    assert await stage.look() is None
    assert stage.writes == []


async def test_one_that_goes_while_it_is_written_is_no_fault():
    stage = two_berths()
    stage.ship()
    del stage.objects[APPLICATIONS, "app"]
    assert await stage.look() is None


async def test_a_cluster_that_is_to_be_made_finds_a_cloud_by_tries_and_keeps_it():
    stage = Stage()
    spec = {"backoff": {"delaySeconds": 20}, "constraints": {"cloud": {"labels": ["a is b"]}}}
    stage.put(CLUSTERS, "wanted", spec)
    assert await stage.look("wanted", CLUSTERS) == 20
    assert stage.status("wanted", CLUSTERS)["state"] == "Degraded"
    stage.put(CLOUDS, "near", labels={"a": "b"})
    stage.time = 10
    assert await stage.look("wanted", CLUSTERS) == 10
    stage.time = 20
    assert await stage.look("wanted", CLUSTERS) is None
    status = stage.status("wanted", CLUSTERS)
    assert (status["scheduledTo"]["kind"], status["scheduledTo"]["name"]) == ("Cloud", "near")
    assert "nextRetryTime" not in status
    stage.remove(CLOUDS, "near")
    writes = len(stage.writes)
    assert await stage.look("wanted", CLUSTERS) is None
    assert len(stage.writes) == writes


async def test_a_cluster_without_a_cloud_is_tried_without_end_though_not_each_is_written():
    stage = Stage()
    stage.put(CLUSTERS, "wanted")
    for moment in (0, 2, 4, 6):
        stage.time = moment
        assert 0 < await stage.look("wanted", CLUSTERS) <= 2
    assert len(stage.writes) == 1
    stage.put(CLOUDS, "near")
    stage.time = 8
    await stage.look("wanted", CLUSTERS)
    assert stage.status("wanted", CLUSTERS)["scheduledTo"]["name"] == "near"


async def test_a_magnum_cluster_gets_labels_and_metrics_first_and_its_project_then():
    stage = Stage()
    stage.static(cost=0.5)
    project = {"template": "small", "metrics": weights(cost=1)}
    stage.put(PROJECTS, "yard", project, labels={"a": "theirs", "b": "x"})
    stage.put(MAGNUM_CLUSTERS, "crane", {"masterCount": 1}, labels={"a": "own"})
    await stage.look("crane", MAGNUM_CLUSTERS)
    assert [subresource for *_, subresource in stage.writes] == [None, "status"]
    found = stage.stored("crane", MAGNUM_CLUSTERS)
    assert found["metadata"]["labels"] == {"a": "own", "b": "x"}
    assert found["spec"]["metrics"][0]["name"] == "cost"
    assert found["status"]["template"] == "small"
    assert found["status"]["project"]["name"] == "yard"
    await stage.look("crane", MAGNUM_CLUSTERS)
    assert len(stage.writes) == 2


async def test_a_cluster_tells_of_its_metrics_and_not_too_often():
    stage = two_berths()
    assert await stage.look("one", CLUSTERS) == 60
    assert stage.condition("MetricsAvailable", "one", CLUSTERS)["status"] == "True"
    assert stage.status("one", CLUSTERS)["metrics"][0]["value"] == 0.2
    stage.time = 30
    stage.change(GLOBAL_PROVIDERS, "static", static={"metrics": {"green": 0.3}})
    await stage.look("one", CLUSTERS)
    assert len(stage.writes) == 1
    stage.time = 61
    await stage.look("one", CLUSTERS)
    assert stage.status("one", CLUSTERS)["metrics"][0]["value"] == 0.3
    # That there is none is told at once.
    stage.remove(GLOBAL_METRICS, "green")
    await stage.look("one", CLUSTERS)
    assert stage.condition("MetricsAvailable", "one", CLUSTERS)["reason"] == "UnknownMetric"
    assert stage.status("one", CLUSTERS)["metrics"][0]["reason"] == "UnknownMetric"
    assert stage.status("one", CLUSTERS)["state"] == "Online"
    stage.change(CLUSTERS, "one", metrics=[])
    await stage.look("one", CLUSTERS)
    assert stage.condition("MetricsAvailable", "one", CLUSTERS)["reason"] == "NoMetrics"
    assert "metrics" not in stage.status("one", CLUSTERS)


async def test_a_cluster_without_metrics_has_nothing_to_tell():
    stage = Stage()
    stage.berth("one")
    assert await stage.look("one", CLUSTERS) is None
    assert stage.writes == []


async def test_decisions_are_counted_by_their_outcome():
    stage = two_berths()
    stage.ship()
    await stage.look()
    labels = {"kind": "Application", "outcome": "Placed"}
    name = "harbourmaster_placement_decisions_total"
    assert stage.metrics.registry.get_sample_value(name, labels) == 1


def test_settings_refuse_what_is_unknown():
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"rescheduleAfter": 60, "sticky": 1}, type(Stage().settings))
