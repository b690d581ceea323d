"""Single steps of a rollout; what must hold for all is in the property tests."""

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
from helpers.berths import LIMITS, Berths, ref

ONE = (ref("one"),)


def kinds(log):
    return [type(each).__name__ for each in log]


def settled(order="DeleteFirst", cluster="a"):
    berths = Berths(order=order)
    berths.schedule(cluster)
    berths.settle()
    berths.log.clear()
    return berths


def test_the_record_and_the_finalizer_come_before_the_objects():
    berths = Berths()
    berths.schedule("a")
    berths.run()
    assert kinds(berths.log) == ["SetFinalizer", "Write", "Apply", "Rest"]
    assert berths.log[1].record.inventory == {"a": berths.desired}


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
def test_what_must_be_so_before_anything_is_done(change, reason):
    seen = Situation(record=Record(scheduled_to="a"), reach={"a": Reach.YES}, desired=ONE)
    assert isinstance(next_action(seen), SetFinalizer)
    found = next_action(replace(seen, **change))
    assert isinstance(found, Rest)
    assert found.reason == reason


def test_an_update_prunes_what_is_no_longer_wanted():
    berths = settled()
    berths.update(ref("two"), ref("three"))
    berths.run()
    assert berths.holders == {"a"}
    assert [each.name for each in berths.objects["a"].values()] == ["one", "two"]
    berths.released = True
    berths.settle()
    assert {each.name for each in berths.objects["a"].values()} == {"two", "three"}
    (applied,) = [each for each in berths.log if isinstance(each, Apply)]
    assert [each.name for each in applied.prune] == ["one"]


def test_delete_first_checks_then_deletes_then_applies():
    berths = settled()
    berths.schedule("b")
    berths.settle()
    done = [each for each in berths.log if isinstance(each, Check | Delete | Apply)]
    assert [(type(each).__name__, each.cluster) for each in done] == [
        ("Check", "b"),
        ("Delete", "a"),
        ("Apply", "b"),
    ]


def test_what_the_new_cluster_refuses_stays_on_the_old_one():
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
    berths = settled("CreateFirst")
    berths.ready["b"] = False
    berths.schedule("b")
    rest = berths.run()
    assert rest.reason == "Migrating"
    assert rest.until == berths.record.migration.since + LIMITS.ready_timeout
    assert berths.holders == {"a", "b"}
    berths.ready["b"] = True
    berths.settle()
    done = [each for each in berths.log if isinstance(each, Delete | Apply)]
    assert [(type(each).__name__, each.cluster) for each in done] == [
        ("Apply", "b"),
        ("Delete", "a"),
    ]


def test_failed_moves_suspend_for_longer_each_time_until_one_succeeds():
    berths = settled("CreateFirst")
    berths.ready["b"] = False
    for failures in (1, 2):
        berths.schedule("b")
        berths.settle()
        assert berths.record.scheduled_to == "a"
        assert berths.record.running_on == "a"
        assert berths.holders == {"a"}
        migration = berths.record.migration
        assert (migration.failures, migration.to) == (failures, "")
        written = next(
            each.record
            for each in berths.log
            if isinstance(each, Write) and each.record.migration.failures == failures
        )
        begun = max(
            each.record.migration.since
            for each in berths.log
            if isinstance(each, Write) and each.record.migration.to == "b"
        )
        assert written.migration.suspended_until >= begun + 60 + 60 * failures
    berths.ready["b"] = True
    berths.schedule("b")
    berths.settle()
    assert berths.record.migration == Migration()


def test_create_first_does_not_wait_for_the_dead():
    berths = settled("CreateFirst")
    berths.ready["b"] = False
    berths.reach["a"] = Reach.NO
    berths.schedule("b")
    berths.run()
    assert berths.record.running_on == "b"
    assert set(berths.record.pending) == {"a"}
    berths.reach["a"] = Reach.YES
    berths.run()
    assert berths.holders == {"b"}


def test_an_unreachable_cluster_is_left_and_cleaned_when_it_returns():
    berths = settled()
    berths.reach["a"] = Reach.NO
    berths.schedule("b")
    berths.settle()
    assert berths.holders == {"a", "b"}
    assert set(berths.record.pending) == {"a"}
    berths.reach["a"] = Reach.YES
    berths.settle()
    assert berths.holders == {"b"}
    assert berths.record.pending == {}


def test_a_cluster_of_which_nothing_is_known_yet_is_waited_for():
    berths = settled()
    berths.reach["a"] = Reach.UNKNOWN
    berths.schedule("b")
    berths.now += 1000
    assert berths.run().reason == "Migrating"
    assert berths.holders == {"a"}


def test_going_back_to_a_cluster_with_leftovers_prunes_them():
    berths = settled()
    berths.reach["a"] = Reach.NO
    berths.schedule("b")
    berths.settle()
    berths.update(ref("two"))
    berths.reach["a"] = Reach.YES
    berths.schedule("a")
    berths.settle()
    assert berths.holders == {"a"}
    assert [each.name for each in berths.objects["a"].values()] == ["two"]


def test_a_cluster_that_is_gone_for_good_is_forgotten():
    berths = settled()
    del berths.reach["a"]
    berths.schedule("b")
    berths.settle()
    assert berths.record.clusters == ("b",)
    berths.ending = True
    del berths.reach["b"]
    berths.settle()
    assert not berths.finalizer


def test_the_end_waits_for_every_cluster():
    berths = settled()
    berths.reach["a"] = Reach.NO
    berths.ending = True
    rest = berths.run()
    assert rest == Rest("Deleting", "objects are still on a")
    assert berths.finalizer
    berths.reach["a"] = Reach.YES
    berths.settle()
    assert not berths.finalizer
    assert berths.holders == set()


def test_what_never_was_anywhere_ends_at_once():
    berths = Berths()
    berths.ending = True
    berths.finalizer = True
    berths.run()
    assert kinds(berths.log) == ["SetFinalizer", "Rest"]


def test_a_move_that_is_called_off_is_no_success():
    berths = settled("CreateFirst")
    berths.ready["b"] = False
    berths.record = replace(berths.record, migration=Migration(failures=2, suspended_until=5))
    berths.schedule("b")
    berths.run()
    berths.schedule("a")
    berths.settle()
    assert berths.record.migration == Migration(failures=2, suspended_until=5)
    assert berths.holders == {"a"}


def test_what_does_not_go_in_time_is_left_for_later():
    berths = settled()
    berths.stuck = {"a"}
    berths.schedule("b")
    rest = berths.run()
    assert (rest.reason, rest.text) == ("Migrating", "it takes its time")
    assert rest.until == berths.record.migration.since + LIMITS.delete_timeout
    assert "b" not in berths.holders
    berths.now = rest.until
    berths.run()
    assert berths.record.running_on == "b"
    assert set(berths.record.pending) == {"a"}
    berths.stuck = set()
    berths.run()
    assert berths.holders == {"b"}


def test_what_is_pruned_later_is_no_rest_before():
    berths = settled()
    berths.stuck = {"a"}
    berths.desired = (ref("two"),)
    assert berths.run().text == "it takes its time"
    assert len(berths.record.inventory["a"]) == 2
    berths.stuck = set()
    assert berths.run() == Rest()
    assert [each.name for each in berths.record.inventory["a"]] == ["two"]


def test_who_is_ready_at_the_last_moment_does_not_go_back():
    berths = settled("CreateFirst")
    berths.ready["b"] = False
    berths.schedule("b")
    rest = berths.run()
    berths.ready["b"] = True
    berths.now = rest.until + 100
    berths.settle()
    assert berths.record.running_on == "b"
    assert berths.record.migration.failures == 0


def test_another_target_has_all_of_its_time():
    berths = settled("CreateFirst")
    berths.ready.update(b=False, c=False)
    berths.schedule("b")
    berths.run()
    berths.now += LIMITS.ready_timeout - 1
    berths.schedule("c")
    assert berths.run().until == berths.now + LIMITS.ready_timeout
    assert berths.holders == {"a", "c"}


def test_a_cluster_that_nothing_is_left_on_runs_nothing():
    found = Record(running_on="a", inventory={"a": ONE}, pending={"b": ONE})
    assert found.deleted("a", ONE) == Record(pending={"b": ONE})
    assert found.deleted("b", ONE) == Record(running_on="a", inventory={"a": ONE})
    both = replace(found, inventory={"a": (*ONE, ref("two"))})
    assert both.deleted("a", ONE).running_on == "a"
