from __future__ import annotations

import pytest

from harbourmaster.registration.repair_limiter import LIMIT, WINDOW, RepairLimiter

FIELD = "failurePolicy"


@pytest.fixture
def limiter():
    return RepairLimiter()


def repair(limiter, times, wanted="Ignore"):
    return [limiter.record(FIELD, wanted, at) for at in times]


def test_a_few_repairs_are_no_fight(limiter):
    assert not any(repair(limiter, range(LIMIT)))
    assert limiter.delay(FIELD, "Ignore", LIMIT) == 0


def test_slow_repairs_are_no_fight(limiter):
    assert not any(repair(limiter, range(0, 1000, 15)))


def test_many_repairs_in_a_minute_are_one_and_it_is_told_once(limiter):
    assert repair(limiter, range(LIMIT + 3)) == [False] * LIMIT + [True, False, False]


def test_in_a_fight_there_is_one_repair_a_minute(limiter):
    repair(limiter, range(LIMIT + 1))
    assert limiter.delay(FIELD, "Ignore", LIMIT) == WINDOW
    assert limiter.delay(FIELD, "Ignore", LIMIT + 59) == WINDOW - 59
    assert limiter.delay(FIELD, "Ignore", LIMIT + WINDOW) == 0
    assert not limiter.record(FIELD, "Ignore", LIMIT + WINDOW)
    assert limiter.delay(FIELD, "Ignore", LIMIT + WINDOW + 1) == WINDOW - 1


def test_a_fight_is_over_when_nothing_was_repaired_for_long(limiter):
    repair(limiter, range(LIMIT + 1))
    later = LIMIT + 2 * WINDOW + 1
    assert not limiter.record(FIELD, "Ignore", later)
    assert limiter.delay(FIELD, "Ignore", later) == 0


def test_a_value_of_ours_that_is_new_is_not_held_back(limiter):
    repair(limiter, range(LIMIT + 1))
    assert limiter.delay(FIELD, "Fail", LIMIT) == 0
    assert not limiter.record(FIELD, "Fail", LIMIT)
    assert limiter.delay(FIELD, "Fail", LIMIT) == 0


def test_fields_fight_alone(limiter):
    repair(limiter, range(LIMIT + 1))
    assert limiter.delay("timeoutSeconds", "Ignore", LIMIT) == 0
