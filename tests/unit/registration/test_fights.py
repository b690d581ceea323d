from __future__ import annotations

import pytest

from harbourmaster.registration.fights import LIMIT, WINDOW, Fights

FIELD = "failurePolicy"


@pytest.fixture
def fights():
    return Fights()


def repair(fights, times, wanted="Ignore"):
    return [fights.record(FIELD, wanted, at) for at in times]


def test_a_few_repairs_are_no_fight(fights):
    assert not any(repair(fights, range(LIMIT)))
    assert fights.hold(FIELD, "Ignore", LIMIT) == 0


def test_slow_repairs_are_no_fight(fights):
    assert not any(repair(fights, range(0, 1000, 15)))


def test_many_repairs_in_a_minute_are_one_and_it_is_told_once(fights):
    assert repair(fights, range(LIMIT + 3)) == [False] * LIMIT + [True, False, False]


def test_in_a_fight_there_is_one_repair_a_minute(fights):
    repair(fights, range(LIMIT + 1))
    assert fights.hold(FIELD, "Ignore", LIMIT) == WINDOW
    assert fights.hold(FIELD, "Ignore", LIMIT + 59) == WINDOW - 59
    assert fights.hold(FIELD, "Ignore", LIMIT + WINDOW) == 0
    assert not fights.record(FIELD, "Ignore", LIMIT + WINDOW)
    assert fights.hold(FIELD, "Ignore", LIMIT + WINDOW + 1) == WINDOW - 1


def test_a_fight_is_over_when_nothing_was_repaired_for_long(fights):
    repair(fights, range(LIMIT + 1))
    later = LIMIT + 2 * WINDOW + 1
    assert not fights.record(FIELD, "Ignore", later)
    assert fights.hold(FIELD, "Ignore", later) == 0


def test_a_value_of_ours_that_is_new_is_not_held_back(fights):
    repair(fights, range(LIMIT + 1))
    assert fights.hold(FIELD, "Fail", LIMIT) == 0
    assert not fights.record(FIELD, "Fail", LIMIT)
    assert fights.hold(FIELD, "Fail", LIMIT) == 0


def test_fields_fight_alone(fights):
    repair(fights, range(LIMIT + 1))
    assert fights.hold("timeoutSeconds", "Ignore", LIMIT) == 0
