"""The flow of a critical pod: what is seen, and what is to be done (rescheduler-spec 3.8, 6.4)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from harbourmaster.rescheduling.flow import Action, Times, advance, apply_event
from harbourmaster.rescheduling.flow_model import (
    Abandoned,
    ActivePlan,
    Adopted,
    AllEvicted,
    BackingOff,
    Binding,
    Checked,
    ClusterChanged,
    Detected,
    Disqualified,
    Draining,
    Evicted,
    Evicting,
    EvictionDelayed,
    EvictionFlow,
    Fits,
    FlowInputs,
    Mismatched,
    NoFit,
    NotPlanned,
    Observation,
    Planned,
    Planning,
    Qualified,
    Reserved,
    Reserving,
    Unaffordable,
    VerificationDelayed,
    Verified,
    Verifying,
    VictimSpared,
    WaitingForFit,
    observe,
    preemption_is_stuck,
)
from harbourmaster.rescheduling.model import PendingPod, Pod
from harbourmaster.rescheduling.plans import Victim

TIMES = Times()
VICTIMS = tuple(
    Victim(uid=uid, namespace="ns", name=uid, node="n1", new_grace=5) for uid in ("a", "b")
)
PLAN = ActivePlan(node="n1", tier=1, victims=VICTIMS, deadline=600.0, tokens=(2, 0))
WAITING = (Detected(), Planning(), WaitingForFit("n1", 0.0), NoFit(), BackingOff(0.0))


def live_states(plan=PLAN, since=0.0):
    return (
        Reserving(plan),
        Verifying(plan, since),
        Evicting(plan),
        Draining(plan, since),
        Binding(plan, since),
    )


LIVE = live_states()
STATES = (*WAITING, *LIVE)


def name_of(value):
    return getattr(value, "name", None)


def plan_accepting(uids, **changes):
    return replace(PLAN, accepted=frozenset(uids), **changes)


def flow(state, unschedulable_since=0.0):
    return EvictionFlow(
        uid="u",
        key="kube-system/c",
        first_seen=0.0,
        unschedulable_since=unschedulable_since,
        state=state,
    )


def inputs(observation=Observation.WAITING, **changes):
    return FlowInputs(observation, **changes)


def action(state, seen, now=100.0):
    return advance(flow(state), seen, now, TIMES).action


@pytest.mark.parametrize("state", STATES, ids=name_of)
def test_a_bound_pod_ends_its_flow(state):
    assert action(state, inputs(Observation.BOUND)) is Action.DONE


@pytest.mark.parametrize("state", STATES, ids=name_of)
@pytest.mark.parametrize(
    "seen",
    [
        inputs(Observation.GONE),
        inputs(Observation.EXCUSED),
        inputs(is_on=False),
        inputs(Observation.GONE, is_on=False),
    ],
)
def test_a_flow_ends_with_its_reason(state, seen):
    assert action(state, seen) is Action.CANCEL


@pytest.mark.parametrize("state", LIVE, ids=name_of)
def test_a_node_that_is_gone_needs_another_plan(state):
    assert action(state, inputs(node_is_there=False)) is Action.REPLAN


def test_no_pod_is_evicted_from_a_closed_node():
    assert action(Evicting(PLAN), inputs(node_is_open=False)) is Action.REPLAN


@pytest.mark.parametrize("number", range(len(LIVE)))
def test_nothing_lasts_longer_than_the_deadline(number):
    seen = inputs(leaving=frozenset("a"))
    state = live_states(plan_accepting("a"), since=599.5)[number]
    assert action(state, seen, now=600.0) is Action.TIMEOUT
    before = advance(flow(state), seen, 599.5, TIMES)
    if before.action is Action.WAIT:
        assert before.requeue_after is not None
        assert before.requeue_after <= 0.5


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (Planning(), Action.PLAN),
        (NoFit(), Action.WAIT),
        (WaitingForFit("n1", 50.0), Action.WAIT),
        (WaitingForFit("n1", 40.0), Action.MISMATCH),
        (BackingOff(101.0), Action.WAIT),
        (BackingOff(100.0), Action.QUALIFY),
        (Reserving(PLAN), Action.RESERVE),
        (Verifying(PLAN, 99.5), Action.WAIT),
        (Verifying(PLAN, 99.0), Action.VERIFY),
        (Verifying(PLAN, 0.0, retry_at=101.0), Action.WAIT),
        (Evicting(PLAN), Action.EVICT),
        (Evicting(PLAN, retry_at=100.5), Action.WAIT),
    ],
)
def test_each_state_has_its_next_action(state, expected):
    assert action(state, inputs()) is expected


def test_those_that_were_evicted_are_waited_for():
    draining = flow(Draining(plan_accepting("ab"), 0.0))
    waiting = advance(draining, inputs(leaving=frozenset("a")), 39.0, TIMES)
    assert (waiting.action, waiting.requeue_after) == (Action.WAIT, 1)
    assert advance(draining, inputs(leaving=frozenset("a")), 40.0, TIMES).action is Action.MOVE
    gone = advance(draining, inputs(), 39.0, TIMES)
    assert (gone.action, gone.flow.state) == (Action.WAIT, Binding(plan_accepting("ab"), 39.0))


def test_an_eviction_in_the_background_has_more_time():
    plan = plan_accepting("a", in_background=frozenset("a"), deadline=9e9)
    seen = inputs(staying=frozenset("a"))
    assert action(Draining(plan, 0.0), seen, 599.0) is Action.WAIT
    assert action(Draining(plan, 0.0), seen, 600.0) is Action.MOVE


def test_where_graces_are_pods_own_they_come_on_top():
    times = Times(gone=30, adds_grace=True)
    draining = flow(Draining(plan_accepting("a"), 0.0))
    assert advance(draining, inputs(leaving=frozenset("a")), 34.0, times).action is Action.WAIT
    assert advance(draining, inputs(leaving=frozenset("a")), 35.0, times).action is Action.MOVE


def test_lost_room_is_made_again_at_most_twice():
    binding, now = Binding(plan_accepting("ab"), 0.0), 0.0
    for replans in (1, 2):
        early = advance(flow(binding), inputs(has_room=False), now + 0.5, TIMES)
        assert (early.action, early.requeue_after) == (Action.WAIT, 0.5)
        again = advance(flow(binding), inputs(has_room=False), now + 1.0, TIMES).flow
        assert again.state == Verifying(plan_accepting("ab", replans=replans), now + 1.0)
        now += 5.0
        binding = Binding(again.plan, now)
    assert action(binding, inputs(has_room=False), now + 1.0) is Action.LOST


def test_unused_room_is_given_up():
    binding = Binding(plan_accepting("ab"), 0.0)
    assert advance(flow(binding), inputs(has_room=True), 59.0, TIMES).requeue_after == 1
    assert action(binding, inputs(has_room=True), 60.0) is Action.FAIL


SPENT = plan_accepting("a", tokens=(1, 0))


@pytest.mark.parametrize(
    ("state", "event", "expected"),
    [
        (Detected(), Qualified(), Planning()),
        (BackingOff(0.0), Qualified(), Planning()),
        (Detected(), Adopted(PLAN), Verifying(PLAN, 9.0)),
        (NoFit(), ClusterChanged(), Planning()),
        (WaitingForFit("n1", 1.0), ClusterChanged(), Planning(WaitingForFit("n1", 1.0))),
        (WaitingForFit("n1", 1.0), Mismatched(), Planning()),
        (Planning(), Disqualified(), Detected()),
        (Planning(), Fits(("n2", "n1")), WaitingForFit("n2", 9.0)),
        (Planning(WaitingForFit("n1", 1.0)), Fits(("n2", "n1")), WaitingForFit("n1", 1.0)),
        (Planning(WaitingForFit("n1", 1.0)), Fits(("n2",)), WaitingForFit("n2", 9.0)),
        (Planning(WaitingForFit("n1", 1.0)), NotPlanned(), NoFit()),
        (Planning(), Unaffordable(20.0), BackingOff(20.0)),
        (Planning(), Planned(PLAN, 1), Reserving(PLAN)),
        (Reserving(PLAN), Reserved(), Verifying(PLAN, 9.0)),
        (Verifying(PLAN, 1.0), VerificationDelayed(20.0), Verifying(PLAN, 1.0, 20.0)),
        (
            Verifying(PLAN, 1.0, busy=1),
            VerificationDelayed(20.0, is_busy=True),
            Verifying(PLAN, 1.0, 20.0, 2),
        ),
        (
            Verifying(PLAN, 1.0, 8.0, 1),
            Checked(0, VICTIMS[:1], (1, 0)),
            Verifying(replace(PLAN, tier=0, victims=VICTIMS[:1], tokens=(1, 0)), 1.0),
        ),
        (Verifying(PLAN, 1.0), Verified(), Evicting(PLAN)),
        (Evicting(PLAN, 8.0, 7.0, 3), Evicted(VICTIMS[0]), Evicting(SPENT)),
        (
            Evicting(PLAN),
            Evicted(VICTIMS[0], in_background=True),
            Evicting(replace(SPENT, in_background=frozenset("a"))),
        ),
        (Evicting(PLAN), Evicted(VICTIMS[0], is_replaced=True), Verifying(SPENT, 9.0)),
        (
            Evicting(PLAN, refused_since=7.0),
            EvictionDelayed(20.0, is_busy=True),
            Evicting(PLAN, 20.0, 7.0, 1),
        ),
        (
            Evicting(PLAN, busy=1),
            EvictionDelayed(20.0, is_busy=False),
            Evicting(PLAN, 20.0, 9.0, 1),
        ),
        (
            Evicting(PLAN, refused_since=7.0),
            EvictionDelayed(20.0, is_busy=False),
            Evicting(PLAN, 20.0, 7.0),
        ),
        (Evicting(PLAN, 8.0, 7.0, 3), VictimSpared("protected"), Verifying(PLAN, 9.0)),
        (Evicting(SPENT), AllEvicted(), Draining(SPENT, 9.0)),
        *((state, Abandoned(), Detected()) for state in STATES),
        *((state, Abandoned(20.0), BackingOff(20.0)) for state in STATES),
    ],
)
def test_each_event_has_its_next_state(state, event, expected):
    assert apply_event(flow(state), event, 9.0).state == expected


def test_an_event_that_cannot_happen_in_a_state_is_rejected():
    with pytest.raises(ValueError, match="AllEvicted in state NOFIT"):
        apply_event(flow(NoFit()), AllEvicted(), 0.0)


def test_a_plan_is_numbered_and_the_report_of_a_dry_run_is_kept():
    assert apply_event(flow(Planning()), Planned(PLAN, 3), 0.0).attempt == 3
    noted = apply_event(flow(Planning()), NotPlanned("would evict"), 0.0)
    assert noted.dry_note == "would evict"
    assert (
        apply_event(replace(noted, state=Planning()), NotPlanned(), 0.0).dry_note == noted.dry_note
    )


# The rules of rescheduler-spec 3.8. Rule 4 is tested with the controller, rule 5 with the planner.


@pytest.mark.parametrize("state", STATES, ids=name_of)
def test_rule_1_nothing_is_evicted_for_a_pod_with_a_nominated_node(state):
    step = advance(flow(state), inputs(Observation.NOMINATED), 100.0, TIMES)
    if step.flow.is_live and not isinstance(step.flow.state, Draining | Binding):
        assert step.action is Action.CANCEL
    else:
        assert step.action not in {Action.QUALIFY, Action.PLAN, Action.EVICT}


def test_rule_1_a_preemption_after_the_first_eviction_spares_the_other_victims():
    seen = inputs(Observation.NOMINATED, staying=frozenset("b"), leaving=frozenset("a"))
    step = advance(flow(Evicting(plan_accepting("a"))), seen, 10.0, TIMES)
    assert (step.action, step.flow.state) == (Action.WAIT, Draining(plan_accepting("a"), 10.0))


def test_rule_2_the_delay_counts_from_the_first_observation():
    first = advance(flow(Detected(), None), inputs(), 50.0, TIMES)
    assert (first.action, first.requeue_after, first.flow.unschedulable_since) == (
        Action.WAIT,
        10,
        50,
    )
    assert advance(first.flow, inputs(), 59.9, TIMES).action is Action.WAIT
    assert advance(first.flow, inputs(), 60.0, TIMES).action is Action.QUALIFY


@pytest.mark.parametrize("observation", [Observation.NOMINATED, Observation.QUIET])
@pytest.mark.parametrize("state", WAITING, ids=name_of)
def test_rule_2_the_delay_starts_again_when_the_scheduler_acts(state, observation):
    before = advance(flow(state), inputs(observation), 100.0, TIMES)
    assert before.action is Action.WAIT
    assert (before.flow.state, before.flow.unschedulable_since) == (Detected(), None)
    assert advance(before.flow, inputs(), 101.0, TIMES).requeue_after == 10


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (Detected(), Action.QUALIFY),
        (Planning(), Action.PLAN),
        (Reserving(PLAN), Action.RESERVE),
        (Verifying(PLAN, 0.0), Action.VERIFY),
        (Evicting(PLAN), Action.EVICT),
        (Evicting(plan_accepting("a")), Action.EVICT),
    ],
    ids=name_of,
)
def test_rule_3_a_stuck_preemption_stops_no_step(state, expected):
    assert action(state, inputs(Observation.NOMINATED, is_stuck=True)) is expected


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
def test_rule_3_a_preemption_is_stuck_when_all_its_victims_are_overdue(ends, seconds, expected):
    assert preemption_is_stuck(ends, seconds, 100.0) is expected


@given(
    st.sampled_from(range(len(STATES))),
    st.sampled_from(Observation),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.sets(st.sampled_from("ab")),
    st.sets(st.sampled_from("ab")),
    st.sampled_from([None, True, False]),
    st.floats(0, 1000),
)
def test_nothing_is_evicted_but_for_a_pod_that_waits(  # noqa: PLR0913, PLR0917 - all that is seen
    number, observation, is_on, is_there, is_stuck, gone, here, has_room, now
):
    state = (*WAITING, *live_states(plan_accepting(gone)))[number]
    seen = FlowInputs(
        observation,
        is_on=is_on,
        node_is_there=is_there,
        leaving=frozenset(here & gone),
        staying=frozenset(here - gone),
        has_room=has_room,
        is_stuck=is_stuck,
    )
    step = advance(flow(state), seen, now, TIMES)
    is_preempting = observation is Observation.NOMINATED and not is_stuck
    if step.action is Action.EVICT:
        assert is_on
        assert is_there
        assert not is_preempting
        assert isinstance(state, Evicting)
    if step.action in {Action.PLAN, Action.QUALIFY}:
        assert observation in {Observation.WAITING, Observation.NOMINATED}
        assert not is_preempting
    if step.action is Action.WAIT and step.flow.is_live:
        assert step.requeue_after is not None
        assert 0 < step.requeue_after <= 600
    assert step.flow.accepted_uids == flow(state).accepted_uids or not step.flow.is_live
    # To look again at the same moment changes nothing more.
    if step.action is Action.WAIT:
        again = advance(step.flow, seen, now, TIMES)
        assert again.action is Action.WAIT
        assert again.flow.state == step.flow.state
