"""Answers to evictions, and what follows from them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbourmaster.rescheduling.answers import (
    Outcome,
    Reply,
    Stand,
    Way,
    follow,
    follow_dry_run,
    in_order,
    pause,
    read,
)

BUDGET = ("DisruptionBudget",)
TWO = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not"


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (None, Outcome.EVICTED),
        (Reply(404, "NotFound"), Outcome.GONE),
        (Reply(409, "Conflict"), Outcome.REPLACED),
        (Reply(429, "TooManyRequests", BUDGET), Outcome.BUDGET),
        (Reply(429, "TooManyRequests", BUDGET, retry_after=10), Outcome.UNSETTLED),
        (Reply(429, "TooManyRequests", retry_after=1), Outcome.BUSY),
        (Reply(429, "", (), "Eviction triggered evacuation of VMI"), Outcome.BACKGROUND),
        (Reply(500, "", (), TWO), Outcome.TWO_BUDGETS),
        (Reply(500, "", (), "no answer of an API server"), Outcome.BUSY),
        (Reply(500, "InternalError", (), TWO), Outcome.BUSY),
        (Reply(503), Outcome.BUSY),
        (Reply(504, "Timeout"), Outcome.BUSY),
        (Reply(0), Outcome.BUSY),
        (Reply(401), Outcome.BUSY),
        (Reply(400, "BadRequest", (), "denied"), Outcome.REFUSED),
        (
            Reply(400, "BadRequest", (), 'admission webhook "x" does not support dry run'),
            Outcome.UNKNOWN,
        ),
        (Reply(403, "Forbidden"), Outcome.REFUSED),
        (Reply(422, "Invalid", (), "ValidatingAdmissionPolicy denied request"), Outcome.REFUSED),
    ],
)
def test_an_answer_is_understood(reply, expected):
    assert read(reply) is expected


def test_one_that_moves_by_itself_is_only_asked():
    assert read(None, in_background=True) is Outcome.BACKGROUND
    assert read(Reply(429, "TooManyRequests"), in_background=True) is Outcome.BACKGROUND
    assert read(Reply(429, "", BUDGET), in_background=True) is Outcome.BUDGET


SAFE, VIOLATING = Stand(2), Stand(3, may_violate=True)
LATE, LATE_VIOLATING = Stand(2, refused=60), Stand(3, may_violate=True, refused=60)


@pytest.mark.parametrize(
    ("outcome", "stand", "expected"),
    [
        (Outcome.EVICTED, SAFE, Way.NEXT),
        (Outcome.GONE, VIOLATING, Way.NEXT),
        (Outcome.REPLACED, SAFE, Way.VERIFY),
        (Outcome.BACKGROUND, SAFE, Way.BACKGROUND),
        (Outcome.BUDGET, SAFE, Way.RETRY),
        (Outcome.BUDGET, LATE, Way.WITHOUT_BUDGET),
        (Outcome.BUDGET, VIOLATING, Way.DELETE),
        (Outcome.UNSETTLED, VIOLATING, Way.RETRY),
        (Outcome.UNSETTLED, LATE_VIOLATING, Way.DELETE),
        (Outcome.UNSETTLED, LATE, Way.WITHOUT_BUDGET),
        (Outcome.TWO_BUDGETS, SAFE, Way.WITHOUT_NODE),
        (Outcome.TWO_BUDGETS, VIOLATING, Way.DELETE),
        (Outcome.BUSY, LATE_VIOLATING, Way.RETRY),
        (Outcome.REFUSED, VIOLATING, Way.WITHOUT_POD),
    ],
)
def test_what_follows_from_an_answer(outcome, stand, expected):
    assert follow(outcome, stand) is expected


@given(st.sampled_from(Outcome), st.integers(1, 3), st.booleans(), st.floats(0, 100))
def test_only_a_budget_is_ever_got_round_and_only_where_that_is_allowed(
    outcome, tier, may_violate, refused
):
    stand = Stand(tier, may_violate=may_violate, refused=refused)
    if follow(outcome, stand) is Way.DELETE:
        assert may_violate
        assert outcome in {Outcome.BUDGET, Outcome.UNSETTLED, Outcome.TWO_BUDGETS}
    assert follow_dry_run(outcome, stand) is not Way.DELETE


@pytest.mark.parametrize(
    ("outcome", "stand", "expected"),
    [
        (Outcome.EVICTED, SAFE, Way.NEXT),
        (Outcome.UNKNOWN, SAFE, Way.NEXT),
        (Outcome.BACKGROUND, SAFE, Way.NEXT),
        (Outcome.BUDGET, SAFE, Way.WITHOUT_BUDGET),
        (Outcome.UNSETTLED, SAFE, Way.WITHOUT_BUDGET),
        (Outcome.TWO_BUDGETS, SAFE, Way.WITHOUT_NODE),
        (Outcome.BUDGET, VIOLATING, Way.NEXT),
        (Outcome.TWO_BUDGETS, VIOLATING, Way.NEXT),
        (Outcome.REFUSED, VIOLATING, Way.WITHOUT_POD),
        (Outcome.BUSY, SAFE, Way.RETRY),
    ],
)
def test_what_follows_from_a_try(outcome, stand, expected):
    assert follow_dry_run(outcome, stand) is expected


def test_pauses_are_those_that_are_asked_for_or_grow():
    assert pause(Outcome.BUDGET, SAFE, None, 0.0) == 5
    assert pause(Outcome.UNSETTLED, SAFE, 10, 0.0) == 10
    assert pause(Outcome.BUSY, Stand(1, busy=0), 3, 1.0) == 3
    waits = [pause(Outcome.BUSY, Stand(1, busy=n), None, 1.0) for n in range(12)]
    assert waits == sorted(waits)
    assert waits[-1] == 15


def test_those_go_first_whose_budget_may_say_no():
    assert in_order({"b", "d"}, ("a", "b", "c", "d")) == ("b", "d", "a", "c")
