from __future__ import annotations

import pytest

from harbourmaster.evaluation.schedule import retry_wait, slots, stable_hash

NOON = 1_772_366_400.0
"""A multiple of a minute."""


def test_slots_come_once_in_each_interval():
    metric_slots = slots(60.0, 7_250, 0, 1)
    assert metric_slots.next(NOON) == NOON + 7.25
    assert metric_slots.next(NOON + 7.25) == NOON + 67.25
    assert metric_slots.last(NOON + 67.0) == NOON + 7.25


def test_a_fetch_that_is_late_leads_to_the_same_slots():
    metric_slots = slots(60.0, 0, 0, 1)
    assert metric_slots.next(NOON + 19.5) == NOON + 60


@pytest.mark.parametrize(("count", "seconds"), [(1, 0.01), (100, 1.0), (1000, 10.0), (9999, 15.0)])
def test_many_metrics_of_a_question_are_spread_before_its_slot(count, seconds):
    metric_slots = slots(60.0, 30_000, 2048, count)
    assert metric_slots.spread == seconds
    assert metric_slots.next(NOON) == NOON + 30 - seconds / 2


def test_an_answer_is_shared_by_those_of_its_slot():
    metric_slots = slots(60.0, 0, 2048, 500)
    assert metric_slots.shared_since(NOON) == NOON - 6
    slot = metric_slots.next(NOON - 30)
    assert slot == NOON - 2.5
    assert metric_slots.shared_since(slot, slot) == slot - 6
    # However late it has become.
    assert metric_slots.shared_since(slot + 30, slot) == NOON - 5


@pytest.mark.parametrize(
    ("updated", "now", "expected"),
    [
        # In the slot of now, cut to its second.
        (0.0, 20.0, 60.25),
        # In an earlier one, so that the current one is due.
        (-60.0, 20.0, -59.75),
        (-3600.0, 20.0, -3599.75),
        # Before the slot of now, which has not come.
        (-50.0, 0.1, 0.25),
        # Of a clock that is ahead.
        (500.0, 20.0, 60.25),
    ],
)
def test_a_stamp_tells_whether_the_slot_is_done(updated, now, expected):
    metric_slots = slots(60.0, 250, 0, 1)
    assert metric_slots.next(metric_slots.last_fetch(NOON + updated, NOON + now)) == NOON + expected


def test_an_answer_that_another_metric_asked_for_counts_for_ours():
    # Ours is in the middle of the fifteen seconds before the slot.
    metric_slots = slots(60.0, 30_000, 2048, 9999)
    assert metric_slots.last(NOON + 25) == NOON + 22.5
    assert metric_slots.next(metric_slots.last_fetch(NOON + 15, NOON + 25)) == NOON + 82.5
    assert metric_slots.next(metric_slots.last_fetch(NOON + 13, NOON + 25)) < NOON + 25


def test_hashes_are_the_same_in_every_process():
    assert stable_hash("prod/prometheus", "up") == 0x454038C840EF33F5
    assert stable_hash("ab", "c") != stable_hash("a", "bc")


@pytest.mark.parametrize(
    ("failures", "interval", "asked_for", "seconds"),
    [
        (1, 60, None, 5),
        (2, 60, None, 10),
        (4, 60, None, 40),
        (5, 60, None, 60),
        (10**6, 60, None, 60),
        (1, 2, None, 2),
        (1, 60, 30.0, 30),
        (1, 60, 600.0, 600),
        (1, 60, 0.0, 5),
    ],
)
def test_tries_after_a_fault_come_ever_later(failures, interval, asked_for, seconds):
    assert retry_wait(failures, interval, asked_for) == seconds
