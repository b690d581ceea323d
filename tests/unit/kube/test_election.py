"""Terms of one and of several candidates, in simulated time, to the moment.

The times are 4 s, 2.5 s and 0.5 s, an attempt comes each 0.5625 s, a call may take 0.75 s.
"""

from __future__ import annotations

import re

import pytest

from helpers.simulated_processes import (
    DEADLINE,
    HANG,
    LEASE,
    PERIOD,
    RESET,
    Fate,
    connection_reset,
    first_step,
    last_renewal,
    last_step,
    leader_and_candidate,
    proxy_page,
    refusal,
)

CALL = 0.75
TAKEOVER = LEASE + 2 * PERIOD + CALL
SLACK = 0.001


def by(times):
    """A fate for each time of the world: RESET from the first one on, and so on."""

    def fate_of(_candidate, call):
        due = [fate for since, fate in times if call.time >= since]
        return due[-1] if due else Fate()

    return fate_of


def test_the_first_one_creates_the_lease_and_works(election):
    a = election.add()
    election.run(0.1)
    assert [call.method for call in election.calls] == ["GET", "POST"]
    assert election.server.spec == {
        "holderIdentity": a.election.identity,
        "leaseDurationSeconds": 4,
        "acquireTime": "2026-03-01T00:00:00.010000Z",
        "renewTime": "2026-03-01T00:00:00.010000Z",
        "leaseTransitions": 0,
    }
    assert re.fullmatch(r"a_[0-9a-f]{16}", a.election.identity)
    assert a.election.is_leader
    assert election.working() == {"a"}


def test_a_leader_renews_once_a_period_and_keeps_its_time_of_acquisition(election):
    election.add()
    election.run(60)
    assert {call.method for call in election.calls[2:]} == {"PUT"}
    assert len(election.calls) == pytest.approx(60 / PERIOD, abs=3)
    assert election.server.spec["acquireTime"].startswith("2026-03-01T00:00:00.01")
    assert election.server.spec["renewTime"].startswith("2026-03-01T00:00:59")
    assert election.server.spec["leaseTransitions"] == 0


def test_of_three_one_works_and_the_others_only_look(election):
    for _ in range(3):
        election.add()
    election.run(60)
    assert len(election.working(59)) == 1
    (leader,) = election.working()
    assert not [call for call in election.calls if call.who != leader and call.method == "PUT"]
    assert len(election.calls) == pytest.approx(3 * 60 / PERIOD, rel=0.05)


def test_of_two_that_write_at_once_one_wins(election):
    election.fate_of = lambda _candidate, call: Fate(there=0.3 if call.method == "POST" else 0.0)
    election.add()
    election.add()
    election.run(3)
    assert [call.method for call in election.calls].count("POST") == 2
    assert len(election.working(3)) == 1
    assert not election.overlaps()


@pytest.mark.parametrize("unwinds", [0.0, 1.0])
def test_given_back_at_the_end_it_is_taken_within_a_period(election, unwinds):
    a, b = election.add(unwinds=unwinds), election.add()
    election.run(5)
    a.cancel()
    cancelled = election.world.now
    election.run(5)
    assert a.process.main.cancelled()
    assert first_step(election, "b") - cancelled <= unwinds + PERIOD + 0.1
    assert election.server.spec["leaseTransitions"] == 1
    assert b.holds
    assert [leading for _, leading in a.states] == [True, False]
    assert not election.overlaps()


def test_what_is_given_back_names_nobody_for_a_second(election):
    a = election.add()
    election.run(5)
    a.cancel()
    election.run(1)
    spec = election.server.spec
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"]) == ("", 1)
    assert spec["leaseTransitions"] == 0


@pytest.mark.parametrize("fate", [RESET, HANG, refusal(503), refusal(409)])
def test_giving_back_takes_two_seconds_at_most(election, fate):
    a = election.add()
    election.run(5)
    election.fate_of = lambda _candidate, _call: fate
    a.cancel()
    election.run(2.1)
    assert a.process.main.cancelled()
    assert last_step(election, "a") < 5.1


def test_what_a_candidate_won_without_knowing_it_takes_up_with_its_next_look(election):
    election.fate_of = lambda _candidate, call: HANG if call.method == "POST" else Fate()
    election.add()
    election.run(CALL + PERIOD + 0.2)
    assert first_step(election, "a") <= CALL + PERIOD
    assert election.server.spec["leaseTransitions"] == 0


def test_a_candidate_gives_back_what_it_won_without_knowing(election):
    election.fate_of = lambda _candidate, call: HANG if call.method == "POST" else Fate()
    a = election.add()
    election.run(0.3)
    assert a.holds
    assert not a.election.is_leader
    a.cancel()
    election.run(1)
    assert election.server.holder == ""


@pytest.mark.parametrize(
    "fate",
    [
        RESET,
        HANG,
        connection_reset(),
        connection_reset(instead=False),
        proxy_page(),
        refusal(500),
        refusal(429, retry_after=30),
        refusal(429, retry_after=1),
        refusal(403),
        refusal(401),
        refusal(404),
        refusal(409),
        refusal(422),
        Fate(there=30.0),
        Fate(refusal=ValueError("a bug of ours")),
    ],
    ids=[
        *("lost", "hangs", "reset", "answer lost", "502 with HTML", "500", "429 for 30 s"),
        *("429 for 1 s", "403", "401", "404", "409", "422", "30 s late", "bug"),
    ],
)
def test_without_renewals_work_ends_at_the_deadline_and_goes_on_after(election, fate):
    a = election.add()
    election.run(5)
    begun = last_renewal(election, "a")
    election.fate_of = lambda _candidate, _call: fate
    election.run(40)
    assert last_step(election, "a") <= begun + DEADLINE + SLACK
    assert last_step(election, "a") > begun + DEADLINE - PERIOD - 0.1
    assert not a.election.is_leader
    # No storm: an attempt a period, of three requests at most, and no faster than it can fail.
    assert len(election.calls_of("a", since=5)) <= 2 * 40 / PERIOD + 3
    election.fate_of = lambda _candidate, _call: Fate()
    election.run(LEASE + 3)
    assert election.working() == {"a"}
    assert [leading for _, leading in a.states] == [True, False, True]


@pytest.mark.parametrize("fate", [RESET, HANG, connection_reset(), refusal(429, retry_after=30)])
def test_another_takes_over_when_the_leader_alone_is_cut_off(election, fate):
    a, _ = leader_and_candidate(election)
    cut = last_renewal(election, "a")
    election.fate_of = lambda candidate, _call: fate if candidate is a else Fate()
    election.run(20)
    assert last_step(election, "a") <= cut + DEADLINE + SLACK
    assert cut + LEASE < first_step(election, "b") <= cut + TAKEOVER
    assert not election.overlaps()


def test_one_lost_answer_costs_no_term(election):
    a = election.add()
    election.run(5)
    election.fate_of = by([(5.0, Fate(back=None)), (5.0 + PERIOD, Fate())])
    election.run(10)
    assert [leading for _, leading in a.states] == [True]


def test_renewals_that_fail_for_less_than_the_deadline_cost_no_term(election):
    a = election.add()
    election.run(5)
    begun = last_renewal(election, "a")
    election.fate_of = by([(5.0, proxy_page()), (begun + DEADLINE - 2 * PERIOD, Fate())])
    election.run(10)
    assert [leading for _, leading in a.states] == [True]


def test_a_leader_waits_as_long_as_it_is_asked_to_and_can(election):
    election.add()
    election.run(5)
    election.fate_of = lambda _candidate, _call: refusal(429, retry_after=1)
    election.run(2)
    first, second = (call.time for call in election.calls_of("a", since=5)[:2])
    assert second - first == pytest.approx(1.0, abs=0.01)


def test_a_leader_sent_away_for_long_tries_once_more_before_its_deadline(election):
    a = election.add()
    election.run(5)
    begun = last_renewal(election, "a")
    election.fate_of = by([(5.0, refusal(429, retry_after=30)), (5.0 + PERIOD, Fate())])
    election.run(10)
    assert begun + 1 < election.calls_of("a", since=5)[1].time <= begun + DEADLINE - CALL + 0.01
    assert [leading for _, leading in a.states] == [True]


def test_a_candidate_sent_away_for_30_s_comes_back_after_a_lease(election):
    election.fate_of = lambda _candidate, _call: refusal(429, retry_after=30)
    election.add()
    election.run(30)
    times = [call.time for call in election.calls]
    assert times == pytest.approx([LEASE * n for n in range(len(times))], abs=0.1)
    assert len(times) == 8


@pytest.mark.parametrize("seconds", [3.0, 5.0, 60.0])
def test_after_a_standstill_no_step_of_work_is_done(election, seconds):
    a, _ = leader_and_candidate(election)
    a.process.stop_for(seconds)
    term = election.steps[-1].term
    election.run(seconds + 2)
    assert max(step.time for step in election.steps if step.term == term) <= 5
    assert [leading for _, leading in a.states][:2] == [True, False]
    assert not election.overlaps()
    election.run(20)
    assert len(election.working()) == 1


def test_a_standstill_within_the_deadline_costs_no_term(election):
    a = election.add()
    election.run(5)
    a.process.stop_for(1.5)
    election.run(5)
    assert [leading for _, leading in a.states] == [True]
    assert election.working() == {"a"}


def test_after_a_sleep_of_the_machine_no_step_of_work_is_done(election):
    a = election.add()
    election.run(5)
    term = election.steps[-1].term
    a.sleep(60)
    election.run(3)
    assert max(step.time for step in election.steps if step.term == term) <= 5
    assert [leading for _, leading in a.states] == [True, False, True]


@pytest.mark.parametrize("hours", [9, -9])
def test_wall_clocks_may_jump(election, hours):
    a, b = election.add(), election.add(skew=-hours)
    election.run(5)
    for _ in range(10):
        a.skew = hours - a.skew
        election.run(2)
    assert [leading for _, leading in a.states] == [True]
    assert b.states == []
    a.process.kill()
    election.run(TAKEOVER + 1)
    assert election.working() == {"b"}
    assert not election.overlaps()


def test_a_killed_leader_is_followed_after_a_lease(election):
    a = election.add(offset=1e6)
    election.run(1)
    election.add(offset=-5.0)
    election.run(4)
    begun = last_renewal(election, "a")
    a.process.kill()
    election.run(20)
    assert begun + LEASE <= first_step(election, "b") <= begun + TAKEOVER
    assert election.server.spec["leaseTransitions"] == 1


def test_a_process_of_the_same_name_is_another_candidate(election):
    a = election.add()
    election.run(1)
    twin = election.add()
    twin.election.identity = a.election.identity
    election.run(2)
    assert election.working() == {"a"}
    assert twin.states == []


def test_handed_to_another_by_hand_the_leader_stops_with_its_next_renewal(election):
    a = election.add()
    election.run(5)
    election.server.put(holderIdentity="someone")
    election.run(LEASE - 0.1)
    assert last_step(election, "a") <= 5 + PERIOD + 0.1
    assert a.states[-1][1] is False
    assert election.working() == set()
    # Nobody by that name renews, so it comes back.
    election.run(TAKEOVER)
    assert election.working() == {"a"}
    assert election.server.spec["leaseTransitions"] == 1


def test_handed_to_a_candidate_by_hand_it_waits_until_the_leader_has_stopped(election):
    a, b = leader_and_candidate(election)
    election.server.put(holderIdentity=b.election.identity)
    election.run(1)
    assert not a.election.is_leader
    stopped = last_step(election, "a")
    election.run(10)
    assert min(step.time for step in election.steps if step.time > stopped) > 5 + LEASE
    assert len(election.working()) == 1


@pytest.mark.parametrize("spec", [{"holderIdentity": ""}, {"holderIdentity": None}])
def test_emptied_by_hand_it_is_given_up_and_then_taken(election, spec):
    a, _ = leader_and_candidate(election)
    election.server.put(**spec)
    election.run(TAKEOVER)
    assert [leading for _, leading in a.states][:2] == [True, False]
    assert len(election.working()) == 1
    assert not election.overlaps()


def test_deleted_while_leading_it_is_made_again_with_its_count(election):
    election.server.put(holderIdentity="gone", leaseDurationSeconds=1, leaseTransitions=6)
    a, b = leader_and_candidate(election)
    acquired = election.server.spec["acquireTime"]
    election.server.delete()
    election.run(1)
    assert a.holds
    assert election.server.spec["leaseTransitions"] == 7
    assert election.server.spec["acquireTime"] == acquired
    election.run(10)
    assert [leading for _, leading in a.states] == [True]
    assert b.states == []


def test_deleted_together_with_the_leader_it_is_made_by_the_next_one(election):
    a, _ = leader_and_candidate(election)
    a.process.kill()
    election.server.delete()
    election.run(TAKEOVER)
    assert election.working() == {"b"}
    assert not election.overlaps()


@pytest.mark.parametrize("touched", [{}, {"leaseTransitions": None}, {"acquireTime": None}])
def test_edited_beside_the_holder_it_stays_ours(election, touched):
    a = election.add()
    election.run(5)
    election.server.put(renewTime=None, leaseDurationSeconds=77, **touched)
    election.run(5)
    assert [leading for _, leading in a.states] == [True]
    assert election.server.spec["leaseDurationSeconds"] == 4
    assert election.server.spec["leaseTransitions"] == 0


def test_an_empty_lease_of_a_manifest_is_taken_with_what_it_has(election):
    election.server.put()
    election.server.stored["metadata"]["labels"] = {"app": "x"}
    a = election.add()
    election.run(1)
    assert a.holds
    assert election.server.stored["metadata"]["labels"] == {"app": "x"}


@pytest.mark.parametrize("how", ["stands still", "sleeps"])
def test_an_answer_that_comes_after_the_deadline_begins_no_term(election, how):
    election.fate_of = lambda _candidate, call: Fate(back=0.5 if call.method == "POST" else 0.0)
    a = election.add()
    election.run(0.1)
    if how == "sleeps":
        a.sleep(60)
    else:
        a.process.stop_for(60)
    election.run(62)
    ((begun, leading),) = a.states
    assert leading
    # It is ours by what was written then, but the deadline counts from a new request.
    before = [call.method for call in election.calls if call.time < begun]
    assert before == ["GET", "POST", "GET", "PUT"]


def test_each_kind_of_fault_is_logged_once_and_its_end_too(election):
    election.add()
    election.run(5)
    election.fate_of = lambda _candidate, _call: proxy_page()
    election.run(30)
    election.fate_of = lambda _candidate, _call: Fate()
    election.run(10)
    log = election.log.getvalue().decode()
    assert log.count("Lease not accessible") == 1
    assert log.count("Lease accessible again") == 1
    assert "not renewed within 2.5 s" in log


def test_a_hang_has_a_name_in_the_log(election):
    election.fate_of = lambda _candidate, _call: HANG
    election.add()
    election.run(5)
    assert b"the API server did not answer in time" in election.log.getvalue()
