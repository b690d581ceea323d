"""Decisions of a candidate about each Lease that it can read, and its writes."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest

from harbourmaster.kube.lease import (
    Acquire,
    Lease,
    LeaseObservation,
    LeaseSpec,
    LeaseWait,
    Renew,
    StepDown,
    Timing,
    acquire,
    decide,
    decide_as_leader,
    decode_lease,
    encode_lease,
    mark,
    micro_time,
    new_lease,
    observe,
    release,
    renew,
)

ME, OTHER = "me_1", "other_2"
THEN, NOW = "2026-03-01T08:00:00.000000Z", "2026-03-01T09:00:00.000001Z"
DEFAULT = 15.0


def lease(holder=OTHER, version="7", **spec):
    given = {"lease_duration_seconds": 4, "acquire_time": THEN, "renew_time": THEN} | spec
    metadata = {"name": "a", "namespace": "n", "resourceVersion": version}
    return Lease(metadata, LeaseSpec(holder_identity=holder, **given))


def after(*observed):
    """Return the observation after reading each Lease at its time."""
    seen = None
    for at, read in observed:
        seen = observe(seen, read, at, DEFAULT)
    return seen


def test_a_missing_lease_is_acquired_at_once():
    assert decide(after((100.0, None)), ME, 100.0) == Acquire()


def test_a_lease_of_another_is_waited_for_its_duration_from_when_it_was_first_seen():
    seen = after((100.0, lease()), (101.0, lease()), (103.0, lease()))
    assert decide(seen, ME, 103.9) == LeaseWait(104.0)
    assert decide(seen, ME, 104.0) == Acquire()


@pytest.mark.parametrize(
    "changed",
    [
        lease(renew_time=NOW),
        lease(version="8"),
        lease(lease_transitions=3),
        lease(holder="third_3"),
        lease(acquire_time=None),
    ],
)
def test_any_change_begins_the_wait_anew(changed):
    assert after((100.0, lease()), (103.0, changed)).free_at == 107.0


@pytest.mark.parametrize("renew_time", [None, "1970-01-01T00:00:00Z", "2999-01-01T00:00:00Z", "?"])
def test_the_times_in_a_lease_mean_nothing(renew_time):
    assert after((100.0, lease(renew_time=renew_time))).free_at == 104.0


@pytest.mark.parametrize("seconds", [None, 0, -4])
def test_without_a_duration_ours_counts(seconds):
    assert after((100.0, lease(lease_duration_seconds=seconds))).free_at == 100.0 + DEFAULT


@pytest.mark.parametrize("holder", ["", None])
def test_a_lease_given_back_is_free_at_once(holder):
    given_back = lease(holder, "8", lease_duration_seconds=1)
    assert decide(after((100.0, lease()), (101.0, given_back)), ME, 101.0) == Acquire()


@pytest.mark.parametrize(
    "changed",
    [None, lease("", "8"), lease(None, "8"), Lease({"resourceVersion": "8"})],
    ids=["deleted", "emptied", "null", "no spec"],
)
def test_a_lease_deleted_or_emptied_by_hand_keeps_its_promise(changed):
    seen = after((100.0, lease()), (101.0, changed))
    assert decide(seen, ME, 103.9) == LeaseWait(104.0)
    assert decide(seen, ME, 104.0) == Acquire()


def test_a_lease_handed_on_keeps_the_promise_to_the_last_holder():
    edited = lease("third_3", "8", lease_duration_seconds=1)
    assert after((100.0, lease()), (101.0, edited)).free_at == 104.0


@pytest.mark.parametrize("empty", [lease(""), lease(None), Lease({"resourceVersion": "8"})])
def test_an_empty_lease_that_was_never_held_is_free_at_once(empty):
    assert decide(after((100.0, empty)), ME, 100.0) == Acquire()


def test_what_we_wrote_without_an_answer_is_ours():
    assert decide(after((100.0, lease(ME))), ME, 100.0, written=[NOW, THEN]) == Renew()


def test_our_name_put_there_by_hand_is_waited_for_like_any_other():
    seen = after((100.0, lease()), (101.0, lease(ME, "8")))
    assert decide(seen, ME, 101.0, written=[NOW]) == LeaseWait(105.0)


@pytest.mark.parametrize(
    ("current", "action"),
    [
        (None, Acquire()),
        (lease(ME), Renew()),
        (lease(ME, renew_time=None), Renew()),
        (lease(OTHER), StepDown(OTHER)),
        (lease(""), StepDown("")),
        (lease(None), StepDown("")),
    ],
)
def test_a_leader_goes_on_only_in_its_own_name(current, action):
    assert decide_as_leader(current, ME) == action


def test_taking_over_counts_a_transition():
    taken = acquire(lease(lease_transitions=6, strategy="Oldest").spec, ME, 4, NOW)
    assert taken == LeaseSpec(ME, 4, NOW, NOW, 7, strategy="Oldest")


def test_the_first_holder_is_no_transition():
    assert acquire(LeaseSpec(), ME, 4, NOW) == LeaseSpec(ME, 4, NOW, NOW, 0)


@pytest.mark.parametrize("transitions", [None, -3])
def test_a_missing_count_begins_at_one(transitions):
    assert acquire(lease(lease_transitions=transitions).spec, ME, 4, NOW).lease_transitions == 1


def test_renewing_keeps_when_and_how_often_it_was_acquired():
    spec = renew(lease(ME, lease_transitions=6).spec, 5, NOW)
    assert spec == LeaseSpec(ME, 5, THEN, NOW, 6)


def test_acquiring_what_is_in_our_name_renews_it():
    spec = lease(ME, lease_transitions=6).spec
    assert acquire(spec, ME, 5, NOW) == renew(spec, 5, NOW)


def test_giving_back_leaves_nobody_and_one_second():
    spec = release(lease(ME, lease_transitions=6).spec, NOW)
    assert spec == LeaseSpec("", 1, NOW, NOW, 6)
    assert json.loads(encode_lease(Lease({}, spec)))["spec"]["holderIdentity"] == ""


def test_what_others_put_into_a_lease_goes_back_with_it():
    metadata = {"name": "a", "resourceVersion": "7", "labels": {"x": "y"}, "unknown": [1]}
    body = json.dumps({"metadata": metadata, "spec": {"strategy": "S", "preferredHolder": "p"}})
    decoded = decode_lease(body.encode())
    sent = json.loads(encode_lease(Lease(decoded.metadata, acquire(decoded.spec, ME, 4, NOW))))
    assert sent["apiVersion"] == "coordination.k8s.io/v1"
    assert sent["kind"] == "Lease"
    assert sent["metadata"] == metadata
    assert sent["spec"] == {
        "holderIdentity": ME,
        "leaseDurationSeconds": 4,
        "acquireTime": NOW,
        "renewTime": NOW,
        "leaseTransitions": 1,
        "strategy": "S",
        "preferredHolder": "p",
    }


@pytest.mark.parametrize("spec", ["null", "{}", '{"holderIdentity": null, "renewTime": null}'])
def test_a_spec_may_be_empty(spec):
    decoded = decode_lease(f'{{"metadata": {{"resourceVersion": "3"}}, "spec": {spec}}}'.encode())
    assert (decoded.version, decoded.holder, decoded.spec) == ("3", "", LeaseSpec())


def test_a_spec_may_be_missing():
    assert decode_lease(b'{"metadata": {}}').spec == LeaseSpec()


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{}", b'{"metadata": {}, "spec": 1}'])
def test_what_is_no_lease_is_an_error(body):
    with pytest.raises(msgspec.DecodeError):
        decode_lease(body)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, {"ours": "T2"}),
        ({"theirs": "x", "gone": "2026-03-01T12:00:00Z"}, {"theirs": "x", "ours": "T2"}),
        ({"ours": "2026-03-01T12:00:00Z"}, {"ours": "2026-03-01T12:00:00Z"}),
        ({"ours": "nonsense"}, {"ours": "T2"}),
        ("nonsense", {"ours": "T2"}),
    ],
)
def test_a_mark_says_since_when_it_is_set(before, after):
    unmarked = Lease({"name": "x", "annotations": before})
    assert mark(unmarked, {"ours": True, "gone": False}, "T2").annotations == after


def test_marks_that_are_as_wanted_change_nothing():
    marked = Lease({"name": "x", "annotations": {"ours": "2026-03-01T12:00:00Z"}})
    assert mark(marked, {"ours": True, "gone": False}, "T2") is marked


def test_a_new_lease_has_our_labels():
    metadata = {"name": "a", "namespace": "n", "labels": {"x": "y"}}
    assert new_lease("a", "n", {"x": "y"}) == Lease(metadata)
    assert new_lease("a", "n", {}).metadata == {"name": "a", "namespace": "n"}


@pytest.mark.parametrize("zone", [UTC, timezone(timedelta(hours=9))])
def test_times_are_written_in_utc_with_six_digits(zone):
    instant = datetime(2026, 3, 1, 8, 30, tzinfo=UTC).astimezone(zone)
    assert micro_time(instant) == "2026-03-01T08:30:00.000000Z"


@pytest.fixture
def tokyo(monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("tokyo")
def test_times_are_written_in_utc_wherever_we_are():
    local = datetime.fromtimestamp(0, UTC).astimezone()
    assert local.hour == 9
    assert micro_time(local) == "1970-01-01T00:00:00.000000Z"


def test_a_time_without_a_zone_is_refused():
    with pytest.raises(ValueError, match="no time zone"):
        micro_time(datetime(2026, 3, 1))  # noqa: DTZ001


@pytest.mark.parametrize(
    "times", [(15, 15, 2), (15, 16, 2), (10, 5, 3), (10, 5, 0), (10, 5, -1), (-1, -2, -3)]
)
def test_times_that_can_not_hold_together_are_refused(times):
    with pytest.raises(ValueError, match="an election needs"):
        Timing(*times)


@pytest.mark.parametrize("timing", [Timing(), Timing(4, 2.5, 0.5), Timing(3.9, 2, 1)])
def test_an_attempt_fits_into_the_deadline_and_the_end_of_work_into_the_lease(timing):
    assert timing.wait(1.0) + timing.call_timeout < timing.renew_deadline
    assert timing.renew_deadline + timing.grace < timing.lease_duration <= timing.whole_duration


def test_an_observation_of_nothing_new_is_the_same():
    seen = LeaseObservation(lease(), 104.0)
    assert observe(seen, lease(), 103.0, DEFAULT) is seen
    gone = LeaseObservation(None, 104.0)
    assert observe(gone, None, 103.0, DEFAULT) is gone
