"""Answers to evictions, and what follows from them (rescheduler-spec 3.4, 6.5)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbourmaster.rescheduling.answers import (
    EvictionOutcome,
    EvictionState,
    NextStep,
    Reply,
    choose_dry_run_step,
    choose_step,
    in_order,
    pause,
    read_answer,
)

BUDGET = ("DisruptionBudget",)
TWO = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not"


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (None, EvictionOutcome.EVICTED),
        (Reply(404, "NotFound"), EvictionOutcome.GONE),
        (Reply(409, "Conflict"), EvictionOutcome.REPLACED),
        (Reply(429, "TooManyRequests", BUDGET), EvictionOutcome.BUDGET),
        (Reply(429, "TooManyRequests", BUDGET, retry_after=10), EvictionOutcome.UNSETTLED),
        (Reply(429, "TooManyRequests", retry_after=1), EvictionOutcome.BUSY),
        (Reply(429, "", (), "Eviction triggered evacuation of VMI"), EvictionOutcome.BACKGROUND),
        (Reply(500, "", (), TWO), EvictionOutcome.TWO_BUDGETS),
        (Reply(500, "", (), "no answer of an API server"), EvictionOutcome.BUSY),
        (Reply(500, "InternalError", (), TWO), EvictionOutcome.BUSY),
        (Reply(503), EvictionOutcome.BUSY),
        (Reply(504, "Timeout"), EvictionOutcome.BUSY),
        (Reply(0), EvictionOutcome.BUSY),
        (Reply(401), EvictionOutcome.BUSY),
        (Reply(400, "BadRequest", (), "denied"), EvictionOutcome.REFUSED),
        (
            Reply(400, "BadRequest", (), 'admission webhook "x" does not support dry run'),
            EvictionOutcome.UNKNOWN,
        ),
        (Reply(403, "Forbidden"), EvictionOutcome.REFUSED),
        (
            Reply(422, "Invalid", (), "ValidatingAdmissionPolicy denied request"),
            EvictionOutcome.REFUSED,
        ),
    ],
)
def test_an_answer_is_understood(reply, expected):
    assert read_answer(reply) is expected


def test_an_eviction_in_the_background_is_recognised():
    assert read_answer(None, in_background=True) is EvictionOutcome.BACKGROUND
    assert (
        read_answer(Reply(429, "TooManyRequests"), in_background=True) is EvictionOutcome.BACKGROUND
    )
    assert read_answer(Reply(429, "", BUDGET), in_background=True) is EvictionOutcome.BUDGET


SAFE, VIOLATING = EvictionState(2), EvictionState(3, may_violate=True)
LATE, LATE_VIOLATING = EvictionState(2, refused=60), EvictionState(3, may_violate=True, refused=60)


@pytest.mark.parametrize(
    ("outcome", "state", "expected"),
    [
        (EvictionOutcome.EVICTED, SAFE, NextStep.NEXT),
        (EvictionOutcome.GONE, VIOLATING, NextStep.NEXT),
        (EvictionOutcome.REPLACED, SAFE, NextStep.VERIFY),
        (EvictionOutcome.BACKGROUND, SAFE, NextStep.BACKGROUND),
        (EvictionOutcome.BUDGET, SAFE, NextStep.RETRY),
        (EvictionOutcome.BUDGET, LATE, NextStep.WITHOUT_BUDGET),
        (EvictionOutcome.BUDGET, VIOLATING, NextStep.DELETE),
        (EvictionOutcome.UNSETTLED, VIOLATING, NextStep.RETRY),
        (EvictionOutcome.UNSETTLED, LATE_VIOLATING, NextStep.DELETE),
        (EvictionOutcome.UNSETTLED, LATE, NextStep.WITHOUT_BUDGET),
        (EvictionOutcome.TWO_BUDGETS, SAFE, NextStep.WITHOUT_NODE),
        (EvictionOutcome.TWO_BUDGETS, VIOLATING, NextStep.DELETE),
        (EvictionOutcome.BUSY, LATE_VIOLATING, NextStep.RETRY),
        (EvictionOutcome.REFUSED, VIOLATING, NextStep.WITHOUT_POD),
    ],
)
def test_each_outcome_of_an_eviction_has_a_next_step(outcome, state, expected):
    assert choose_step(outcome, state) is expected


@given(st.sampled_from(EvictionOutcome), st.integers(1, 3), st.booleans(), st.floats(0, 100))
def test_only_budgets_are_bypassed_and_only_if_allowed(outcome, tier, may_violate, refused):
    state = EvictionState(tier, may_violate=may_violate, refused=refused)
    if choose_step(outcome, state) is NextStep.DELETE:
        assert may_violate
        assert outcome in {
            EvictionOutcome.BUDGET,
            EvictionOutcome.UNSETTLED,
            EvictionOutcome.TWO_BUDGETS,
        }
    assert choose_dry_run_step(outcome, state) is not NextStep.DELETE


@pytest.mark.parametrize(
    ("outcome", "state", "expected"),
    [
        (EvictionOutcome.EVICTED, SAFE, NextStep.NEXT),
        (EvictionOutcome.UNKNOWN, SAFE, NextStep.NEXT),
        (EvictionOutcome.BACKGROUND, SAFE, NextStep.NEXT),
        (EvictionOutcome.BUDGET, SAFE, NextStep.WITHOUT_BUDGET),
        (EvictionOutcome.UNSETTLED, SAFE, NextStep.WITHOUT_BUDGET),
        (EvictionOutcome.TWO_BUDGETS, SAFE, NextStep.WITHOUT_NODE),
        (EvictionOutcome.BUDGET, VIOLATING, NextStep.NEXT),
        (EvictionOutcome.TWO_BUDGETS, VIOLATING, NextStep.NEXT),
        (EvictionOutcome.REFUSED, VIOLATING, NextStep.WITHOUT_POD),
        (EvictionOutcome.BUSY, SAFE, NextStep.RETRY),
    ],
)
def test_each_outcome_of_a_dry_run_has_a_next_step(outcome, state, expected):
    assert choose_dry_run_step(outcome, state) is expected


def test_pauses_are_those_that_are_asked_for_or_grow():
    assert pause(EvictionOutcome.BUDGET, SAFE, None, 0.0) == 5
    assert pause(EvictionOutcome.UNSETTLED, SAFE, 10, 0.0) == 10
    assert pause(EvictionOutcome.BUSY, EvictionState(1, busy=0), 3, 1.0) == 3
    waits = [pause(EvictionOutcome.BUSY, EvictionState(1, busy=n), None, 1.0) for n in range(12)]
    assert waits == sorted(waits)
    assert waits[-1] == 15


def test_those_go_first_whose_budget_may_say_no():
    assert in_order({"b", "d"}, ("a", "b", "c", "d")) == ("b", "d", "a", "c")
