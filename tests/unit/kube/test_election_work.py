"""A leader's work that fails, returns, or does not end, in simulated time."""

from __future__ import annotations

from itertools import pairwise

import pytest

from helpers.simulated_processes import (
    DEADLINE,
    GRACE,
    LEASE,
    PERIOD,
    RESET,
    Fate,
    first_step,
    last_renewal,
    last_step,
    leader_and_candidate,
)


def test_work_that_fails_is_logged_gives_back_and_stands_again_later(election):
    a = election.add(fails=2)
    election.run(1)
    b = election.add()
    election.run(9)
    assert b.holds
    assert [leading for _, leading in a.states] == [True, False]
    assert first_step(election, "b") - last_step(election, "a") <= PERIOD + 0.1
    b.cancel()
    election.run(20)
    assert election.working() == {"a"}
    log = election.log.getvalue()
    assert log.count(b"leader task failed") == 2
    assert b"RuntimeError: the work fails" in log


def test_work_that_goes_on_failing_is_tried_less_and_less(election):
    a = election.add(fails=100)
    election.run(600)
    begun = [time for time, leading in a.states if leading]
    gaps = [later - earlier for earlier, later in pairwise(begun)]
    assert gaps == pytest.approx(sorted(gaps))
    assert gaps[0] < 3
    assert 45 < gaps[-1] < 65
    # In between, others may have it.
    assert election.server.holder == ""


def test_work_that_returns_is_done(election):
    a = election.add(returns=True)
    election.run(3)
    assert a.process.main.result() is None
    assert election.server.holder == ""
    assert [leading for _, leading in a.states] == [True, False]


def test_work_that_does_not_end_ends_the_process_before_the_lease_does(election):
    a, _ = leader_and_candidate(election, unwinds=None)
    begun = last_renewal(election, "a")
    election.fate_of = lambda candidate, _call: RESET if candidate is a else Fate()
    election.run(20)
    assert a.stuck
    assert begun + DEADLINE < last_step(election, "a") <= begun + DEADLINE + GRACE
    assert begun + LEASE < first_step(election, "b")
    assert not election.overlaps()


def test_work_that_ends_slowly_ends_no_process(election):
    a = election.add(unwinds=GRACE - 0.1)
    election.run(5)
    election.fate_of = lambda _candidate, _call: RESET
    election.run(20)
    assert not a.stuck
    assert [leading for _, leading in a.states] == [True, False]


def test_a_second_signal_does_not_leave_work_running(election):
    a = election.add(unwinds=1.0)
    election.run(5)
    a.cancel()
    election.run(0.3)
    a.cancel()
    election.run(3)
    assert a.process.main.cancelled()
    assert last_step(election, "a") == pytest.approx(6.0, abs=0.01)
    assert [leading for _, leading in a.states] == [True, False]
