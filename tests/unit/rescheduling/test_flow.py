"""The flow of a critical pod: what is seen, and what is to be done."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from harbourmaster.rescheduling.flow import (
    LIVE,
    Action,
    EvictionFlow,
    FlowInputs,
    FlowState,
    Observation,
    Times,
    advance,
    observe,
    preemption_is_stuck,
)
from harbourmaster.rescheduling.model import PendingPod, Pod
from harbourmaster.rescheduling.plans import Victim

TIMES = Times()
VICTIMS = tuple(
    Victim(uid=uid, namespace="ns", name=uid, node="n1", new_grace=5) for uid in ("a", "b")
)


def flow(state, since=0.0, **changes):
    begun = EvictionFlow(uid="u", key="kube-system/c", since=since, seen=0.0, settled_from=0.0)
    if state in LIVE:
        begun = replace(begun, node="n1", tier=1, victims=VICTIMS, deadline=600.0)
    return replace(begun, state=state, **changes)


def seen(found=Observation.WAITING, **changes):
    return FlowInputs(found, **changes)


def action(state, found, now=100.0, **changes):
    return advance(flow(state, **changes), found, now, TIMES).action


@pytest.mark.parametrize("state", FlowState)
def test_a_bound_pod_ends_its_flow(state):
    assert action(state, seen(Observation.BOUND)) is Action.DONE


@pytest.mark.parametrize("state", FlowState)
@pytest.mark.parametrize(
    "found",
    [
        seen(Observation.GONE),
        seen(Observation.EXCUSED),
        seen(is_on=False),
        seen(Observation.GONE, is_on=False),
    ],
)
def test_a_flow_ends_with_its_reason(state, found):
    assert action(state, found) is Action.CANCEL


def test_the_delay_counts_from_our_own_first_sight():
    first = advance(flow(FlowState.DETECTED, settled_from=None), seen(), 50.0, TIMES)
    assert (first.action, first.requeue_after, first.flow.settled_from) == (Action.WAIT, 10, 50)
    assert advance(first.flow, seen(), 59.9, TIMES).action is Action.WAIT
    assert advance(first.flow, seen(), 60.0, TIMES).action is Action.QUALIFY


@pytest.mark.parametrize("found", [Observation.NOMINATED, Observation.QUIET])
@pytest.mark.parametrize("state", sorted(set(FlowState) - LIVE, key=str))
def test_the_delay_begins_anew_when_the_scheduler_does_something(state, found):
    before = advance(flow(state), seen(found), 100.0, TIMES)
    assert before.action is Action.WAIT
    assert (before.flow.state, before.flow.settled_from) == (FlowState.DETECTED, None)
    assert advance(before.flow, seen(), 101.0, TIMES).requeue_after == 10


def test_a_stuck_preemption_is_ignored():
    assert action(FlowState.DETECTED, seen(Observation.NOMINATED, is_stuck=True)) is Action.QUALIFY


@pytest.mark.parametrize("state", [FlowState.RESERVE, FlowState.VERIFY, FlowState.EVICT])
def test_a_preemption_before_the_first_eviction_ends_ours(state):
    assert action(state, seen(Observation.NOMINATED)) is Action.CANCEL


def test_a_preemption_after_it_ends_only_the_evictions():
    found = seen(Observation.NOMINATED, staying=frozenset("b"), leaving=frozenset("a"))
    after = advance(flow(FlowState.EVICT, accepted=frozenset("a")), found, 10.0, TIMES)
    assert (after.action, after.flow.state) == (Action.WAIT, FlowState.DRAIN)


@pytest.mark.parametrize("state", sorted(LIVE, key=str))
def test_a_node_that_is_gone_needs_another_plan(state):
    assert action(state, seen(node_is_there=False)) is Action.REPLAN


def test_no_pod_is_evicted_from_a_closed_node():
    assert action(FlowState.EVICT, seen(node_is_open=False)) is Action.REPLAN


@pytest.mark.parametrize("state", sorted(LIVE, key=str))
def test_nothing_lasts_longer_than_the_deadline(state):
    found = seen(leaving=frozenset("a"))
    assert action(state, found, now=600.0, accepted=frozenset("a")) is Action.TIMEOUT
    before = advance(flow(state, since=599.5, accepted=frozenset("a")), found, 599.5, TIMES)
    if before.action is Action.WAIT:
        assert before.requeue_after is not None
        assert before.requeue_after <= 0.5


@pytest.mark.parametrize(
    ("state", "changes", "expected"),
    [
        (FlowState.PLAN, {}, Action.PLAN),
        (FlowState.NOFIT, {}, Action.WAIT),
        (FlowState.WAIT_FIT, {"since": 50.0}, Action.WAIT),
        (FlowState.WAIT_FIT, {"since": 40.0}, Action.MISMATCH),
        (FlowState.WAIT_FIT, {"since": 99.0, "fits_from": 40.0}, Action.MISMATCH),
        (FlowState.BACKOFF, {"retry_at": 101.0}, Action.WAIT),
        (FlowState.BACKOFF, {"retry_at": 100.0}, Action.QUALIFY),
        (FlowState.RESERVE, {}, Action.RESERVE),
        (FlowState.VERIFY, {"since": 99.5}, Action.WAIT),
        (FlowState.VERIFY, {"since": 99.0}, Action.VERIFY),
        (FlowState.VERIFY, {"retry_at": 101.0}, Action.WAIT),
        (FlowState.EVICT, {}, Action.EVICT),
        (FlowState.EVICT, {"retry_at": 100.5}, Action.WAIT),
    ],
)
def test_each_state_has_its_next_action(state, changes, expected):
    assert action(state, seen(), **changes) is expected


def test_those_that_were_evicted_are_waited_for():
    draining = flow(FlowState.DRAIN, accepted=frozenset("ab"), since=0.0)
    waiting = advance(draining, seen(leaving=frozenset("a")), 39.0, TIMES)
    assert (waiting.action, waiting.requeue_after) == (Action.WAIT, 1)
    assert advance(draining, seen(leaving=frozenset("a")), 40.0, TIMES).action is Action.MOVE
    gone = advance(draining, seen(), 39.0, TIMES)
    assert (gone.action, gone.flow.state, gone.flow.since) == (Action.WAIT, FlowState.BIND, 39)


def test_an_eviction_in_the_background_has_more_time():
    moving = flow(FlowState.DRAIN, accepted=frozenset("a"), background=frozenset("a"), deadline=9e9)
    assert advance(moving, seen(staying=frozenset("a")), 599.0, TIMES).action is Action.WAIT
    assert advance(moving, seen(staying=frozenset("a")), 600.0, TIMES).action is Action.MOVE


def test_where_graces_are_pods_own_they_come_on_top():
    times = Times(gone=30, adds_grace=True)
    draining = flow(FlowState.DRAIN, accepted=frozenset("a"))
    assert advance(draining, seen(leaving=frozenset("a")), 34.0, times).action is Action.WAIT
    assert advance(draining, seen(leaving=frozenset("a")), 35.0, times).action is Action.MOVE


def test_lost_room_is_made_again_at_most_twice():
    at, now = flow(FlowState.BIND, accepted=frozenset("ab")), 0.0
    for replans in (1, 2):
        early = advance(at, seen(has_room=False), now + 0.5, TIMES)
        assert (early.action, early.requeue_after) == (Action.WAIT, 0.5)
        again = advance(at, seen(has_room=False), now + 1.0, TIMES)
        assert (again.flow.state, again.flow.replans) == (FlowState.VERIFY, replans)
        now += 5.0
        at = again.flow.at(FlowState.BIND, now)
    assert advance(at, seen(has_room=False), now + 1.0, TIMES).action is Action.LOST


def test_unused_room_is_given_up():
    binding = flow(FlowState.BIND, accepted=frozenset("ab"))
    assert advance(binding, seen(has_room=True), 59.0, TIMES).requeue_after == 1
    assert advance(binding, seen(has_room=True), 60.0, TIMES).action is Action.FAIL


CRITICAL = Pod(uid="u", namespace="kube-system", name="c", phase="Pending", is_critical=True)


def pending(**changes):
    return PendingPod(pod=CRITICAL, is_unschedulable=True, **changes)


@pytest.mark.parametrize(
    ("pod", "waits", "expected"),
    [
        (None, None, Observation.GONE),
        (CRITICAL, pending(), Observation.WAITING),
        (CRITICAL, pending(nominated="n"), Observation.NOMINATED),
        (CRITICAL, replace(pending(), is_unschedulable=False), Observation.QUIET),
        (CRITICAL, pending(is_gated=True), Observation.EXCUSED),
        (replace(CRITICAL, uid="v"), None, Observation.GONE),
        (replace(CRITICAL, node="n"), None, Observation.BOUND),
        (replace(CRITICAL, node="n", deletion=1.0), None, Observation.GONE),
        (replace(CRITICAL, phase="Failed"), None, Observation.GONE),
        (CRITICAL, PendingPod(pod=replace(CRITICAL, is_critical=False)), Observation.EXCUSED),
        (CRITICAL, PendingPod(pod=replace(CRITICAL, uid="v")), Observation.GONE),
    ],
)
def test_each_state_of_a_pod_is_observed(pod, waits, expected):
    assert observe("u", pod, waits) is expected


@pytest.mark.parametrize(
    ("ends", "seconds", "expected"),
    [
        ([0.0, 10.0], 300, True),
        ([0.0, 10.0], 299, False),
        ([0.0, 50.0], 300, False),
        ([], 900, False),
    ],
)
def test_a_preemption_is_stuck_when_all_its_victims_are_overdue(ends, seconds, expected):
    assert preemption_is_stuck(ends, seconds, 100.0) is expected


@given(
    st.sampled_from(FlowState),
    st.sampled_from(Observation),
    st.booleans(),
    st.booleans(),
    st.sets(st.sampled_from("ab")),
    st.sets(st.sampled_from("ab")),
    st.sampled_from([None, True, False]),
    st.floats(0, 1000),
)
def test_nothing_is_evicted_but_for_a_pod_that_waits(  # noqa: PLR0913, PLR0917 - all that is seen
    state, found, is_on, is_there, accepted, here, has_room, now
):
    at = flow(state, accepted=frozenset(accepted))
    given_sight = FlowInputs(
        found,
        is_on=is_on,
        node_is_there=is_there,
        leaving=frozenset(here & accepted),
        staying=frozenset(here - accepted),
        has_room=has_room,
    )
    after = advance(at, given_sight, now, TIMES)
    if after.action is Action.EVICT:
        assert is_on
        assert is_there
        assert found in {Observation.WAITING, Observation.QUIET}
        assert at.state is FlowState.EVICT
    if after.action in {Action.PLAN, Action.QUALIFY}:
        assert found is Observation.WAITING
    if after.action is Action.WAIT and after.flow.is_live:
        assert after.requeue_after is not None
        assert 0 < after.requeue_after <= 600
    assert after.flow.accepted == at.accepted
    # To look again at the same moment changes nothing more.
    if after.action is Action.WAIT:
        again = advance(after.flow, given_sight, now, TIMES)
        assert again.action is Action.WAIT
        assert again.flow.state is after.flow.state
