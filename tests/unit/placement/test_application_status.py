"""The cases of krake-spec 8 about hand-over, periods and retries (krake-spec 3.1, 3.6)."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from harbourmaster.api.times import parse_rfc3339
from harbourmaster.placement.application_decisions import MoveLimits, decide
from harbourmaster.placement.application_status import next_time, settle
from harbourmaster.placement.decision import record
from harbourmaster.placement.model import DecisionRecord, TargetReference, condition
from harbourmaster.placement.rules import Rules
from helpers.placing import NOW, ago, application, cluster, start_pass

AB = (cluster("a", {"m": 1}), cluster("b", {"n": 1}))
BETTER = {"m": 0.1, "n": 0.9}
RULES = Rules()


def status_after(app, *clusters, now=NOW, rules=None, **values):
    view = start_pass(*clusters, now=now, rules=rules, **values)
    return settle(app, decide(app, view), view.rules, lambda decision: record(decision, view))


def after(app, *clusters, now=NOW, rules=None, **values):
    """Return the application with its next status."""
    status = status_after(app, *clusters, now=now, rules=rules, **values)
    return msgspec.structs.replace(app, status=status)


def update_spec(app, **spec):
    """Return the application after a change of its spec by its user."""
    metadata = msgspec.structs.replace(app.metadata, generation=app.metadata.generation + 1)
    return msgspec.structs.replace(
        app, metadata=metadata, spec=msgspec.structs.replace(app.spec, **spec)
    )


def is_handed_over(app):
    """Whether the deployer may act on this generation (krake-spec 7.3)."""
    status = app.status
    return status.scheduled_to and status.scheduled_generation == app.metadata.generation


def scheduled_condition(app):
    return condition(app.status.conditions, "Scheduled")


def test_a_binding_says_all_at_one_instant():
    app = after(application(), cluster("a"))
    status = app.status
    assert status.scheduled_to == TargetReference(name="a", uid="uid-a")
    assert (status.scheduled_time, status.scheduled_generation) == (ago(0), 1)
    assert status.next_reschedule_time == ago(-60)
    assert status.phase == "Pending"
    assert status.recent_moves == ()
    assert (status.last_decision.outcome, status.last_decision.chosen) == ("Placed", "a")
    assert (scheduled_condition(app).status, scheduled_condition(app).observed_generation) == (
        "True",
        1,
    )
    assert scheduled_condition(app).message == "it is placed on 'a'"


def test_a_move_keeps_what_is_not_the_schedulers():
    before = application(
        on="a",
        status={
            "phase": "Running",
            "runningOn": {"name": "a"},
            "recentMoves": [ago(4000), ago(100)],
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    )
    app = after(before, *AB, **BETTER)
    assert app.status.scheduled_to.name == "b"
    assert app.status.running_on.name == "a"
    assert app.status.phase == "Running"
    assert app.status.recent_moves == (ago(100), ago(0))
    assert condition(app.status.conditions, "Ready").status == "True"


def test_a_move_that_must_be_is_not_counted():
    app = after(application(on="gone"), *AB, **BETTER)
    assert app.status.scheduled_to.name == "b"
    assert app.status.recent_moves == ()


def test_r6_a_new_generation_that_stays_is_handed_over_with_its_old_time():
    placed = after(application(), cluster("a"))
    changed = update_spec(placed)
    assert not is_handed_over(changed)
    later = NOW + timedelta(seconds=10)
    app = after(changed, cluster("a"), now=later)
    assert is_handed_over(app)
    assert app.status.scheduled_time == placed.status.scheduled_time
    assert app.status.last_decision.time == ago(-10)
    # One write is enough.
    assert status_after(app, cluster("a"), now=later) is app.status


def test_r7_a_periodic_pass_that_changes_nothing_writes_nothing():
    placed = after(application(), *AB, **BETTER)
    for seconds in (1, 61, 3600):
        now = NOW + timedelta(seconds=seconds)
        values = {"m": 0.1, "n": 0.9 - seconds / 36000}
        assert status_after(placed, *AB, now=now, **values) is placed.status


def test_r8_d1_the_generation_shows_the_hand_over():
    app = after(application(generation=7), cluster("a"))
    assert is_handed_over(app)
    assert not is_handed_over(update_spec(app))
    assert not is_handed_over(application(generation=7))


def test_r11_an_application_that_may_not_move_gets_its_changes():
    placed = after(application(migration=False), cluster("a"))
    app = after(update_spec(placed), cluster("a", status={"state": "Offline"}), cluster("b"))
    assert is_handed_over(app)
    assert app.status.scheduled_to.name == "a"


def test_r13_a_change_after_a_failed_move_is_handed_over():
    app = application(on="a", generation=2, status={"suspendedUntil": ago(-100)})
    assert is_handed_over(after(app, *AB, **BETTER))


def test_r5_without_a_place_it_stays_bound_and_is_degraded():
    before = application(on="a", labels=["x is y"], generation=2, status={"phase": "Running"})
    app = after(before, *AB, **BETTER)
    assert app.status.phase == "Degraded"
    assert app.status.scheduled_to == before.status.scheduled_to
    assert app.status.scheduled_generation == 1
    assert app.status.retries_left == -1
    assert (scheduled_condition(app).status, scheduled_condition(app).reason) == (
        "False",
        "NoSuitableTarget",
    )
    assert "label constraint 'x is y'" in scheduled_condition(app).message


@pytest.mark.parametrize(("limit", "tries"), [(0, 1), (1, 2), (2, 3), (-5, 1), (-1, None)], ids=str)
def test_r14_tries_until_it_has_failed(limit, tries):
    app, now = application(backoff={"limit": limit}), NOW
    for number in range(1, 6):
        app = after(app, now=now)
        assert (app.status.phase == "Failed") is (number == tries)
        if number == tries:
            assert app.status.next_retry_time == ""
            assert next_time(app, RULES, now) is None
            break
        now = parse_rfc3339(app.status.next_retry_time)
    else:
        assert tries is None


def test_r15_retries_come_at_equal_distances():
    app, now, times = application(backoff={"delaySeconds": 10, "factor": 3}), NOW, []
    for _ in range(3):
        app = after(app, now=now)
        now = next_time(app, RULES, now)
        times.append((now - NOW).total_seconds())
    assert times == [30, 60, 90]


def test_r15_nothing_is_tried_before_its_time():
    app = after(application(backoff={"delaySeconds": 10, "factor": 3}))
    early = NOW + timedelta(seconds=29)
    assert status_after(app, cluster("a"), now=early) is app.status
    assert after(app, cluster("a"), now=early + timedelta(seconds=1)).status.scheduled_to


@pytest.mark.parametrize(
    ("delay", "wait"), [(0, 1), (0.2, 1), (1e300, 86400), (float("inf"), 86400), (1.5, 2)]
)
def test_waits_are_whole_seconds_within_a_day(delay, wait):
    app = after(application(backoff={"delaySeconds": delay, "factor": 1}))
    assert app.status.next_retry_time == ago(-wait)


@pytest.mark.parametrize("change", [update_spec, lambda app: app], ids=["a change", "a cluster"])
def test_r16_a_failure_lasts_until_something_suits(change):
    failed = after(application(backoff={"limit": 0}))
    assert status_after(failed, now=NOW + timedelta(days=1)) is failed.status
    assert next_time(failed, RULES, NOW) is None
    app = after(change(failed), cluster("a"))
    assert app.status.scheduled_to.name == "a"
    assert app.status.phase == "Pending"
    assert scheduled_condition(app).status == "True"


def test_a_new_generation_has_all_tries_again():
    once = after(application(backoff={"limit": 2}))
    assert once.status.retries_left == 1
    assert after(update_spec(once)).status.retries_left == 1


def test_r18_periods_follow_the_last_move_and_no_event():
    app = application(on="a", scheduled=130)
    assert next_time(app, RULES, NOW) == NOW + timedelta(seconds=50)
    later = NOW + timedelta(seconds=49)
    assert next_time(app, RULES, later) == NOW + timedelta(seconds=50)
    assert next_time(app, RULES, NOW + timedelta(seconds=50)) == NOW + timedelta(seconds=110)


def test_r9_an_application_that_may_not_move_has_no_period():
    assert next_time(application(on="a", migration=False), RULES, NOW) is None


def test_r13_the_period_goes_on_after_a_failed_move():
    app = application(on="a", status={"suspendedUntil": ago(-100)})
    assert next_time(app, RULES, NOW) == NOW + timedelta(seconds=100)


def test_r17_what_is_being_deleted_has_no_time():
    assert next_time(application(on="a", deletionTimestamp=ago(1)), RULES, NOW) is None


def test_r20_pods_that_crash_do_not_matter():
    app = application(on="a", status={"phase": "Degraded"})
    assert after(app, *AB, **BETTER).status.scheduled_to.name == "b"
    kept = after(application(on="b", status={"phase": "Degraded"}), *AB, **BETTER)
    assert kept.status.phase == "Degraded"


def test_an_invalid_constraint_is_written_once_and_waits_for_a_change():
    app = after(application(labels=["x IS y"]), cluster("a"))
    assert (scheduled_condition(app).status, scheduled_condition(app).reason) == (
        "False",
        "InvalidConstraint",
    )
    assert scheduled_condition(app).message.startswith(
        "spec.constraints.cluster.labels[0]: expected one of"
    )
    assert app.status.phase == "Degraded"
    assert next_time(app, RULES, NOW) is None
    assert status_after(app, cluster("a"), now=NOW + timedelta(hours=1)) is app.status
    good = update_spec(app, constraints=None)
    assert next_time(good, RULES, NOW) == NOW
    assert after(good, cluster("a")).status.scheduled_to.name == "a"


def test_a_place_after_a_failure_shows():
    lost = after(
        application(
            on="a",
            generation=2,
            labels=["x is y"],
            status={"runningOn": {"name": "a", "uid": "uid-a"}},
        ),
        cluster("a"),
    )
    assert lost.status.phase == "Degraded"
    now = parse_rfc3339(lost.status.next_retry_time)
    app = after(lost, cluster("a", labels={"x": "y"}), now=now)
    assert (app.status.phase, scheduled_condition(app).status) == ("Running", "True")
    assert app.status.next_retry_time == ""
    assert app.status.retries_left is None
    assert scheduled_condition(app).last_transition_time == lost.status.next_retry_time


def test_a_condition_keeps_the_time_of_its_change():
    once = after(application())
    twice = after(once, now=NOW + timedelta(seconds=5))
    assert scheduled_condition(twice).last_transition_time == ago(0)


def test_the_written_fields():
    status = msgspec.to_builtins(status_after(application(), cluster("a")))
    assert set(status) == {
        "phase",
        "scheduledGeneration",
        "scheduledTo",
        "scheduledTime",
        "nextRescheduleTime",
        "lastDecision",
        "conditions",
        "awaitsReady",
    }
    assert status["scheduledTo"] == {"name": "a", "uid": "uid-a"}
    assert msgspec.convert(status["lastDecision"], DecisionRecord)


def test_other_conditions_are_left_alone():
    once = after(application(status={"conditions": [{"type": "Ready", "status": "True"}]}))
    twice = after(once, now=NOW + timedelta(seconds=5))
    assert [condition.type for condition in twice.status.conditions] == ["Ready", "Scheduled"]


@pytest.mark.parametrize("status", [{}, {"runningOn": {"name": "b"}}])
def test_a_place_that_is_not_running_yet_is_pending(status):
    before = application(on="a", generation=2, labels=["x is y"], status=status)
    lost = after(before, cluster("a"))
    now = parse_rfc3339(lost.status.next_retry_time)
    returned = after(lost, cluster("a", labels={"x": "y"}), now=now)
    assert returned.status.phase == "Pending"


@pytest.mark.parametrize("scheduled", [0, -30])
def test_the_first_period_is_a_whole_one(scheduled):
    app = application(on="a", scheduled=scheduled)
    assert next_time(app, RULES, NOW) == NOW + timedelta(seconds=60)


def test_a_failed_application_that_must_wait_to_move_is_looked_at_again():
    view = start_pass(cluster("a", spec={"unschedulable": True}), cluster("b"))
    view.rules = Rules(forced_moves_total=1)
    move_limits = MoveLimits(view.rules, NOW + timedelta(seconds=15))
    apps = [application(name, on="a", status={"phase": "Failed"}) for name in ("one", "other")]
    first, second = (decide(app, view, move_limits) for app in apps)
    assert first.outcome == "Moved"
    status = settle(apps[1], second, view.rules, lambda made: record(made, view))
    waits = msgspec.structs.replace(apps[1], status=status)
    assert (status.phase, scheduled_condition(waits).reason) == ("Degraded", "MoveLimited")
    assert status.scheduled_generation == 1
    assert next_time(waits, RULES, NOW, second.until) == move_limits.ends
