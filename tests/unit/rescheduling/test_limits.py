"""The limits of evictions in a period, and the conditions that pause all evictions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbourmaster.rescheduling.limits import (
    EVICTIONS_PER_MINUTE,
    AttemptBackoff,
    Attempts,
    Breaker,
    Budgets,
    EvictionBucket,
    EvictionLimits,
    Recent,
    Renewals,
)


def test_a_bucket_is_full_first_and_fills_evenly():
    bucket = EvictionBucket(6, 60)
    bucket.take(6, 0)
    assert bucket.tokens_left(0) == 0
    assert bucket.wait(2, 0) == 20
    assert bucket.tokens_left(19.9) == 1
    assert bucket.wait(2, 20) == 0
    assert bucket.tokens_left(1000) == 6


def test_more_tokens_than_the_size_are_never_available():
    assert EvictionBucket(3, 60).wait(4, 0) is None
    assert EvictionBucket(0, 60).wait(1, 0) is None
    assert EvictionBucket(0, 60).wait(0, 0) == 0


@given(st.lists(st.tuples(st.integers(0, 4), st.floats(0, 50)), max_size=40))
def test_no_more_is_done_in_any_period_than_twice_a_bucket(steps):
    bucket, now, taken = EvictionBucket(5, 60), 0.0, []
    for count, pause in steps:
        now += pause
        if bucket.wait(count, now) == 0:
            bucket.take(count, now)
            taken.append((now, count))
        assert 0 <= bucket.tokens_left(now) <= 5
    for begin, _ in taken:
        assert sum(n for at, n in taken if begin <= at < begin + 60) <= 10


def test_a_clock_that_goes_back_gives_nothing():
    bucket = EvictionBucket(6, 60)
    bucket.take(6, 100)
    assert bucket.tokens_left(40) == 0
    assert bucket.tokens_left(100) == 0


def test_a_plan_takes_all_of_every_kind_or_waits():
    budgets = Budgets(EvictionLimits(evictions_per_minute=4, pdb_violations_per_hour=1))
    assert budgets.wait(4, 1, 0) == 0
    budgets.take(4, 1, 0)
    assert budgets.tokens_left(0)[EVICTIONS_PER_MINUTE] == 0
    assert budgets.wait(1, 0, 0) == 15
    assert budgets.wait(0, 1, 0) == 3600
    assert budgets.wait(1, 2, 0) is None
    budgets.give_back(2, 1, 0)
    assert budgets.wait(2, 1, 0) == 0


def test_recent_ones_are_counted_and_old_ones_are_not():
    recent = Recent(60)
    for at in (0, 10, 20):
        recent.note("a", at)
    assert recent.count("a", 59) == 3
    assert recent.wait("a", 3, 20) == 40
    assert recent.wait("a", 4, 20) == 0
    assert recent.at_least(2, 65) == {"a"}
    assert recent.count("a", 80) == 0
    assert recent.count("b", 0) == 0


def test_attempts_end():
    attempts = Attempts(EvictionLimits(attempts_per_pod=2, attempts_per_owner=3), AttemptBackoff())
    assert attempts.wait("u", "o", 0) == 0
    assert attempts.note_failure("u") == 1
    assert attempts.note_failure("u") == 2
    assert attempts.wait("u", "o", 0) is None
    for _ in range(3):
        attempts.note_attempt("o", 0)
        attempts.note_attempt("", 0)
    assert attempts.wait("w", "o", 600) == 3000
    assert attempts.wait("w", "", 600) == 0
    attempts.forget("u")
    assert attempts.count_of("u") == 0
    attempts.recall("u", 4)
    assert attempts.count_of("u") == 4


def lose(attempts, uid, at, *, life=5, owner="o"):
    """Let a pod get room, be gone after its life, and another one wait; the losses so far."""
    attempts.note_success(uid, owner, at)
    gone = at + life
    return attempts.count_losses(owner, gone, lambda _: False, gone, 0.5)


def test_pods_that_are_gone_soon_after_success_delay_the_next_attempt_ever_longer():
    attempts = Attempts(EvictionLimits(attempts_per_owner=99), AttemptBackoff())
    assert lose(attempts, "a", 0) == 1
    assert attempts.wait("b", "o", 5) == 30
    assert attempts.wait("b", "p", 5) == 0
    assert attempts.wait("b", "o", 35) == 0
    assert lose(attempts, "b", 100) == 2
    assert attempts.wait("c", "o", 105) == 60
    assert attempts.count_losses("o", 105, lambda _: False, 105, 0.5) == 2
    assert attempts.wait("c", "o", 105) == 60
    assert lose(attempts, "c", 3650) == 2


@pytest.mark.parametrize(
    ("is_there", "since"),
    [(True, 5), (False, 60), (False, -1)],
    ids=["still there", "gone later", "the other waited before"],
)
def test_a_success_that_lasts_delays_nothing(is_there, since):
    attempts = Attempts(EvictionLimits(), AttemptBackoff())
    attempts.note_success("a", "o", 0)
    assert attempts.count_losses("o", since, lambda _: is_there, 70, 0.5) == 0
    assert attempts.wait("b", "o", 70) == 0


@pytest.mark.parametrize(("attempt", "whole"), [(0, 30), (1, 60), (4, 480), (5, 600), (99, 600)])
def test_waits_double_up_to_ten_minutes(attempt, whole):
    backoff = AttemptBackoff()
    assert backoff.delay(attempt, 0.5) == whole
    assert backoff.delay(attempt, 0.0) == pytest.approx(0.8 * whole)
    assert backoff.delay(attempt, 1.0) == pytest.approx(1.2 * whole)


def test_three_in_vain_open_the_circuit_and_one_may_try():
    breaker = Breaker()
    assert [breaker.fail(0), breaker.fail(1), breaker.fail(2)] == [False, False, True]
    assert breaker.wait("a", 2) == 600
    assert breaker.is_open(601)
    assert breaker.wait("a", 602) == 0
    breaker.begin("a", 602)
    assert breaker.wait("a", 603) == 0
    assert breaker.wait("b", 603) > 0
    assert breaker.fail(700)
    assert breaker.wait("a", 701) > 0
    breaker.begin("b", 1300)
    breaker.drop("b")
    assert breaker.wait("a", 1300) == 0
    breaker.begin("a", 1300)
    breaker.succeed()
    assert breaker.wait("b", 1301) == 0
    assert not breaker.is_open(1301)


def test_a_success_resets_the_failures():
    breaker = Breaker()
    breaker.fail(0)
    breaker.fail(0)
    breaker.succeed()
    assert not breaker.fail(0)
    assert breaker.wait("a", 0) == 0


NOON = "2026-01-01T12:00:00.000000Z"
EPOCH = 1767268800.0


def test_a_lease_that_was_just_renewed_is_alive():
    assert Renewals(60).record(NOON, 0, EPOCH + 59)
    assert not Renewals(60).record(NOON, 0, EPOCH + 61)
    assert not Renewals(60).record("never", 0, EPOCH)


def test_a_renewal_counts_whatever_the_clocks_say():
    renewals = Renewals(60)
    assert not renewals.record(NOON, 0, EPOCH + 9000)
    assert renewals.record("2026-01-01T12:00:02Z", 5, EPOCH + 9005)
    assert renewals.record("2026-01-01T12:00:02Z", 60, EPOCH)
    assert not renewals.record("2026-01-01T12:00:02Z", 66, EPOCH + 9066)


def test_after_a_long_time_without_checks_the_renew_time_counts():
    renewals = Renewals(60)
    assert renewals.record(NOON, 0, EPOCH)
    assert not renewals.record("2026-01-01T12:10:00Z", 3600, EPOCH + 3600)
