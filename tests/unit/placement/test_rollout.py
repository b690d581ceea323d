"""Single steps of a rollout; what must hold for all is in the property tests (krake-spec 7.5)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from harbourmaster.placement.rollout import (
    CLUSTER_UNKNOWN,
    ActionOutcome,
    Apply,
    Check,
    Delete,
    Done,
    Migration,
    Reach,
    Record,
    Rest,
    SetFinalizer,
    Situation,
    Write,
    next_action,
)
from helpers.member_clusters import LIMITS, MemberClusters, ref

ONE = (ref("one"),)


def kinds(log):
    return [type(action).__name__ for action in log]


def settle_members(order="DeleteFirst", cluster="a"):
    members = MemberClusters(order=order)
    members.schedule(cluster)
    members.settle()
    members.log.clear()
    return members


def test_the_record_and_the_finalizer_come_before_the_objects():
    members = MemberClusters()
    members.schedule("a")
    members.run()
    assert kinds(members.log) == ["SetFinalizer", "Write", "Apply", "Rest"]
    assert members.log[1].record.inventory == {"a": members.desired}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"record": Record()}, "NotScheduled"),
        ({"is_released": False}, "NotScheduled"),
        ({"reach": {}}, "ClusterNotFound"),
        ({"reach": {"a": Reach.NO}}, "ClusterUnreachable"),
        ({"reach": {"a": Reach.UNKNOWN}}, CLUSTER_UNKNOWN),
        ({"fault": "wrong"}, "InvalidManifests"),
    ],
)
def test_preconditions_come_before_any_action(change, reason):
    seen = Situation(record=Record(scheduled_to="a"), reach={"a": Reach.YES}, desired=ONE)
    assert isinstance(next_action(seen), SetFinalizer)
    action = next_action(replace(seen, **change))
    assert isinstance(action, Rest)
    assert action.reason == reason


def test_an_update_prunes_removed_objects():
    members = settle_members()
    members.update(ref("two"), ref("three"))
    members.run()
    assert members.holders == {"a"}
    assert [obj.name for obj in members.objects["a"].values()] == ["one", "two"]
    members.released = True
    members.settle()
    assert {obj.name for obj in members.objects["a"].values()} == {"two", "three"}
    (applied,) = [action for action in members.log if isinstance(action, Apply)]
    assert [reference.name for reference in applied.prune] == ["one"]


def test_delete_first_checks_then_deletes_then_applies():
    members = settle_members()
    members.schedule("b")
    members.settle()
    done = [action for action in members.log if isinstance(action, Check | Delete | Apply)]
    assert [(type(action).__name__, action.cluster) for action in done] == [
        ("Check", "b"),
        ("Delete", "a"),
        ("Apply", "b"),
    ]


def test_objects_that_the_new_cluster_rejects_stay_on_the_old_one():
    moving = Record("b", "a", inventory={"a": ONE}, migration=Migration(to="b"))
    refused = ActionOutcome(Done.FAILED, "Refused", "no such kind")
    seen = Situation(
        record=moving,
        reach={"a": Reach.YES, "b": Reach.YES},
        has_finalizer=True,
        desired=ONE,
        outcomes={("check", "b"): refused},
    )
    assert next_action(seen) == Rest("Refused", "no such kind")


def test_a_finalizer_that_somebody_removed_comes_back_before_anything_is_applied():
    held = Record("a", "a", inventory={"a": ONE})
    seen = Situation(record=held, reach={"a": Reach.YES}, desired=ONE)
    assert next_action(seen) == SetFinalizer(present=True)


def test_create_first_applies_then_waits_then_deletes():
    members = settle_members("CreateFirst")
    members.ready["b"] = False
    members.schedule("b")
    rest = members.run()
    assert rest.reason == "Migrating"
    assert rest.until == members.record.migration.since + LIMITS.ready_timeout
    assert members.holders == {"a", "b"}
    members.ready["b"] = True
    members.settle()
    done = [action for action in members.log if isinstance(action, Delete | Apply)]
    assert [(type(action).__name__, action.cluster) for action in done] == [
        ("Apply", "b"),
        ("Delete", "a"),
    ]


def test_failed_moves_suspend_for_longer_each_time_until_one_succeeds():
    members = settle_members("CreateFirst")
    members.ready["b"] = False
    for failures in (1, 2):
        members.schedule("b")
        members.settle()
        assert members.record.scheduled_to == "a"
        assert members.record.running_on == "a"
        assert members.holders == {"a"}
        migration = members.record.migration
        assert (migration.failures, migration.to) == (failures, "")
        written = next(
            action.record
            for action in members.log
            if isinstance(action, Write) and action.record.migration.failures == failures
        )
        begun = max(
            action.record.migration.since
            for action in members.log
            if isinstance(action, Write) and action.record.migration.to == "b"
        )
        assert written.migration.suspended_until >= begun + 60 + 60 * failures
    members.ready["b"] = True
    members.schedule("b")
    members.settle()
    assert members.record.migration == Migration()


def test_create_first_does_not_wait_for_the_dead():
    members = settle_members("CreateFirst")
    members.ready["b"] = False
    members.reach["a"] = Reach.NO
    members.schedule("b")
    members.run()
    assert members.record.running_on == "b"
    assert set(members.record.pending) == {"a"}
    members.reach["a"] = Reach.YES
    members.run()
    assert members.holders == {"b"}


def test_an_unreachable_cluster_is_left_and_cleaned_when_it_returns():
    members = settle_members()
    members.reach["a"] = Reach.NO
    members.schedule("b")
    members.settle()
    assert members.holders == {"a", "b"}
    assert set(members.record.pending) == {"a"}
    members.reach["a"] = Reach.YES
    members.settle()
    assert members.holders == {"b"}
    assert members.record.pending == {}


def test_a_cluster_of_which_nothing_is_known_yet_is_waited_for():
    members = settle_members()
    members.reach["a"] = Reach.UNKNOWN
    members.schedule("b")
    members.now += 1000
    assert members.run().reason == "Migrating"
    assert members.holders == {"a"}


def test_going_back_to_a_cluster_with_leftovers_prunes_them():
    members = settle_members()
    members.reach["a"] = Reach.NO
    members.schedule("b")
    members.settle()
    members.update(ref("two"))
    members.reach["a"] = Reach.YES
    members.schedule("a")
    members.settle()
    assert members.holders == {"a"}
    assert [obj.name for obj in members.objects["a"].values()] == ["two"]


def test_a_deleted_cluster_is_removed_from_the_record():
    members = settle_members()
    del members.reach["a"]
    members.schedule("b")
    members.settle()
    assert members.record.clusters == ("b",)
    members.ending = True
    del members.reach["b"]
    members.settle()
    assert not members.finalizer


def test_the_end_waits_for_every_cluster():
    members = settle_members()
    members.reach["a"] = Reach.NO
    members.ending = True
    rest = members.run()
    assert rest == Rest("Deleting", "objects are still on a")
    assert members.finalizer
    members.reach["a"] = Reach.YES
    members.settle()
    assert not members.finalizer
    assert members.holders == set()


def test_an_application_without_objects_ends_at_once():
    members = MemberClusters()
    members.ending = True
    members.finalizer = True
    members.run()
    assert kinds(members.log) == ["SetFinalizer", "Rest"]


def test_a_cancelled_move_is_no_success():
    members = settle_members("CreateFirst")
    members.ready["b"] = False
    members.record = replace(members.record, migration=Migration(failures=2, suspended_until=5))
    members.schedule("b")
    members.run()
    members.schedule("a")
    members.settle()
    assert members.record.migration == Migration(failures=2, suspended_until=5)
    assert members.holders == {"a"}


def test_objects_that_are_not_deleted_in_time_are_left_for_later():
    members = settle_members()
    members.stuck = {"a"}
    members.schedule("b")
    rest = members.run()
    assert (rest.reason, rest.text) == ("Migrating", "it takes its time")
    assert rest.until == members.record.migration.since + LIMITS.delete_timeout
    assert "b" not in members.holders
    members.now = rest.until
    members.run()
    assert members.record.running_on == "b"
    assert set(members.record.pending) == {"a"}
    members.stuck = set()
    members.run()
    assert members.holders == {"b"}


def test_a_rollout_continues_until_pruning_is_done():
    members = settle_members()
    members.stuck = {"a"}
    members.desired = (ref("two"),)
    assert members.run().text == "it takes its time"
    assert len(members.record.inventory["a"]) == 2
    members.stuck = set()
    assert members.run() == Rest()
    assert [reference.name for reference in members.record.inventory["a"]] == ["two"]


def test_who_is_ready_at_the_last_moment_does_not_go_back():
    members = settle_members("CreateFirst")
    members.ready["b"] = False
    members.schedule("b")
    rest = members.run()
    members.ready["b"] = True
    members.now = rest.until + 100
    members.settle()
    assert members.record.running_on == "b"
    assert members.record.migration.failures == 0


def test_another_target_has_all_of_its_time():
    members = settle_members("CreateFirst")
    members.ready.update(b=False, c=False)
    members.schedule("b")
    members.run()
    members.now += LIMITS.ready_timeout - 1
    members.schedule("c")
    assert members.run().until == members.now + LIMITS.ready_timeout
    assert members.holders == {"a", "c"}


def test_a_cluster_that_nothing_is_left_on_runs_nothing():
    record = Record(running_on="a", inventory={"a": ONE}, pending={"b": ONE})
    assert record.without_deleted("a", ONE) == Record(pending={"b": ONE})
    assert record.without_deleted("b", ONE) == Record(running_on="a", inventory={"a": ONE})
    both = replace(record, inventory={"a": (*ONE, ref("two"))})
    assert both.without_deleted("a", ONE).running_on == "a"
